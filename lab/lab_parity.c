/* One kernel against another, and what is the matter if they differ. */
#include "lab/lab_parity.h"

#include <stdio.h>
#include <string.h>

#include "os/st_fpmode.h"

/* Above this many bytes of tensors the run on other inputs is left out. */
enum { SMALL_BYTES = 64 << 20 };

const char *lab_word_name(lab_word word) {
  static const char *const names[LAB_WORDS] = {
      "pass", "wrong", "beyond the bound", "nan", "unwritten", "wrote outside",
      "wrote an input", "depends on the part count", "depends on padding", "depends on old output",
      "reads what it must not", "parts disturb each other", "not repeatable", "first call only", "stale output",
      "floating-point mode", "crashed", "hung"};
  return names[word];
}

/* How one run of the candidate is made. */
typedef struct attempt {
  lab_fill fill;
  int32_t n_parts;
  bool together; /* at the same time, and as many as are timed */
  bool reused;   /* after a run on the inputs of fill_before, in the same buffers */
} attempt;

/* A case with a fill: of made-up inputs, or of those of a captured call. */
static strata_status fresh_case(const lab_trial *t, lab_fill fill, lab_case *c, strata_error *err) {
  return t->trace ? lab_trace_case(t->trace, fill, c, err) : lab_case_init(c, t->op, t->shape, fill, err);
}

static lab_fill fill_before(lab_fill fill) {
  --fill.seed;
  fill.tiny = false;
  return fill;
}

/* ---- controls ----------------------------------------------------------------- */

static int32_t heads_of(const stk_op *op, void *args) {
  stk_param params[STK_PARAMS_MAX];
  int32_t n = op->params ? op->params(args, params) : 0;
  for (int32_t i = 0; i < n; ++i)
    if (strcmp(params[i].name, "Hv") == 0 || strcmp(params[i].name, "Hq") == 0)
      return stk_param_get(&params[i]);
  return 8;
}

/* Spoils the first output that the kernel wrote. */
static void spoil(lab_case *c, lab_sabotage how) {
  for (int32_t i = 0; i < c->n; ++i) {
    st_guarded *b = &c->buffers[i];
    size_t tail = c->tensors[i].n / (size_t)heads_of(c->op, c->args) * stk_dtype_bytes(c->tensors[i].dtype);
    if (c->tensors[i].role != STK_OUT || c->tensors[i].dtype == STK_U8 || tail == 0) continue;
    uint8_t *last = b->data + b->n_bytes - tail;
    bool written = false;
    for (size_t k = 0; k < tail && !written; ++k) written = last[k] != c->fill.poison;
    if (!written) continue;
    if (how == LAB_FLIP_BIT) b->data[b->n_bytes / 2] ^= 1;
    else memset(last, c->fill.poison, tail);
    return;
  }
}

/* ---- one run -------------------------------------------------------------------- */

static lab_word word_of(lab_byte_word word) {
  switch (word) {
    case LAB_EQUAL: return LAB_PASS;
    case LAB_WRONG_BYTES: return LAB_WRONG_RESULT;
    case LAB_BEYOND_BOUND: return LAB_BEYOND;
    case LAB_NOT_A_NUMBER: return LAB_NAN;
    case LAB_UNWRITTEN: return LAB_LEFT_UNWRITTEN;
    case LAB_OUTSIDE: return LAB_WROTE_OUTSIDE;
  }
  return LAB_WRONG_RESULT;
}

static lab_place place_of(const stk_tensor *tensor, const st_guarded *b) {
  return (lab_place){tensor->name, b->data, b->data + b->n_bytes, b->front, b->back + b->back_bytes,
                     tensor->role == STK_IN};
}

static void note_places(lab_parity *out, const lab_case *c, int32_t n_parts) {
  out->n_parts = n_parts;
  out->n_places = c->n;
  for (int32_t i = 0; i < c->n; ++i)
    out->places[i] = place_of(&c->tensors[i], &c->buffers[i]);
}

/* Runs the candidate. *kept: it left the floating-point mode as it was. */
static strata_status run_candidate(const lab_trial *t, const attempt *a, lab_case *c, lab_parity *out,
                                   bool *kept, strata_error *err) {
  const lab_runner *runner = a->together ? &t->together : &t->cand;
  const int32_t n_parts = a->together ? lab_case_parts(c, t->n_threads) : a->n_parts;
  note_places(out, c, n_parts);
  const st_fpmode before = st_fpmode_get();
  strata_status status = runner->run(runner->self, c, n_parts, err);
  *kept = st_fpmode_equal(before, st_fpmode_get());
  st_fpmode_set(before);
  if (status == STRATA_OK && t->sabotage != LAB_AS_IS) spoil(c, t->sabotage);
  return status;
}

static strata_status run_base(const lab_trial *t, lab_case *c, strata_error *err) {
  return t->base.run(t->base.self, c, 2, err);
}

/* A case on which the candidate is to run. */
static strata_status new_case(const lab_trial *t, const attempt *a, lab_case *c, strata_error *err) {
  lab_parity ignored;
  bool kept;
  ST_TRY(fresh_case(t, a->reused ? fill_before(a->fill) : a->fill, c, err));
  if (!a->reused) return STRATA_OK;
  strata_status status = run_candidate(t, a, c, &ignored, &kept, err);
  if (status == STRATA_OK) lab_case_refill(c, t->shape, a->fill);
  else lab_case_release(c);
  return status;
}

static bool all_poison(const lab_case *c, int32_t i) {
  const st_guarded *b = &c->buffers[i];
  for (size_t k = 0; k < b->n_bytes; ++k)
    if (b->data[k] != c->fill.poison) return false;
  return c->tensors[i].role == STK_OUT && b->n_bytes > 0;
}

/* Compares all tensors; the worst word wins, inputs are listed only if they changed. */
static void compare(const lab_case *want, const lab_case *got, double bound, lab_parity *out) {
  out->n_buffers = 0;
  for (int32_t i = 0; i < got->n; ++i) {
    lab_difference d = lab_case_compare_tensor(want, got, i, bound);
    if (got->tensors[i].role == STK_IN && d.word == LAB_EQUAL) continue;
    out->kept[out->n_buffers] = all_poison(want, i);
    out->buffers[out->n_buffers++] = d;
    if (word_of(d.word) <= out->word) continue;
    out->word = word_of(d.word);
    lab_difference_describe(&d, bound, out->detail, sizeof out->detail);
  }
}

static void settle(lab_case *want, lab_case *got) {
  if (!want->op->settle) return;
  want->op->settle(want->args);
  want->op->settle(got->args);
}

/* Fills want with what is expected of the candidate. Where base writes, a captured call
 * wrote too: what base leaves alone is found by letting it run over two poisons. */
static strata_status expect(const lab_trial *t, lab_case *want, strata_error *err) {
  lab_case other;
  lab_fill fill = want->fill;
  ST_TRY(run_base(t, want, err));
  if (!t->captured) return STRATA_OK;
  fill.poison = (uint8_t)~fill.poison;
  ST_TRY(fresh_case(t, fill, &other, err));
  strata_status status = run_base(t, &other, err);
  if (status == STRATA_OK) lab_trace_put_outputs(t->trace, want, &other);
  lab_case_release(&other);
  return status;
}

/* Base and candidate on the same fill. out->word says what came of it. */
static strata_status run_both(const lab_trial *t, const attempt *a, lab_parity *out, strata_error *err) {
  strata_status status = STRATA_OK;
  lab_case want, got = {0};
  bool kept;
  out->word = LAB_PASS;
  out->detail[0] = '\0';
  ST_TRY(fresh_case(t, a->fill, &want, err));
  ST_TRY_OUT(new_case(t, a, &got, err));
  ST_TRY_OUT(expect(t, &want, err));
  ST_TRY_OUT(run_candidate(t, a, &got, out, &kept, err));
  if (kept) {
    if (t->bound > 0) settle(&want, &got);
    compare(&want, &got, t->bound, out);
  } else {
    out->word = LAB_FP_MODE;
    snprintf(out->detail, sizeof out->detail, "left another rounding or denormal mode behind");
  }
out:
  lab_case_release(&want);
  lab_case_release(&got);
  return status;
}

/* ---- finding the word ----------------------------------------------------------- */

/* On other inputs in the same buffers, does the candidate give what base gives on those
 * of the call before? */
static strata_status looks_stale(const lab_trial *t, const attempt *a, bool *stale, strata_error *err) {
  strata_status status = STRATA_OK;
  lab_parity ignored = {0};
  lab_case want, got = {0};
  attempt next = *a;
  bool kept;
  next.reused = true;
  next.fill.seed += !a->reused;
  *stale = false;
  if (t->trace) return STRATA_OK; /* it has no other inputs */
  ST_TRY(fresh_case(t, fill_before(next.fill), &want, err));
  ST_TRY_OUT(new_case(t, &next, &got, err));
  ST_TRY_OUT(run_base(t, &want, err));
  ST_TRY_OUT(run_candidate(t, &next, &got, &ignored, &kept, err));
  *stale = true;
  for (int32_t i = 0; i < want.n; ++i)
    if (want.tensors[i].role == STK_OUT && want.buffers[i].n_bytes > 0)
      *stale &= memcmp(want.buffers[i].data, got.buffers[i].data, want.buffers[i].n_bytes) == 0;
out:
  lab_case_release(&want);
  lab_case_release(&got);
  return status;
}

static bool has_unread(const lab_trial *t, strata_error *err) {
  lab_case c;
  lab_fill fill = {.seed = t->seed};
  bool found = false;
  if (fresh_case(t, fill, &c, err) != STRATA_OK) return false;
  for (int32_t i = 0; i < c.n; ++i) found |= c.tensors[i].fill == STK_FILL_UNREAD;
  lab_case_release(&c);
  return found;
}

/* One thing that is changed against a run that did otherwise. */
typedef struct change {
  attempt attempt;
  lab_word word;
} change;

/* A fill with another byte in one of its places. */
typedef enum fill_byte { POISON, GUARD, UNREAD } fill_byte;

static attempt one_changed(lab_fill fill, int32_t n_parts, fill_byte which, uint8_t value) {
  switch (which) {
    case POISON: fill.poison = value; break;
    case GUARD: fill.guard = value; break;
    case UNREAD: fill.unread = value; break;
  }
  return (attempt){fill, n_parts, false, false};
}

/* The word of the first change that turns the outcome into what is wanted (a pass, or
 * a failure); LAB_PASS if none does. */
static strata_status find_change(const lab_trial *t, const change *changes, int32_t n, bool want_pass,
                                 lab_word *word, strata_error *err) {
  *word = LAB_PASS;
  for (int32_t i = 0; i < n && *word == LAB_PASS; ++i) {
    lab_parity tried;
    ST_TRY(run_both(t, &changes[i].attempt, &tried, err));
    if ((tried.word == LAB_PASS) == want_pass) *word = changes[i].word;
  }
  return STRATA_OK;
}

/* The plain run failed: which one change would have let it pass? */
static strata_status explain_failure(const lab_trial *t, const attempt *plain, lab_parity *out,
                                     strata_error *err) {
  bool stale;
  lab_word word;
  if (out->word == LAB_WROTE_OUTSIDE || out->word == LAB_FP_MODE || t->sabotage != LAB_AS_IS)
    return STRATA_OK;
  const lab_fill f = plain->fill;
  const change changes[] = {
      {one_changed(f, 1, UNREAD, 0), LAB_ON_UNREAD},
      {{f, 3, false, false}, LAB_ON_PARTS},
      {one_changed(f, 1, POISON, 0), LAB_ON_OLD_OUTPUT},
      {one_changed(f, 1, GUARD, 0), LAB_ON_PADDING},
  };
  const int32_t skip = has_unread(t, err) ? 0 : 1;
  ST_TRY(looks_stale(t, plain, &stale, err));
  ST_TRY(find_change(t, changes + skip, (int32_t)(sizeof changes / sizeof *changes) - skip, true, &word, err));
  if (stale) out->word = LAB_STALE;
  else if (word != LAB_PASS) out->word = word;
  return STRATA_OK;
}

/* The plain run passed, one with everything changed failed: which change is it? */
static strata_status explain_change(const lab_trial *t, const attempt *plain, const attempt *all,
                                    lab_parity *out, strata_error *err) {
  lab_parity again;
  lab_word word;
  ST_TRY(run_both(t, plain, &again, err));
  if (again.word != LAB_PASS) {
    bool stale;
    ST_TRY(looks_stale(t, plain, &stale, err));
    *out = again;
    out->word = stale ? LAB_STALE : again.word == LAB_LEFT_UNWRITTEN ? LAB_FIRST_CALL_ONLY : LAB_NOT_REPEATABLE;
    return STRATA_OK;
  }
  const lab_fill f = plain->fill, g = all->fill;
  const change changes[] = {
      {{f, all->n_parts, false, false}, LAB_ON_PARTS},
      {one_changed(f, plain->n_parts, POISON, g.poison), LAB_ON_OLD_OUTPUT},
      {one_changed(f, plain->n_parts, GUARD, g.guard), LAB_ON_PADDING},
      {one_changed(f, plain->n_parts, UNREAD, g.unread), LAB_ON_UNREAD},
  };
  ST_TRY(find_change(t, changes, sizeof changes / sizeof *changes, false, &word, err));
  if (word == LAB_PASS) { /* no change by itself: is it the same once more? */
    ST_TRY(run_both(t, all, &again, err));
    if (again.word == LAB_PASS) word = LAB_NOT_REPEATABLE;
  }
  if (word != LAB_PASS) out->word = word;
  return STRATA_OK;
}

/* Parts in a row passed, parts at the same time failed: is it their number, or that they
 * met? */
static strata_status explain_meeting(const lab_trial *t, const attempt *together, lab_parity *out,
                                     strata_error *err) {
  lab_parity in_a_row;
  const attempt same = {.fill = together->fill, .n_parts = out->n_parts};
  if (out->word == LAB_FP_MODE) return STRATA_OK;
  ST_TRY(run_both(t, &same, &in_a_row, err));
  out->word = in_a_row.word == LAB_PASS ? LAB_ON_OTHER_PARTS : LAB_ON_PARTS;
  return STRATA_OK;
}

/* A fast kernel may differ from base, not from itself. */
static strata_status repeats_itself(const lab_trial *t, const attempt *a, const attempt *b,
                                    lab_parity *out, strata_error *err) {
  strata_status status = STRATA_OK;
  lab_case one, two = {0};
  bool kept;
  ST_TRY(fresh_case(t, a->fill, &one, err));
  ST_TRY_OUT(fresh_case(t, b->fill, &two, err));
  ST_TRY_OUT(run_candidate(t, a, &one, out, &kept, err));
  ST_TRY_OUT(run_candidate(t, b, &two, out, &kept, err));
  for (int32_t i = 0; i < one.n; ++i) {
    if (all_poison(&one, i) && all_poison(&two, i)) continue;
    lab_difference d = lab_case_compare_tensor(&one, &two, i, 0);
    if (d.word == LAB_EQUAL || one.tensors[i].fill == STK_FILL_UNREAD) continue;
    out->word = LAB_NOT_REPEATABLE;
    lab_difference_describe(&d, 0, out->detail, sizeof out->detail);
    break;
  }
out:
  lab_case_release(&one);
  lab_case_release(&two);
  return status;
}

static strata_status shape_bytes(const lab_trial *t, size_t *n_bytes, strata_error *err) {
  stk_tensor tensors[STK_TENSORS_MAX];
  union {
    uint8_t bytes[1024];
    void *align;
  } args;
  *n_bytes = 0;
  if (t->op->args_bytes > sizeof args) ST_FAIL(err, INTERNAL, "%s: args of %zu bytes", t->op->name, t->op->args_bytes);
  memcpy(args.bytes, t->shape, t->op->args_bytes);
  int32_t n = t->op->tensors(args.bytes, tensors);
  for (int32_t i = 0; i < n; ++i) *n_bytes += tensors[i].n * stk_dtype_bytes(tensors[i].dtype);
  return STRATA_OK;
}

/* The plain run passed: so must runs of which more is asked. */
static strata_status check_further(const lab_trial *t, const attempt *plain, lab_parity *out, strata_error *err) {
  const attempt all = {.fill = {.seed = t->seed, .poison = 0x5a, .guard = 0xff}, .n_parts = 7};
  const attempt together = {.fill = plain->fill, .together = true};
  attempt other = {.fill = plain->fill, .n_parts = 2, .reused = true};
  size_t n_bytes;
  ++other.fill.seed;
  other.fill.tiny = true;
  ST_TRY(run_both(t, &all, out, err));
  if (out->word != LAB_PASS) return explain_change(t, plain, &all, out, err);
  if (t->bound > 0) ST_TRY(repeats_itself(t, plain, &all, out, err));
  if (out->word != LAB_PASS) return STRATA_OK;
  ST_TRY(shape_bytes(t, &n_bytes, err));
  if (n_bytes <= SMALL_BYTES && !t->trace) ST_TRY(run_both(t, &other, out, err));
  if (out->word != LAB_PASS) return explain_failure(t, &other, out, err);
  if (t->together.run) ST_TRY(run_both(t, &together, out, err));
  return out->word == LAB_PASS ? STRATA_OK : explain_meeting(t, &together, out, err);
}

static attempt plain_attempt(const lab_trial *t) {
  const lab_fill fill = {.seed = t->seed, .poison = 0xa5, .guard = 0x5e, .unread = t->spare_unread ? 0 : 0xff};
  return (attempt){.fill = fill, .n_parts = 1};
}

strata_status lab_parity_once(const lab_trial *t, lab_parity *out, strata_error *err) {
  const attempt plain = plain_attempt(t);
  return run_both(t, &plain, out, err);
}

strata_status lab_parity_check(const lab_trial *t, lab_parity *out, strata_error *err) {
  const attempt plain = plain_attempt(t);
  ST_TRY(run_both(t, &plain, out, err));
  return out->word == LAB_PASS ? check_further(t, &plain, out, err) : explain_failure(t, &plain, out, err);
}

/* ---- crashes -------------------------------------------------------------------- */

/* Bytes from an address to a tensor's elements; 0: it is one of them, or just behind. */
static size_t gap_to(const lab_place *place, const uint8_t *at) {
  if (at < place->begin) return (size_t)(place->begin - at);
  return at < place->end ? 0 : (size_t)(at - place->end);
}

static const lab_place *nearest_place(const lab_parity *p, const uint8_t *at) {
  const lab_place *best = NULL;
  size_t distance = 1 << 20; /* farther away it is nobody's */
  for (int32_t i = 0; at && i < p->n_places; ++i) {
    size_t gap = gap_to(&p->places[i], at);
    if (gap >= distance) continue;
    distance = gap;
    best = &p->places[i];
  }
  return best;
}

void lab_parity_crashed(lab_parity *p, const char *signal_name, const void *address) {
  const uint8_t *at = address;
  const lab_place *place = nearest_place(p, at);
  p->word = LAB_CRASHED;
  if (!place) {
    snprintf(p->detail, sizeof p->detail, "%s", signal_name);
    return;
  }
  const bool inside = at >= place->begin && at < place->end, before = at < place->begin;
  /* Where one may read, only writing is a fault. */
  const bool wrote = place->closed && at >= place->open_begin && at < place->open_end;
  if (wrote) p->word = inside ? LAB_WROTE_INPUT : LAB_WROTE_OUTSIDE;
  if (inside)
    snprintf(p->detail, sizeof p->detail, "%s at byte %zu of %s", signal_name, (size_t)(at - place->begin),
             place->tensor);
  else
    snprintf(p->detail, sizeof p->detail, "%s at %zu bytes %s %s", signal_name, gap_to(place, at),
             before ? "before the start of" : "past the end of", place->tensor);
}
