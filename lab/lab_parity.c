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
      "depends on the part count", "depends on padding", "depends on old output",
      "reads what it must not", "not repeatable", "first call only", "stale output",
      "floating-point mode", "crashed", "hung"};
  return names[word];
}

/* How one run of the candidate is made. */
typedef struct attempt {
  lab_fill fill;
  int32_t n_parts;
} attempt;

static strata_status new_case(const lab_trial *t, lab_case *c, lab_fill fill, strata_error *err) {
  return t->trace ? lab_trace_case(t->trace, fill, c, err) : lab_case_init(c, t->op, t->shape, fill, err);
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

static void note_places(lab_parity *out, const lab_case *c, int32_t n_parts) {
  out->n_parts = n_parts;
  out->n_places = c->n;
  for (int32_t i = 0; i < c->n; ++i)
    out->places[i] = (lab_place){c->tensors[i].name, c->buffers[i].data, c->buffers[i].data + c->buffers[i].n_bytes};
}

/* Runs the candidate. *kept: it left the floating-point mode as it was. */
static strata_status run_candidate(const lab_trial *t, lab_case *c, int32_t n_parts, lab_parity *out,
                                   bool *kept, strata_error *err) {
  note_places(out, c, n_parts);
  const st_fpmode before = st_fpmode_get();
  strata_status status = t->cand.run(t->cand.self, c, n_parts, err);
  *kept = st_fpmode_equal(before, st_fpmode_get());
  st_fpmode_set(before);
  if (status == STRATA_OK && t->sabotage != LAB_AS_IS) spoil(c, t->sabotage);
  return status;
}

static strata_status run_base(const lab_trial *t, lab_case *c, strata_error *err) {
  return t->base.run(t->base.self, c, 2, err);
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
  ST_TRY(new_case(t, &other, fill, err));
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
  ST_TRY(new_case(t, &want, a->fill, err));
  ST_TRY_OUT(new_case(t, &got, a->fill, err));
  ST_TRY_OUT(expect(t, &want, err));
  ST_TRY_OUT(run_candidate(t, &got, a->n_parts, out, &kept, err));
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

/* On other inputs, does the candidate give what base gives on those of the call
 * before? */
static strata_status looks_stale(const lab_trial *t, const attempt *a, bool *stale, strata_error *err) {
  strata_status status = STRATA_OK;
  lab_parity ignored = {0};
  lab_case want, first = {0}, second = {0};
  lab_fill other = a->fill;
  bool kept;
  ++other.seed;
  *stale = false;
  if (t->trace) return STRATA_OK; /* it has no other inputs */
  ST_TRY(new_case(t, &want, a->fill, err));
  ST_TRY_OUT(new_case(t, &first, a->fill, err));
  ST_TRY_OUT(new_case(t, &second, other, err));
  ST_TRY_OUT(run_base(t, &want, err));
  ST_TRY_OUT(run_candidate(t, &first, a->n_parts, &ignored, &kept, err));
  ST_TRY_OUT(run_candidate(t, &second, a->n_parts, &ignored, &kept, err));
  *stale = true;
  for (int32_t i = 0; i < want.n; ++i)
    if (want.tensors[i].role == STK_OUT && want.buffers[i].n_bytes > 0)
      *stale &= memcmp(want.buffers[i].data, second.buffers[i].data, want.buffers[i].n_bytes) == 0;
out:
  lab_case_release(&want);
  lab_case_release(&first);
  lab_case_release(&second);
  return status;
}

static bool has_unread(const lab_trial *t, strata_error *err) {
  lab_case c;
  lab_fill fill = {.seed = t->seed};
  bool found = false;
  if (new_case(t, &c, fill, err) != STRATA_OK) return false;
  for (int32_t i = 0; i < c.n; ++i) found |= c.tensors[i].fill == STK_FILL_UNREAD;
  lab_case_release(&c);
  return found;
}

/* One thing that is changed against a run that did otherwise. */
typedef struct change {
  attempt attempt;
  lab_word word;
} change;

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
      {{{f.seed, f.poison, f.guard, 0}, 1}, LAB_ON_UNREAD},
      {{f, 3}, LAB_ON_PARTS},
      {{{f.seed, 0, f.guard, f.unread}, 1}, LAB_ON_OLD_OUTPUT},
      {{{f.seed, f.poison, 0, f.unread}, 1}, LAB_ON_PADDING},
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
  change changes[] = {
      {{plain->fill, all->n_parts}, LAB_ON_PARTS},
      {{{plain->fill.seed, all->fill.poison, plain->fill.guard, plain->fill.unread}, plain->n_parts}, LAB_ON_OLD_OUTPUT},
      {{{plain->fill.seed, plain->fill.poison, all->fill.guard, plain->fill.unread}, plain->n_parts}, LAB_ON_PADDING},
      {{{plain->fill.seed, plain->fill.poison, plain->fill.guard, all->fill.unread}, plain->n_parts}, LAB_ON_UNREAD},
  };
  ST_TRY(find_change(t, changes, sizeof changes / sizeof *changes, false, &word, err));
  if (word == LAB_PASS) { /* no change by itself: is it the same once more? */
    ST_TRY(run_both(t, all, &again, err));
    if (again.word == LAB_PASS) word = LAB_NOT_REPEATABLE;
  }
  if (word != LAB_PASS) out->word = word;
  return STRATA_OK;
}

/* A fast kernel may differ from base, not from itself. */
static strata_status repeats_itself(const lab_trial *t, const attempt *a, const attempt *b,
                                    lab_parity *out, strata_error *err) {
  strata_status status = STRATA_OK;
  lab_case one, two = {0};
  bool kept;
  ST_TRY(new_case(t, &one, a->fill, err));
  ST_TRY_OUT(new_case(t, &two, b->fill, err));
  ST_TRY_OUT(run_candidate(t, &one, a->n_parts, out, &kept, err));
  ST_TRY_OUT(run_candidate(t, &two, b->n_parts, out, &kept, err));
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
  const char *wrong = t->op->check(t->shape);
  if (wrong) ST_FAIL(err, UNSUPPORTED, "%s", wrong);
  if (t->op->args_bytes > sizeof args) ST_FAIL(err, INTERNAL, "%s: args of %zu bytes", t->op->name, t->op->args_bytes);
  memcpy(args.bytes, t->shape, t->op->args_bytes);
  int32_t n = t->op->tensors(args.bytes, tensors);
  for (int32_t i = 0; i < n; ++i) *n_bytes += tensors[i].n * stk_dtype_bytes(tensors[i].dtype);
  return STRATA_OK;
}

static attempt plain_attempt(const lab_trial *t) {
  return (attempt){{t->seed, 0xa5, 0x5e, t->spare_unread ? 0 : 0xff}, 1};
}

strata_status lab_parity_once(const lab_trial *t, lab_parity *out, strata_error *err) {
  const attempt plain = plain_attempt(t);
  return run_both(t, &plain, out, err);
}

strata_status lab_parity_check(const lab_trial *t, lab_parity *out, strata_error *err) {
  const attempt plain = plain_attempt(t), all = {{t->seed, 0x5a, 0xff, 0}, 7};
  attempt other = plain;
  size_t n_bytes;
  ++other.fill.seed;
  other.n_parts = 2;
  ST_TRY(shape_bytes(t, &n_bytes, err));
  ST_TRY(run_both(t, &plain, out, err));
  if (out->word != LAB_PASS) return explain_failure(t, &plain, out, err);
  ST_TRY(run_both(t, &all, out, err));
  if (out->word != LAB_PASS) return explain_change(t, &plain, &all, out, err);
  if (t->bound > 0) {
    ST_TRY(repeats_itself(t, &plain, &all, out, err));
    if (out->word != LAB_PASS) return STRATA_OK;
  }
  if (n_bytes > SMALL_BYTES || t->trace) return STRATA_OK;
  ST_TRY(run_both(t, &other, out, err));
  return out->word == LAB_PASS ? STRATA_OK : explain_failure(t, &other, out, err);
}

/* ---- crashes -------------------------------------------------------------------- */

void lab_parity_crashed(lab_parity *p, const char *signal_name, const void *address) {
  const uint8_t *at = address;
  int32_t best = -1;
  size_t distance = 1 << 20; /* farther away it is nobody's */
  bool before = false;
  p->word = LAB_CRASHED;
  for (int32_t i = 0; at && i < p->n_places; ++i) {
    const lab_place *q = &p->places[i];
    size_t gap = at < q->begin ? (size_t)(q->begin - at) : at >= q->end ? (size_t)(at - q->end) : 0;
    if (gap >= distance) continue;
    distance = gap;
    best = i;
    before = at < q->begin;
  }
  if (best >= 0)
    snprintf(p->detail, sizeof p->detail, "%s at %zu bytes %s %s", signal_name, distance,
             before ? "before the start of" : "past the end of", p->places[best].tensor);
  else
    snprintf(p->detail, sizeof p->detail, "%s", signal_name);
}
