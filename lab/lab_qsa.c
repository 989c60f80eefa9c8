/* Sparse attention as a whole: prep, scores, selection, then one of three routes,
 * over windows, kinds of cache, variants and hostile values. Every test compares
 * bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "kreg/st_kreg.h"
#include "lab/lab_case.h"
#include "lab/lab_check.h"
#include "lab/lab_topk.h"
#include "qsa_decode/qsa_decode.h"
#include "qsa_flash/qsa_flash.h"
#include "qsa_merge/qsa_merge.h"
#include "qsa_prep/qsa_prep.h"
#include "qsa_score/qsa_score.h"
#include "qsa_topk/qsa_topk.h"

/* Small heads, so that long sequences stay cheap; the released budget. */
enum {
  HQ = 6, HKV = 2, D = 128, HI = 2, DI = 64, RATIO = 4, BUDGET = 2048, PAIRS = 16,
  IDS = BUDGET + RATIO - 1, T_MAX = 96
};

static const char *const kv_names[] = {"f32", "f16", "q8"};

typedef enum route { ROUTE_PLAIN, ROUTE_FLASH, ROUTE_DECODE } route;

/* Kernels for a window. */
typedef struct kernels {
  const stk_kernel *prep, *score, *topk, *attn, *flash, *decode, *merge;
  int32_t n_parts;
} kernels;

/* One layer: a sequence that grows, its caches, and the last window's buffers. The
 * projections of a position depend on the position and the seed only. */
typedef struct layer {
  int32_t kv, position, capacity;
  uint8_t *memory; /* everything below */
  size_t n_bytes;
  float *q_raw, *k_raw, *v_raw, *index_raw, *gain, *angles, *block_angles;
  float *q, *iq, *open_keys, *score, *out, *partial;
  int32_t *ids, *n_ids;
  uint8_t *kv_block, *block_block;
  uint8_t **kv_pages, **block_pages;
  size_t kv_bytes, block_bytes;
} layer;

/* ---- memory ---------------------------------------------------------------------- */

static void *take(const layer *l, size_t *used, size_t n, size_t elem) {
  void *p = l->memory ? l->memory + *used : NULL;
  *used += (n * elem + 63) & ~(size_t)63;
  return p;
}

static size_t lay_out(layer *l) {
  const stk_cache kv = {.kind = l->kv, .n_planes = 2 * HKV, .dim = D};
  const stk_cache blocks = {.kind = STK_KV_F32, .n_planes = 1, .dim = DI};
  const size_t T = T_MAX, kv_pages = (size_t)stk_cache_pages(l->capacity);
  const size_t block_pages = (size_t)stk_cache_pages(l->capacity / RATIO);
  size_t used = 0;
  l->q_raw = take(l, &used, T * HQ * 2 * D, 4);
  l->k_raw = take(l, &used, T * HKV * D, 4);
  l->v_raw = take(l, &used, T * HKV * D, 4);
  l->index_raw = take(l, &used, T * (HI + 1) * DI, 4);
  l->gain = take(l, &used, D, 4);
  l->angles = take(l, &used, T * 2 * PAIRS, 4);
  l->block_angles = take(l, &used, (T / RATIO + 1) * 2 * PAIRS, 4);
  l->q = take(l, &used, T * HQ * D, 4);
  l->iq = take(l, &used, T * HI * DI, 4);
  l->open_keys = take(l, &used, RATIO * DI, 4);
  l->score = take(l, &used, T * (size_t)(l->capacity / RATIO), 4);
  l->out = take(l, &used, T * HQ * D, 4);
  l->partial = take(l, &used, T * HQ * (D + 2) * (size_t)stk_qsa_splits_max(BUDGET, RATIO), 4);
  l->ids = take(l, &used, T * IDS, 4);
  l->n_ids = take(l, &used, T, 4);
  l->kv_bytes = kv_pages * stk_cache_page_bytes(&kv);
  l->block_bytes = block_pages * stk_cache_page_bytes(&blocks);
  l->kv_block = take(l, &used, l->kv_bytes, 1);
  l->block_block = take(l, &used, l->block_bytes, 1);
  l->kv_pages = take(l, &used, kv_pages, sizeof(uint8_t *));
  l->block_pages = take(l, &used, block_pages, sizeof(uint8_t *));
  return used;
}

static strata_status layer_new(layer *l, int32_t kv, int32_t capacity, strata_error *err) {
  void *memory;
  *l = (layer){.kv = kv, .capacity = capacity};
  l->n_bytes = lay_out(l);
  ST_TRY(st_calloc_aligned(&memory, l->n_bytes, 1, "a layer", err));
  l->memory = memory;
  lay_out(l);
  const stk_cache kv_cache = {l->kv_pages, kv, 2 * HKV, D}, blocks = {l->block_pages, STK_KV_F32, 1, DI};
  stk_cache_fill_table(&kv_cache, capacity, l->kv_block);
  stk_cache_fill_table(&blocks, capacity / RATIO, l->block_block);
  for (int i = 0; i < D; ++i) l->gain[i] = 0.5f + (float)i / D;
  return STRATA_OK;
}

static void layer_free(layer *l) {
  st_free(l->memory);
  *l = (layer){0};
}

/* ---- a window --------------------------------------------------------------------- */

static void fill_at(float *x, size_t n, uint64_t what, int64_t position, double size) {
  uint64_t random = what * 1000003u + (uint64_t)position * 7919u;
  for (size_t i = 0; i < n; ++i)
    x[i] = (float)(((double)(lab_random(&random) >> 11) / 9007199254740992.0 - 0.5) * 2 * size);
}

static void fill_window(layer *l, int32_t T) {
  const int32_t first = l->position / RATIO, last = (l->position + T) / RATIO;
  for (int64_t t = 0; t < T; ++t) {
    const int64_t pos = l->position + t;
    fill_at(l->q_raw + t * HQ * 2 * D, HQ * 2 * D, 1, pos, 3);
    fill_at(l->k_raw + t * HKV * D, HKV * D, 2, pos, 3);
    fill_at(l->v_raw + t * HKV * D, HKV * D, 3, pos, 3);
    fill_at(l->index_raw + t * (HI + 1) * DI, (HI + 1) * DI, 4, pos, 3);
    fill_at(l->angles + t * PAIRS, PAIRS, 5, pos, 1);
    fill_at(l->angles + (T_MAX + t) * PAIRS, PAIRS, 6, pos, 1);
  }
  for (int64_t b = first; b < last; ++b) {
    fill_at(l->block_angles + (b - first) * PAIRS, PAIRS, 5, b * RATIO, 1);
    fill_at(l->block_angles + (T_MAX / RATIO + 1 + b - first) * PAIRS, PAIRS, 6, b * RATIO, 1);
  }
}

static void run_parts(const stk_kernel *kernel, const void *args, int32_t n_parts) {
  for (int32_t part = 0; part < n_parts; ++part) kernel->run(args, part, n_parts);
}

static void run_prep(layer *l, int32_t T, const kernels *k, int32_t kinds) {
  const stk_qsa_prep_args args = {
      .q_raw = l->q_raw, .k_raw = l->k_raw, .v_raw = l->v_raw, .index_raw = l->index_raw,
      .q_gain = l->gain, .k_gain = l->gain, .iq_gain = l->gain, .ik_gain = l->gain,
      .cos = l->angles, .sin = l->angles + T_MAX * PAIRS, .block_cos = l->block_angles,
      .block_sin = l->block_angles + (T_MAX / RATIO + 1) * PAIRS, .q = l->q, .iq = l->iq,
      .open_keys = l->open_keys, .kv_pages = l->kv_pages, .block_pages = l->block_pages,
      .n_tokens = T, .pos0 = l->position, .q_heads = HQ, .kv_heads = HKV, .head_dim = D,
      .idx_heads = HI, .idx_dim = DI, .ratio = RATIO, .n_pairs = PAIRS, .kv_kind = l->kv,
      .kinds = kinds, .eps = 1e-6f};
  run_parts(k->prep, &args, k->n_parts);
}

/* Scores and selection; list_all is the plain route's. Ids and counts are poisoned
 * first, so that a route which reads what it should derive is noticed. */
static void run_select(layer *l, int32_t T, const kernels *k, int32_t list_all) {
  const stk_qsa_score_args score = {
      .iq = l->iq, .block_pages = l->block_pages, .score = l->score,
      .score_stride = l->capacity / RATIO, .n_tokens = T, .pos0 = l->position, .idx_heads = HI,
      .idx_dim = DI, .ratio = RATIO, .budget = BUDGET};
  const stk_qsa_topk_args topk = {
      .score = l->score, .ids = l->ids, .n_ids = l->n_ids, .score_stride = l->capacity / RATIO,
      .ids_stride = IDS, .n_tokens = T, .pos0 = l->position, .ratio = RATIO, .budget = BUDGET,
      .list_all = list_all};
  memset(l->ids, 0xff, (size_t)T_MAX * IDS * sizeof *l->ids);
  memset(l->n_ids, 0xff, (size_t)T_MAX * sizeof *l->n_ids);
  run_parts(k->score, &score, k->n_parts);
  run_parts(k->topk, &topk, k->n_parts);
}

static stk_qsa_attn_args attn_args(const layer *l, int32_t T) {
  return (stk_qsa_attn_args){
      .q = l->q, .q_raw = l->q_raw, .kv_pages = l->kv_pages, .ids = l->ids, .n_ids = l->n_ids,
      .out = l->out, .partial = l->partial, .ids_stride = IDS, .n_tokens = T,
      .pos0 = l->position, .q_heads = HQ, .kv_heads = HKV, .head_dim = D, .budget = BUDGET,
      .ratio = RATIO, .kv_kind = l->kv, .outputs = STK_ATTN_F32};
}

static void run_attention(layer *l, int32_t T, const kernels *k, route r) {
  const stk_qsa_attn_args args = attn_args(l, T);
  if (r == ROUTE_PLAIN) run_parts(k->attn, &args, k->n_parts);
  if (r == ROUTE_FLASH) run_parts(k->flash, &args, k->n_parts);
  if (r != ROUTE_DECODE) return;
  run_parts(k->decode, &args, k->n_parts);
  run_parts(k->merge, &args, k->n_parts);
}

static void run_window(layer *l, int32_t T, const kernels *k, route r) {
  fill_window(l, T);
  run_prep(l, T, k, STK_QSA_ALL);
  run_select(l, T, k, r == ROUTE_PLAIN);
  run_attention(l, T, k, r);
  l->position += T;
}

/* Brings a layer to a position without attention. */
static void advance(layer *l, int32_t position, const kernels *k) {
  while (l->position < position) {
    int32_t T = position - l->position < T_MAX ? position - l->position : T_MAX;
    fill_window(l, T);
    run_prep(l, T, k, STK_QSA_ALL);
    l->position += T;
  }
}

/* ---- comparing ---------------------------------------------------------------------- */

typedef struct suite {
  lab_tally *tally;
  strata_error *err;
  kernels oracle, best;
} suite;

static void report(suite *s, const char *name, bool same, const char *what) {
  lab_tally_add(s->tally, name, same ? NULL : what);
}

static bool same_caches(const layer *a, const layer *b) {
  return memcmp(a->kv_block, b->kv_block, a->kv_bytes) == 0 &&
         memcmp(a->block_block, b->block_block, a->block_bytes) == 0 &&
         memcmp(a->open_keys, b->open_keys, RATIO * DI * sizeof(float)) == 0;
}

static bool same_rows(const float *a, const float *b, int32_t T, size_t row) {
  return memcmp(a, b, (size_t)T * row * sizeof(float)) == 0;
}

/* ---- prep --------------------------------------------------------------------------- */

/* One call for all kinds of work, and a call for each, in another order. */
static strata_status test_fused(suite *s) {
  static const int32_t orders[] = {STK_QSA_BLOCKS, STK_QSA_INDEX, STK_QSA_KV, STK_QSA_QUERIES};
  for (int32_t kv = 0; kv < STK_KV_KINDS; ++kv) {
    char name[80];
    layer fused, apart;
    bool same = true;
    ST_TRY(layer_new(&fused, kv, 600, s->err));
    ST_TRY(layer_new(&apart, kv, 600, s->err));
    for (int32_t T = 1; fused.position + T <= 600; T = T * 3 % 89 + 1) {
      fill_window(&fused, T);
      fill_window(&apart, T);
      run_prep(&fused, T, &s->best, STK_QSA_ALL);
      for (int i = 0; i < 4; ++i) run_prep(&apart, T, &s->best, orders[i]);
      same = same && same_rows(fused.q, apart.q, T, HQ * D) && same_rows(fused.iq, apart.iq, T, HI * DI);
      fused.position += T;
      apart.position += T;
    }
    snprintf(name, sizeof name, "prep: fused = unfused, %s", kv_names[kv]);
    report(s, name, same && same_caches(&fused, &apart), "the bytes differ");
    layer_free(&fused);
    layer_free(&apart);
  }
  return STRATA_OK;
}

/* The caches do not know how the sequence was cut. */
static strata_status test_cache_windows(suite *s) {
  enum { N = 545 };
  for (int32_t kv = 0; kv < STK_KV_KINDS; ++kv) {
    char name[80];
    layer whole, cut;
    ST_TRY(layer_new(&whole, kv, N, s->err));
    advance(&whole, N, &s->best);
    for (int32_t step = 1; step <= 37; step += 12) {
      ST_TRY(layer_new(&cut, kv, N, s->err));
      while (cut.position < N)
        advance(&cut, cut.position + step < N ? cut.position + step : N, &s->best);
      snprintf(name, sizeof name, "prep: windows of %d = windows of 96, %s", step, kv_names[kv]);
      report(s, name, same_caches(&whole, &cut), "the caches differ");
      layer_free(&cut);
    }
    layer_free(&whole);
  }
  return STRATA_OK;
}

/* ---- selection ------------------------------------------------------------------------ */

typedef struct ranked {
  float score;
  int32_t block;
} ranked;

/* Numbers first, the higher score first, then the lower block. */
static int compare_ranked(const void *x, const void *y) {
  const ranked *a = x, *b = y;
  int nan_a = isnan(a->score), nan_b = isnan(b->score);
  if (nan_a != nan_b) return nan_a - nan_b;
  if (!nan_a && a->score != b->score) return a->score > b->score ? -1 : 1;
  return a->block - b->block;
}

static int compare_ints(const void *x, const void *y) { return *(const int32_t *)x - *(const int32_t *)y; }

/* The blocks that a sort would select, ascending. */
static void sort_select(const float *score, int32_t n, ranked *order, int32_t *blocks) {
  for (int32_t b = 0; b < n; ++b) order[b] = (ranked){score[b], b};
  qsort(order, (size_t)n, sizeof *order, compare_ranked);
  for (int32_t i = 0; i < BUDGET / RATIO; ++i) blocks[i] = order[i].block;
  qsort(blocks, BUDGET / RATIO, sizeof *blocks, compare_ints);
}

/* One case of one variant against the sort. */
static bool topk_is_right(const stk_kernel *kernel, const float *score, int32_t n_cells, ranked *order,
                          int32_t *ids) {
  int32_t blocks[BUDGET / RATIO], n_ids = 0;
  const int32_t n = n_cells / RATIO, want = BUDGET + n_cells % RATIO;
  const stk_qsa_topk_args args = {.score = score, .ids = ids, .n_ids = &n_ids, .score_stride = n,
                                  .ids_stride = IDS, .n_tokens = 1, .pos0 = n_cells - 1,
                                  .ratio = RATIO, .budget = BUDGET};
  bool has_nan = false;
  for (int32_t b = 0; b < n; ++b) has_nan |= isnan(score[b]);
  sort_select(score, n, order, blocks);
  kernel->run(&args, 0, 1);
  if (n_ids != (has_nan ? -want : want)) return false;
  for (int32_t i = 0; i < BUDGET; ++i)
    if (ids[i] != blocks[i / RATIO] * RATIO + i % RATIO) return false;
  for (int32_t i = 0; i < n_cells % RATIO; ++i)
    if (ids[BUDGET + i] != n * RATIO + i) return false;
  return true;
}

static strata_status test_topk(suite *s) {
  static const int32_t lengths[] = {BUDGET + RATIO, 8191, 262144, 400001};
  enum { N_MAX = 400001 / RATIO };
  void *score, *order, *ids;
  ST_TRY(st_calloc(&score, N_MAX, sizeof(float), "scores", s->err));
  ST_TRY(st_calloc(&order, N_MAX, sizeof(ranked), "scores", s->err));
  ST_TRY(st_calloc(&ids, IDS, sizeof(int32_t), "scores", s->err));
  for (int32_t c = 0; c < LAB_TOPK_FILLS; ++c) {
    uint64_t random = 77 + (uint64_t)c;
    char name[80];
    bool same = true;
    const stk_kernel *kernel;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
      lab_topk_fill(c, score, lengths[i] / RATIO, &random);
      for (int32_t v = 0; (kernel = st_kreg_variant(ST_OP_qsa_topk, v)); ++v)
        if (st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa)))
          same = same && topk_is_right(kernel, score, lengths[i], order, ids);
    }
    snprintf(name, sizeof name, "top-k: %s, up to 100000 blocks", lab_topk_fill_name(c));
    report(s, name, same, "not what a sort selects");
  }
  st_free(score);
  st_free(order);
  st_free(ids);
  return STRATA_OK;
}

/* 2048 to 2052 visible cells: four dense queries, then one that loses a block. */
static strata_status test_counts(suite *s) {
  static const int32_t want[] = {2048, 2049, 2050, 2051, 2048};
  layer l;
  bool same = true, untouched = true;
  ST_TRY(layer_new(&l, STK_KV_Q8, 2100, s->err));
  advance(&l, 2047, &s->best);
  fill_window(&l, 5);
  run_prep(&l, 5, &s->best, STK_QSA_ALL);
  run_select(&l, 5, &s->best, 1);
  for (int t = 0; t < 5; ++t) same = same && l.n_ids[t] == want[t];
  run_select(&l, 5, &s->best, 0);
  for (int t = 0; t < 4; ++t) untouched = untouched && l.n_ids[t] == -1 && l.ids[t * IDS] == -1;
  report(s, "lists of 2048 to 2052 cells have 2048, 2049, 2050, 2051, 2048", same, "other lengths");
  report(s, "lists within the budget are not written", untouched && l.n_ids[4] == 2048, "they are");
  layer_free(&l);
  return STRATA_OK;
}

/* ---- routes --------------------------------------------------------------------------- */

/* A window at a position by the plain route, by flash with poisoned lists, and token
 * by token by decode: equal bytes. */
static strata_status check_routes(suite *s, int32_t kv, int32_t at, int32_t T) {
  char name[96];
  layer plain, flash, decode;
  bool same = true;
  ST_TRY(layer_new(&plain, kv, at + T, s->err));
  ST_TRY(layer_new(&flash, kv, at + T, s->err));
  ST_TRY(layer_new(&decode, kv, at + T, s->err));
  advance(&plain, at, &s->best);
  advance(&flash, at, &s->best);
  advance(&decode, at, &s->best);
  run_window(&plain, T, &s->best, ROUTE_PLAIN);
  run_window(&flash, T, &s->best, ROUTE_FLASH);
  snprintf(name, sizeof name, "flash = scalar, %d tokens at %d, %s", T, at, kv_names[kv]);
  report(s, name, same_rows(plain.out, flash.out, T, HQ * D), "the outputs differ");
  for (int32_t t = 0; t < T; ++t) {
    run_window(&decode, 1, &s->best, ROUTE_DECODE);
    same = same && same_rows(flash.out + (size_t)t * HQ * D, decode.out, 1, HQ * D);
  }
  snprintf(name, sizeof name, "decode = flash, %d tokens at %d, %s", T, at, kv_names[kv]);
  report(s, name, same && same_caches(&flash, &decode), "the bytes differ");
  layer_free(&plain);
  layer_free(&flash);
  layer_free(&decode);
  return STRATA_OK;
}

static strata_status test_routes(suite *s) {
  static const struct {
    int32_t at, T;
  } places[] = {{0, 9}, {1, 40}, {250, 20}, {1984, 96}, {2050, 32}, {30000, 96}};
  for (size_t i = 0; i < sizeof places / sizeof *places; ++i)
    for (int32_t kv = 0; kv < STK_KV_KINDS; ++kv)
      if (places[i].at < 30000 || kv == STK_KV_Q8) ST_TRY(check_routes(s, kv, places[i].at, places[i].T));
  return STRATA_OK;
}

/* A window that crosses the budget in one pass, and cut in many ways. */
static strata_status test_crossing(suite *s) {
  enum { AT = 1984, T = 96 };
  static const int32_t steps[] = {1, 7, 67, 68, 95};
  layer whole, cut;
  ST_TRY(layer_new(&whole, STK_KV_F32, AT + T, s->err));
  advance(&whole, AT, &s->best);
  run_window(&whole, T, &s->best, ROUTE_FLASH);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) {
    char name[80];
    bool same = true;
    ST_TRY(layer_new(&cut, STK_KV_F32, AT + T, s->err));
    advance(&cut, AT, &s->best);
    for (int32_t done = 0, n; done < T; done += n) {
      n = T - done < steps[i] ? T - done : steps[i];
      run_window(&cut, n, &s->best, n == 1 ? ROUTE_DECODE : ROUTE_FLASH);
      same = same && same_rows(whole.out + (size_t)done * HQ * D, cut.out, n, HQ * D);
    }
    snprintf(name, sizeof name, "crossing the budget in windows of %d = in one pass", steps[i]);
    report(s, name, same && same_caches(&whole, &cut), "the bytes differ");
    layer_free(&cut);
  }
  layer_free(&whole);
  return STRATA_OK;
}

/* Every level, and numbers of parts, over a crossing window and its last token. */
static strata_status test_variants(suite *s) {
  enum { AT = 2040, T = 24 };
  static const int32_t parts[] = {1, 2, 3, 7, 64};
  layer want, got;
  ST_TRY(layer_new(&want, STK_KV_Q8, AT + T, s->err));
  advance(&want, AT, &s->best);
  run_window(&want, T, &s->best, ROUTE_FLASH);
  for (int level = 0; level < ST_CPU_LEVELS; ++level) {
    st_kernel_set set;
    char name[80];
    bool same = true;
    if (!st_cpu_has((st_cpu_level)level)) continue;
    st_kernel_set_choose(&set, (st_cpu_level)level);
    for (int i = 0; i < 5; ++i) {
      const kernels k = {set.kernel[ST_OP_qsa_prep], set.kernel[ST_OP_qsa_score], set.kernel[ST_OP_qsa_topk],
                         set.kernel[ST_OP_qsa_attn], set.kernel[ST_OP_qsa_flash],
                         set.kernel[ST_OP_qsa_decode], set.kernel[ST_OP_qsa_merge], parts[i]};
      ST_TRY(layer_new(&got, STK_KV_Q8, AT + T, s->err));
      advance(&got, AT, &s->best);
      run_window(&got, T, &k, i % 2 ? ROUTE_FLASH : ROUTE_DECODE);
      same = same && same_rows(want.out, got.out, T, HQ * D) && same_caches(&want, &got);
      layer_free(&got);
    }
    snprintf(name, sizeof name, "%s, 1 to 64 parts", st_cpu_level_name((st_cpu_level)level));
    report(s, name, same, "the bytes differ");
  }
  layer_free(&want);
  return STRATA_OK;
}

/* A NaN in one index key shows in every query that scores it, and in no other. */
static strata_status test_nan(suite *s) {
  enum { AT = 2040, T = 30 };
  layer l;
  bool right = true;
  ST_TRY(layer_new(&l, STK_KV_F32, AT + T, s->err));
  advance(&l, AT, &s->best);
  const stk_cache blocks = {l.block_pages, STK_KV_F32, 1, DI};
  ((float *)stk_cache_data(&blocks, 0, 100))[3] = NAN;
  run_window(&l, T, &s->best, ROUTE_FLASH);
  for (int32_t t = 0; t < T; ++t)
    for (int32_t i = 0; i < HQ * D; ++i)
      right = right && (isnan(l.out[t * HQ * D + i]) != 0) == (AT + t + 1 > IDS);
  report(s, "a NaN in an index key shows in the sparse queries", right, "it does not, or elsewhere too");
  layer_free(&l);
  return STRATA_OK;
}

/* ---- far cells -------------------------------------------------------------------------- */

/* A token at the end of the longest sequence there can be, on a table whose pages are
 * all one of four: cell c must read as cell c mod 1024 does. */
static strata_status test_far(suite *s) {
  enum { NEAR = 4 * STK_CACHE_PAGE };
  const int64_t n = INT32_MAX, n_pages = stk_cache_pages(n);
  void *table;
  layer l;
  ST_TRY(st_calloc(&table, (size_t)n_pages, sizeof(uint8_t *), "far cells", s->err));
  uint8_t **pages = table;
  ST_TRY(layer_new(&l, STK_KV_Q8, 2100, s->err));
  advance(&l, 2090, &s->best);
  fill_window(&l, 1);
  run_prep(&l, 1, &s->best, STK_QSA_ALL);
  for (int64_t i = 0; i < n_pages; ++i) pages[i] = l.kv_pages[i % (NEAR / STK_CACHE_PAGE)];
  stk_qsa_attn_args args = attn_args(&l, 1);
  float want[HQ * D], got[HQ * D];
  for (int32_t i = 0; i < IDS; ++i) l.ids[i] = (i * 37 + 11) % NEAR;
  l.n_ids[0] = IDS;
  args.out = want;
  run_parts(s->best.flash, &args, 1);
  for (int32_t i = 0; i < IDS; ++i) l.ids[i] = (int32_t)(n - NEAR * 900 - 1023 + i % 900 * NEAR + l.ids[i]);
  args.kv_pages = pages;
  args.pos0 = INT32_MAX - 1;
  args.out = got;
  run_parts(s->best.flash, &args, 1);
  report(s, "cells near 2^31, 2^40 values into the cache", memcmp(want, got, sizeof want) == 0,
         "the outputs differ");
  st_free(table);
  layer_free(&l);
  return STRATA_OK;
}

/* ---- refused shapes ---------------------------------------------------------------------- */

static void test_refused(suite *s) {
  const stk_qsa_attn_args good = {.n_tokens = 1, .q_heads = HQ, .kv_heads = HKV, .head_dim = D,
                                  .budget = BUDGET, .ratio = RATIO, .ids_stride = IDS,
                                  .outputs = STK_ATTN_F32};
  stk_qsa_attn_args bad[9];
  static const char *const names[9] = {
      "refused: heads that do not divide", "refused: head size 48", "refused: head size 544",
      "refused: no tokens", "refused: position past 2^31", "refused: budget of no whole blocks",
      "refused: lists too short", "refused: kind 3 of cache", "refused: no output"};
  for (int i = 0; i < 9; ++i) bad[i] = good;
  bad[0].q_heads = 7;
  bad[1].head_dim = 48;
  bad[2].head_dim = 544;
  bad[3].n_tokens = 0;
  bad[4].pos0 = INT32_MAX;
  bad[5].budget = 2047;
  bad[6].ids_stride = IDS - 1;
  bad[7].kv_kind = 3;
  bad[8].outputs = 0;
  for (int i = 0; i < 9; ++i) report(s, names[i], stk_qsa_flash_op.check(&bad[i]) != NULL, "it was accepted");
  report(s, "accepted: the shape before", stk_qsa_flash_op.check(&good) == NULL, "it was refused");
}

/* ---- a long cache ------------------------------------------------------------------------- */

/* 131073 cells, the last window across the end of a page: the routes, and the oracle. */
static strata_status check_long(suite *s, int32_t kv) {
  enum { N = 131073, T = 3 };
  char name[80];
  layer best, oracle, decode;
  bool same = true;
  ST_TRY(layer_new(&best, kv, N, s->err));
  ST_TRY(layer_new(&oracle, kv, N, s->err));
  ST_TRY(layer_new(&decode, kv, N, s->err));
  advance(&best, N - T, &s->best);
  advance(&oracle, N - T, &s->best);
  advance(&decode, N - T, &s->best);
  run_window(&best, T, &s->best, ROUTE_FLASH);
  run_window(&oracle, T, &s->oracle, ROUTE_PLAIN);
  for (int32_t t = 0; t < T; ++t) {
    run_window(&decode, 1, &s->best, ROUTE_DECODE);
    same = same && same_rows(best.out + (size_t)t * HQ * D, decode.out, 1, HQ * D);
  }
  snprintf(name, sizeof name, "131073 cells: flash = oracle = decode, %s", kv_names[kv]);
  report(s, name, same && same_rows(best.out, oracle.out, T, HQ * D) && same_caches(&best, &oracle),
         "the bytes differ");
  layer_free(&best);
  layer_free(&oracle);
  layer_free(&decode);
  return STRATA_OK;
}

static suite suite_of(lab_tally *tally, strata_error *err) {
  st_kernel_set set;
  st_kernel_set_choose(&set, st_cpu_best());
  return (suite){
      .tally = tally, .err = err,
      .oracle = {stk_qsa_prep_op.oracle, stk_qsa_score_op.oracle, stk_qsa_topk_op.oracle,
                 stk_qsa_attn_op.oracle, stk_qsa_flash_op.oracle, stk_qsa_decode_op.oracle,
                 stk_qsa_merge_op.oracle, 1},
      .best = {set.kernel[ST_OP_qsa_prep], set.kernel[ST_OP_qsa_score], set.kernel[ST_OP_qsa_topk],
               set.kernel[ST_OP_qsa_attn], set.kernel[ST_OP_qsa_flash], set.kernel[ST_OP_qsa_decode],
               set.kernel[ST_OP_qsa_merge], 3}};
}

strata_status lab_check_qsa(lab_tally *tally, strata_error *err) {
  suite s = suite_of(tally, err);
  ST_TRY(test_fused(&s));
  ST_TRY(test_cache_windows(&s));
  ST_TRY(test_topk(&s));
  ST_TRY(test_counts(&s));
  ST_TRY(test_routes(&s));
  ST_TRY(test_crossing(&s));
  ST_TRY(test_variants(&s));
  ST_TRY(test_nan(&s));
  ST_TRY(test_far(&s));
  test_refused(&s);
  return STRATA_OK;
}

strata_status lab_check_qsa_long(lab_tally *tally, strata_error *err) {
  suite s = suite_of(tally, err);
  for (int32_t kv = 0; kv < STK_KV_KINDS; ++kv) ST_TRY(check_long(&s, kv));
  return STRATA_OK;
}
