/* The gated delta net as a whole: pre, then scan or step, then post, over windows,
 * shapes, variants and hostile values. Tests compare bytes, except where a scan of
 * class fast is on one side, and where the other is a recurrence in double precision. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "gdn_post/gdn_post.h"
#include "gdn_pre/gdn_pre.h"
#include "gdn_step/gdn_step.h"
#include "kreg/st_kreg.h"
#include "lab/lab_case.h"
#include "lab/lab_check.h"

enum { TAPS = 4, D = 128, T_MAX = 300 };

/* One layer: inputs of T_MAX tokens, weights, state, and the last window's
 * buffers. All memory is one block, so two layers can be compared and copied. Rows of f16
 * lie where those of f32 would, without gaps. */
typedef struct layer {
  int32_t hk, hv, position;
  stk_dtype rows;
  size_t n_floats;
  float *memory;
  float *qkv, *ab, *z;                         /* inputs, [T_MAX][..] */
  float *conv_w, *a_log, *dt_bias, *gain;      /* weights */
  float *history, *k_tail, *state;             /* state */
  float *qn, *kn, *vc, *gb, *kq, *o;           /* a window's buffers */
  float *y;                                    /* [T_MAX][Hv*D], all tokens so far */
} layer;

static int32_t channels(const layer *l) { return (2 * l->hk + l->hv) * D; }

static float *take(float **at, size_t n) {
  float *p = *at;
  if (p) *at += n;
  return p;
}

/* Points the fields into memory; returns how many floats there are. */
static size_t lay_out(layer *l, float *memory) {
  static float counter[1];
  float *at = memory ? memory : counter, *start = at;
  const size_t T = T_MAX, hk = (size_t)l->hk, hv = (size_t)l->hv, c = (size_t)channels(l);
  l->qkv = take(&at, T * c);
  l->ab = take(&at, T * 2 * hv);
  l->z = take(&at, T * hv * D);
  l->conv_w = take(&at, c * TAPS);
  l->a_log = take(&at, hv);
  l->dt_bias = take(&at, hv);
  l->gain = take(&at, D);
  l->history = take(&at, (TAPS - 1) * c);
  l->k_tail = take(&at, 2 * hk * D);
  l->state = take(&at, stk_gdn_state_floats(l->hv, D, D));
  l->qn = take(&at, T * hk * D);
  l->kn = take(&at, (T + 2) * hk * D);
  l->vc = take(&at, T * hv * D);
  l->gb = take(&at, T * hv * 2);
  l->kq = take(&at, T * hk * 3);
  l->o = take(&at, T * hv * D);
  l->y = take(&at, T * hv * D);
  return (size_t)(at - start);
}

static void fill(float *x, size_t n, double low, double high, uint64_t *random) {
  for (size_t i = 0; i < n; ++i)
    x[i] = (float)(low + (double)(lab_random(random) >> 11) / 9007199254740992.0 * (high - low));
}

static strata_status layer_new(layer *l, int32_t hk, int32_t hv, uint64_t seed, strata_error *err) {
  void *memory;
  *l = (layer){.hk = hk, .hv = hv};
  l->n_floats = lay_out(l, NULL);
  ST_TRY(st_calloc_aligned(&memory, l->n_floats, sizeof(float), "a layer", err));
  l->memory = memory;
  lay_out(l, l->memory);
  fill(l->qkv, (size_t)T_MAX * (size_t)channels(l), -2, 2, &seed);
  fill(l->ab, (size_t)T_MAX * 2 * (size_t)hv, -4, 4, &seed);
  fill(l->z, (size_t)T_MAX * (size_t)hv * D, -3, 3, &seed);
  fill(l->conv_w, (size_t)channels(l) * TAPS, -0.7, 0.7, &seed);
  fill(l->a_log, (size_t)hv, -6, -0.5, &seed);
  fill(l->dt_bias, (size_t)hv, -1, 4, &seed);
  fill(l->gain, D, 0.5, 1.5, &seed);
  return STRATA_OK;
}

/* In place: a half is behind none that is still to be read. */
static void halve(float *x, size_t n) {
  for (size_t i = 0; i < n; ++i) lab_number_put(x, STK_F16, i, (double)x[i]);
}

static const void *row_at(const layer *l, const float *rows, int32_t i) {
  return (const char *)rows + (size_t)i * stk_dtype_bytes(l->rows);
}

/* From here on its rows are of f16; it is at position 0. */
static void use_halves(layer *l) {
  halve(l->qkv, (size_t)T_MAX * (size_t)channels(l));
  halve(l->z, (size_t)T_MAX * (size_t)l->hv * D);
  l->rows = STK_F16;
}

static void layer_free(layer *l) {
  st_free(l->memory);
  *l = (layer){0};
}

/* Which kernels run a window; scan NULL: gdn_step token by token. */
typedef struct route {
  const stk_kernel *pre, *scan, *step, *post;
  int32_t n_parts;
  bool legacy; /* pre as one call for each kind */
} route;

static void run_parts(const stk_kernel *kernel, const void *args, int32_t n_parts) {
  for (int32_t part = 0; part < n_parts; ++part) kernel->run(args, part, n_parts);
}

static void run_window(layer *l, int32_t T, const route *r) {
  stk_gdn_pre_args pre = {
      .qkv = row_at(l, l->qkv, l->position * channels(l)), .ab = l->ab + l->position * 2 * l->hv,
      .conv_w = l->conv_w, .a_log = l->a_log, .dt_bias = l->dt_bias, .history = l->history,
      .k_tail = l->k_tail, .qn = l->qn, .kn = l->kn, .vc = l->vc, .gb = l->gb, .kq = l->kq,
      .n_tokens = T, .pos0 = l->position, .k_heads = l->hk, .v_heads = l->hv, .k_dim = D,
      .v_dim = D, .n_taps = TAPS, .kinds = STK_GDN_ALL, .rows = (int32_t)l->rows};
  static const int32_t kinds[] = {STK_GDN_GATES, STK_GDN_VALUES, STK_GDN_KEYS};
  for (int i = 0; i < 3 && r->legacy; ++i) {
    pre.kinds = kinds[i];
    run_parts(r->pre, &pre, r->n_parts);
  }
  if (!r->legacy) run_parts(r->pre, &pre, r->n_parts);
  stk_gdn_scan_args scan = {.qn = l->qn, .kn = l->kn, .vc = l->vc, .gb = l->gb, .kq = l->kq,
                            .state = l->state, .o = l->o, .n_tokens = T, .pos0 = l->position,
                            .k_heads = l->hk, .v_heads = l->hv, .k_dim = D, .v_dim = D, .rows = (int32_t)l->rows};
  run_parts(T == 1 ? r->step : r->scan, &scan, r->n_parts);
  stk_gdn_post_args post = {.o = l->o, .z = row_at(l, l->z, l->position * l->hv * D),
                            .gain = l->gain, .y = l->y + (int64_t)l->position * l->hv * D,
                            .n_tokens = T, .v_heads = l->hv, .v_dim = D, .eps = 1e-6f,
                            .outputs = STK_POST_F32, .rows = (int32_t)l->rows};
  run_parts(r->post, &post, r->n_parts);
  l->position += T;
}

/* T tokens in windows of at most `window`; then a last one of `last`, if not 0. */
static void run_tokens(layer *l, int32_t T, int32_t window, int32_t last, const route *r) {
  int32_t end = l->position + T - last;
  while (l->position < end) run_window(l, end - l->position < window ? end - l->position : window, r);
  if (last) run_window(l, last, r);
}

/* What must be equal after the same tokens: outputs and state. */
static const char *differs(const layer *a, const layer *b) {
  const size_t hk = (size_t)a->hk, hv = (size_t)a->hv;
  const struct { const char *name; const float *x, *y; size_t n; } parts[] = {
      {"y", a->y, b->y, (size_t)a->position * hv * D},
      {"state", a->state, b->state, stk_gdn_state_floats(a->hv, D, D)},
      {"history", a->history, b->history, (TAPS - 1) * (size_t)channels(a)},
      {"k_tail", a->k_tail, b->k_tail, 2 * hk * D}};
  if (a->position != b->position) return "position";
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i)
    if (memcmp(parts[i].x, parts[i].y, parts[i].n * sizeof(float)) != 0) return parts[i].name;
  return NULL;
}

/* Sums of squares over elements of two sides. */
typedef struct distance {
  double error, size;
  bool finite_on_one_side;
} distance;

static void distance_add(distance *d, float want, float got) {
  if (isfinite(want) && isfinite(got)) {
    d->error += ((double)want - got) * ((double)want - got);
    d->size += (double)want * want;
  } else if (isfinite(want) || isfinite(got)) {
    d->finite_on_one_side = true;
  }
}

static bool within(const distance *d, double bound) {
  return !d->finite_on_one_side && d->error <= bound * bound * d->size;
}

/* The state of a head as it is meant. */
static void head_state(const layer *l, int32_t h, float state[D * D]) {
  float keys[2][D]; /* as of one key head */
  const size_t tail = (size_t)(h / (l->hv / l->hk)) * D;
  const float *tiles = l->state + (size_t)h * stk_gdn_state_floats(1, D, D);
  for (size_t e = 0; e < 2 * D; ++e)
    keys[e / D][e % D] = (float)lab_number_get(l->k_tail, l->rows, e / D * (size_t)l->hk * D + tail + e % D);
  for (int32_t e = 0; e < D * D; ++e)
    state[e] = stk_gdn_state_at(tiles, keys[0], l->position, 1, 1, D, D, 0, e / D, e % D);
}

/* As differs, where outputs and what the state means need only be near. */
static const char *differs_much(const layer *a, const layer *b, double bound) {
  distance y = {0}, state = {0};
  if (a->position != b->position) return "position";
  for (int64_t i = 0; i < (int64_t)a->position * a->hv * D; ++i) distance_add(&y, a->y[i], b->y[i]);
  for (int32_t h = 0; h < a->hv; ++h) {
    float want[D * D], got[D * D];
    head_state(a, h, want);
    head_state(b, h, got);
    for (int32_t e = 0; e < D * D; ++e) distance_add(&state, want[e], got[e]);
  }
  return !within(&y, bound) ? "y" : !within(&state, bound) ? "state" : NULL;
}

/* ---- the tests ----------------------------------------------------------------- */

typedef struct suite {
  lab_tally *tally;
  strata_error *err;
  route oracle, best;
} suite;

static void verdict(suite *s, const char *name, const char *buffer) {
  char detail[64];
  if (buffer) snprintf(detail, sizeof detail, "%s differs", buffer);
  lab_tally_add(s->tally, name, buffer ? detail : NULL);
}

/* Two layers of equal inputs, run by two functions of the caller's choice; fast: a
 * scan of that class ran one of them. */
typedef struct pair {
  layer want, got;
  bool fast;
} pair;

static bool is_fast(const route *r) { return r->scan->numerics == STK_FAST; }

static strata_status pair_new(pair *p, int32_t hk, int32_t hv, uint64_t seed, strata_error *err) {
  *p = (pair){0};
  ST_TRY(layer_new(&p->want, hk, hv, seed, err));
  strata_status status = layer_new(&p->got, hk, hv, seed, err);
  if (status != STRATA_OK) layer_free(&p->want);
  return status;
}

static void pair_end(suite *s, pair *p, const char *name) {
  verdict(s, name,
          p->fast ? differs_much(&p->want, &p->got, stk_gdn_scan_op.fast_bound) : differs(&p->want, &p->got));
  layer_free(&p->want);
  layer_free(&p->got);
}

static strata_status test_heads(suite *s) {
  static const int32_t heads[][2] = {{1, 1}, {2, 6}, {3, 9}, {16, 16}, {16, 32}, {16, 48}, {16, 64}};
  for (size_t i = 0; i < sizeof heads / sizeof *heads; ++i) {
    char name[64];
    pair p;
    snprintf(name, sizeof name, "heads %d/%d, best = oracle", heads[i][0], heads[i][1]);
    ST_TRY(pair_new(&p, heads[i][0], heads[i][1], 11 + i, s->err));
    run_tokens(&p.want, 5, 5, 0, &s->oracle);
    run_tokens(&p.got, 5, 5, 0, &s->best);
    pair_end(s, &p, name);
  }
  return STRATA_OK;
}

static strata_status test_scan_variants(suite *s) {
  static const int32_t lengths[] = {1, 3, 37, 64, 65, 300};
  const stk_kernel *kernel;
  for (int32_t v = 0; (kernel = st_kreg_variant(ST_OP_gdn_scan, v)); ++v) {
    if (!st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa))) continue;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
      char name[80];
      pair p;
      route with = s->best;
      with.scan = with.step = kernel;
      snprintf(name, sizeof name, "scan %s %s step, T %d", kernel->variant,
               is_fast(&with) ? "near" : "=", lengths[i]);
      ST_TRY(pair_new(&p, 1, 3, 5 + i, s->err));
      p.fast = is_fast(&with);
      run_tokens(&p.want, lengths[i], 1, 0, &s->best);
      run_tokens(&p.got, lengths[i], T_MAX, 0, &with);
      pair_end(s, &p, name);
    }
  }
  return STRATA_OK;
}

/* Rows of f16: best and legacy are the oracle, variants are the step or near it, however
 * the tokens are cut. */
static strata_status test_halves(suite *s) {
  static const struct { const char *name; int32_t window, last; } cuts[] = {
      {"one window", T_MAX, 0}, {"windows of 1", 1, 0}, {"windows of 37", 37, 0}, {"windows 299 + 1", T_MAX, 1}};
  route legacy = s->best;
  legacy.legacy = true;
  const stk_kernel *kernel;
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; ++i) {
    char name[64];
    pair p;
    snprintf(name, sizeof name, "f16 rows, %s%s = oracle", cuts[i].name, i % 2 ? ", pre legacy" : "");
    ST_TRY(pair_new(&p, 2, 6, 61 + i, s->err));
    use_halves(&p.want);
    use_halves(&p.got);
    run_tokens(&p.want, T_MAX, T_MAX, 0, &s->oracle);
    run_tokens(&p.got, T_MAX, cuts[i].window, cuts[i].last, i % 2 ? &legacy : &s->best);
    pair_end(s, &p, name);
  }
  for (int32_t v = 0; (kernel = st_kreg_variant(ST_OP_gdn_scan, v)); ++v) {
    char name[80];
    pair p;
    if (!st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa))) continue;
    route with = s->best;
    with.scan = with.step = kernel;
    snprintf(name, sizeof name, "f16 rows, scan %s %s step", kernel->variant, is_fast(&with) ? "near" : "=");
    ST_TRY(pair_new(&p, 1, 3, 71, s->err));
    use_halves(&p.want);
    use_halves(&p.got);
    p.fast = is_fast(&with);
    run_tokens(&p.want, 131, 1, 0, &s->best);
    run_tokens(&p.got, 131, 66, 0, &with);
    pair_end(s, &p, name);
  }
  /* z, the raw rows, keys, queries, values and outputs are rounded, each to 2^-11 at most. */
  pair p;
  ST_TRY(pair_new(&p, 2, 6, 81, s->err));
  use_halves(&p.got);
  run_tokens(&p.want, T_MAX, T_MAX, 0, &s->best);
  run_tokens(&p.got, T_MAX, T_MAX, 0, &s->best);
  verdict(s, "f16 rows are within 5e-4 of f32 rows", differs_much(&p.want, &p.got, 5e-4));
  layer_free(&p.want);
  layer_free(&p.got);
  return STRATA_OK;
}

static strata_status test_windows(suite *s) {
  static const struct { const char *name; int32_t window, last; } cuts[] = {
      {"windows of 1", 1, 0}, {"windows of 2", 2, 0}, {"windows of 3", 3, 0},
      {"windows of 37", 37, 0}, {"windows 299 + 1", T_MAX, 1}, {"windows 298 + 2", T_MAX, 2}};
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; ++i) {
    pair p;
    ST_TRY(pair_new(&p, 2, 6, 3, s->err));
    run_tokens(&p.want, T_MAX, T_MAX, 0, &s->best);
    run_tokens(&p.got, T_MAX, cuts[i].window, cuts[i].last, &s->best);
    pair_end(s, &p, cuts[i].name);
  }
  return STRATA_OK;
}

static strata_status test_parts(suite *s) {
  static const int32_t parts[] = {2, 3, 7, 16};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
    char name[64];
    pair p;
    route with = s->best;
    with.n_parts = parts[i];
    snprintf(name, sizeof name, "%d parts = one", parts[i]);
    ST_TRY(pair_new(&p, 3, 9, 4, s->err));
    run_tokens(&p.want, 40, 40, 0, &s->best);
    run_tokens(&p.got, 40, 17, 0, &with);
    pair_end(s, &p, name);
  }
  return STRATA_OK;
}

static strata_status test_packed(suite *s) {
  static const int32_t lengths[] = {1, 2, 3, 37, 300};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    char name[64];
    pair p;
    route legacy = s->best;
    legacy.legacy = true;
    snprintf(name, sizeof name, "pre packed = legacy, T %d", lengths[i]);
    ST_TRY(pair_new(&p, 2, 6, 7 + i, s->err));
    run_tokens(&p.want, lengths[i], T_MAX, 0, &s->best);
    run_tokens(&p.got, lengths[i], T_MAX, 0, &legacy);
    pair_end(s, &p, name);
  }
  return STRATA_OK;
}

/* After one and two tokens the history still holds older rows. */
static strata_status test_history(suite *s) {
  for (int32_t T = 1; T <= 2; ++T) {
    char name[64];
    layer l;
    ST_TRY(layer_new(&l, 2, 6, 9, s->err));
    const size_t row = (size_t)channels(&l);
    run_tokens(&l, 5, 5, 0, &s->best);
    run_tokens(&l, T, T, 0, &s->best);
    bool equal = memcmp(l.history, l.qkv + (size_t)(2 + T) * row, 3 * row * sizeof(float)) == 0;
    snprintf(name, sizeof name, "history after T %d holds the last three rows", T);
    verdict(s, name, equal ? NULL : "history");
    layer_free(&l);
  }
  return STRATA_OK;
}

static void large_values(layer *l) {
  for (size_t t = 0; t < T_MAX; ++t)
    for (int32_t c = 2 * l->hk * D; c < channels(l); ++c) l->qkv[t * (size_t)channels(l) + (size_t)c] *= 1e4f;
}

/* Log decays down to -20. */
static void strong_decay(layer *l) {
  for (int32_t h = 0; h < l->hv; ++h) {
    l->a_log[h] = 0.0f;
    l->dt_bias[h] = h % 2 ? 16.0f : 4.0f;
  }
}

/* Decays that underflow to nothing. */
static void vanishing_decay(layer *l) {
  for (int32_t h = 0; h < l->hv; ++h) {
    l->a_log[h] = h % 2 ? 5.0f : -3.0f;
    l->dt_bias[h] = 19.0f;
  }
}

static void zero_keys(layer *l) {
  for (size_t t = 0; t < T_MAX; ++t)
    memset(l->qkv + t * (size_t)channels(l), 0, 2 * (size_t)l->hk * D * sizeof(float));
}

/* Changes both layers' inputs in the same way, then compares with the oracle. */
static strata_status test_values(suite *s, const char *who, const route *with) {
  static const struct { const char *name; void (*change)(layer *); } changes[] = {
      {"values times 1e4", large_values}, {"log decay down to -20", strong_decay},
      {"decay that vanishes", vanishing_decay}, {"keys of zero", zero_keys}};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; ++i) {
    char name[80];
    pair p;
    ST_TRY(pair_new(&p, 2, 6, 21, s->err));
    p.fast = is_fast(with);
    changes[i].change(&p.want);
    changes[i].change(&p.got);
    run_tokens(&p.want, 140, 140, 0, &s->oracle);
    run_tokens(&p.got, 140, 69, 0, with);
    snprintf(name, sizeof name, "%s%s", who, changes[i].name);
    pair_end(s, &p, name);
  }
  return STRATA_OK;
}

/* One NaN in value head 4: the other heads, and the tokens before it, give what they
 * gave without it. */
static strata_status test_nan(suite *s, const char *who, const route *with) {
  enum { HEAD = 4, HV = 6, T = 40, AT = 3 };
  pair p;
  const char *wrong = NULL;
  char name[80];
  ST_TRY(pair_new(&p, 2, HV, 23, s->err));
  p.got.qkv[AT * (size_t)channels(&p.got) + (size_t)((2 * 2 + HEAD) * D + 5)] = NAN;
  run_tokens(&p.want, T, T, 0, with);
  run_tokens(&p.got, T, T, 0, with);
  const size_t head_floats = stk_gdn_state_floats(HV, D, D) / HV;
  for (int32_t h = 0; h < HV; ++h) {
    const size_t head = (size_t)h * head_floats;
    bool equal = memcmp(p.want.state + head, p.got.state + head, head_floats * sizeof(float)) == 0;
    for (int32_t t = 0; t < T; ++t) {
      const int32_t row = (t * HV + h) * D;
      bool same = memcmp(p.want.y + row, p.got.y + row, D * sizeof(float)) == 0;
      if (!same && t < AT) wrong = "a token before";
      equal &= same;
    }
    if (equal == (h == HEAD)) wrong = h == HEAD ? "nothing (the NaN was lost), y" : "another head";
  }
  snprintf(name, sizeof name, "%sa NaN stays in its head", who);
  verdict(s, name, wrong);
  layer_free(&p.want);
  layer_free(&p.got);
  return STRATA_OK;
}

/* What lies behind the window must not be looked at, nor what outputs held. */
static strata_status test_padding(suite *s) {
  static const struct { const char *name; float value; } pads[] = {
      {"NaN behind the window", NAN}, {"1e30 behind the window", 1e30f}};
  for (size_t i = 0; i < 2; ++i) {
    pair p;
    const int32_t T = 13;
    ST_TRY(pair_new(&p, 2, 6, 31, s->err));
    for (size_t e = (size_t)T * (size_t)channels(&p.got); e < (size_t)T_MAX * (size_t)channels(&p.got); ++e)
      p.got.qkv[e] = pads[i].value;
    for (float *x = p.got.qn; x < p.got.y; ++x) *x = pads[i].value;
    run_tokens(&p.want, T, T, 0, &s->best);
    run_tokens(&p.got, T, T, 0, &s->best);
    pair_end(s, &p, pads[i].name);
  }
  pair p;
  ST_TRY(pair_new(&p, 2, 6, 33, s->err));
  memset(p.want.qn, 0xa5, (size_t)(p.want.y - p.want.qn) * sizeof(float));
  memset(p.got.qn, 0x5a, (size_t)(p.got.y - p.got.qn) * sizeof(float));
  run_tokens(&p.want, 30, 30, 0, &s->best);
  run_tokens(&p.got, 30, 30, 0, &s->best);
  pair_end(s, &p, "buffers of 0xa5 = buffers of 0x5a");
  return STRATA_OK;
}

/* The state read after windows of different sizes, then gone on with. */
static strata_status test_second_window(suite *s) {
  pair p;
  ST_TRY(pair_new(&p, 2, 6, 41, s->err));
  run_tokens(&p.want, 21, 21, 0, &s->oracle);
  run_tokens(&p.want, 16, 16, 0, &s->oracle);
  run_tokens(&p.got, 21, 4, 0, &s->best);
  run_tokens(&p.got, 16, 16, 0, &s->best);
  pair_end(s, &p, "a second window from a state that is not zero");
  return STRATA_OK;
}

static void test_refused(suite *s) {
  static const struct { const char *name; stk_gdn_scan_args args; } bad[] = {
      {"refused: value heads 5 of key heads 2", {.n_tokens = 1, .k_heads = 2, .v_heads = 5, .k_dim = D, .v_dim = D}},
      {"refused: head of 48", {.n_tokens = 1, .k_heads = 1, .v_heads = 1, .k_dim = 48, .v_dim = D}},
      {"refused: rows of i32", {.n_tokens = 1, .k_heads = 1, .v_heads = 1, .k_dim = D, .v_dim = D, .rows = STK_I32}},
      {"refused: key head of 544", {.n_tokens = 1, .k_heads = 1, .v_heads = 1, .k_dim = 544, .v_dim = D}},
      {"refused: no tokens", {.n_tokens = 0, .k_heads = 1, .v_heads = 1, .k_dim = D, .v_dim = D}},
      {"refused: position past 2^31", {.n_tokens = 9, .pos0 = INT32_MAX - 3, .k_heads = 1, .v_heads = 1, .k_dim = D, .v_dim = D}}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i)
    lab_tally_add(s->tally, bad[i].name, stk_gdn_scan_op.check(&bad[i].args) ? NULL : "it was accepted");
  lab_tally_add(s->tally, "refused: a step of two tokens",
                stk_gdn_step_op.check(&(stk_gdn_step_args){.n_tokens = 2, .k_heads = 1, .v_heads = 1, .k_dim = D, .v_dim = D})
                    ? NULL : "it was accepted");
}

/* The recurrence as it is written in the paper, in double precision, from the
 * kernels' own qn, kn, vc, gb. */
static strata_status test_double(suite *s, const char *who, const route *with) {
  enum { T = 200 };
  static double state[D][D];
  layer l;
  double difference = 0, size = 0;
  ST_TRY(layer_new(&l, 1, 1, 51, s->err));
  run_tokens(&l, T, T, 0, with);
  memset(state, 0, sizeof state);
  for (int t = 0; t < T; ++t) {
    const float *k = l.kn + (t + 2) * D, *q = l.qn + t * D, *v = l.vc + t * D;
    for (int j = 0; j < D; ++j) {
      double dot = 0, o = 0;
      for (int i = 0; i < D; ++i) dot += (state[i][j] *= (double)l.gb[2 * t]) * (double)k[i];
      for (int i = 0; i < D; ++i) {
        state[i][j] += (double)k[i] * (double)l.gb[2 * t + 1] * ((double)v[j] - dot);
        o += state[i][j] * (double)q[i];
      }
      difference += (o - (double)l.o[t * D + j]) * (o - (double)l.o[t * D + j]);
      size += o * o;
    }
  }
  char detail[80], name[80];
  double rel_l2 = sqrt(difference / size);
  snprintf(name, sizeof name, "%so is within 1e-6 of double precision", who);
  snprintf(detail, sizeof detail, "relative L2 %.2e, at most 1e-6 expected", rel_l2);
  lab_tally_add(s->tally, name, rel_l2 <= 1e-6 ? NULL : detail);
  layer_free(&l);
  return STRATA_OK;
}

/* A fast scan and the exact ones take over from each other, at even and odd positions. */
static strata_status test_relay(suite *s, const char *who, const route *with) {
  static const int32_t relays[][4] = {{64, 37, 64, 37}, {37, 64, 1, 65}, {21, 1, 1, 2}};
  for (int first = 0; first < 2; ++first)
    for (size_t i = 0; i < sizeof relays / sizeof *relays; ++i) {
      const int32_t *lengths = relays[i];
      char name[80];
      pair p;
      ST_TRY(pair_new(&p, 2, 6, 43 + i, s->err));
      p.fast = true;
      for (int leg = 0; leg < 4; ++leg) {
        run_tokens(&p.want, lengths[leg], T_MAX, 0, &s->best);
        run_tokens(&p.got, lengths[leg], T_MAX, 0, leg % 2 == first ? with : &s->best);
      }
      snprintf(name, sizeof name, "%s%s, windows of %d, %d, %d and %d", who,
               first ? "after an exact scan" : "before an exact scan", lengths[0], lengths[1],
               lengths[2], lengths[3]);
      pair_end(s, &p, name);
    }
  return STRATA_OK;
}

/* What must hold of a fast scan besides its distance at one window. The f32 ones are as
 * near to double precision as the exact. */
static strata_status test_fast(suite *s, const stk_kernel *kernel) {
  char who[32];
  route with = s->best;
  with.scan = with.step = kernel;
  snprintf(who, sizeof who, "%s: ", kernel->variant);
  ST_TRY(test_relay(s, who, &with));
  ST_TRY(test_values(s, who, &with));
  ST_TRY(test_nan(s, who, &with));
  return test_double(s, who, &with);
}

strata_status lab_check_gdn(lab_tally *tally, strata_error *err) {
  st_kernel_set best;
  st_kernel_set_choose(&best, st_cpu_best());
  suite s = {.tally = tally, .err = err,
             .oracle = {stk_gdn_pre_op.oracle, stk_gdn_scan_op.oracle, stk_gdn_step_op.oracle,
                        stk_gdn_post_op.oracle, 1, false},
             .best = {best.kernel[ST_OP_gdn_pre], best.kernel[ST_OP_gdn_scan],
                      best.kernel[ST_OP_gdn_step], best.kernel[ST_OP_gdn_post], 1, false}};
  ST_TRY(test_heads(&s));
  ST_TRY(test_packed(&s));
  ST_TRY(test_scan_variants(&s));
  ST_TRY(test_halves(&s));
  ST_TRY(test_windows(&s));
  ST_TRY(test_parts(&s));
  ST_TRY(test_history(&s));
  ST_TRY(test_second_window(&s));
  ST_TRY(test_values(&s, "", &s.best));
  ST_TRY(test_nan(&s, "", &s.best));
  ST_TRY(test_padding(&s));
  test_refused(&s);
  ST_TRY(test_double(&s, "", &s.best));
  const stk_kernel *kernel;
  for (int32_t i = 0; (kernel = st_kreg_variant(ST_OP_gdn_scan, i)); ++i)
    if (kernel->numerics == STK_FAST && st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa)))
      ST_TRY(test_fast(&s, kernel));
  return STRATA_OK;
}
