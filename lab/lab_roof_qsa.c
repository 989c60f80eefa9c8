/* Timing sparse attention's kernels against the machine's ceilings. */
#include "lab/lab_roof_qsa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "kreg/st_kreg.h"
#include "lab/lab_case.h"
#include "lab/lab_near_lists.h"
#include "lab/lab_roof.h"
#include "os/st_file.h"
#include "os/st_process.h"
#include "qsa_decode/qsa_decode.h"
#include "qsa_flash/qsa_flash.h"
#include "qsa_merge/qsa_merge.h"
#include "qsa_prep/qsa_prep.h"
#include "qsa_score/qsa_score.h"
#include "qsa_topk/qsa_topk.h"

enum {
  HQ = 24, HKV = 2, D = 256, HI = 4, DI = 128, RATIO = 4, BUDGET = 2048, PAIRS = 32,
  T_MAX = 64, T_FLASH = 16, CELLS = 131072, IDS = BUDGET + RATIO - 1
};

/* Buffers of a window, and a pool of pages of each kind from which calls take a part
 * each. */
typedef struct bench {
  st_pool *pool;
  st_kernel_set set;
  float *q, *q_raw, *kv_raw, *index_raw, *gain, *angles, *iq, *score, *out, *partial, *open_keys;
  int32_t *ids, *n_ids;
  uint8_t *kv_memory[STK_KV_KINDS], *block_memory;
  uint8_t **kv_pages[STK_KV_KINDS], **block_pages;
  size_t kv_bytes[STK_KV_KINDS];
  int32_t turn; /* which part is next */
} bench;

typedef enum stage { STAGE_FLASH, STAGE_DECODE, STAGE_SCORE, STAGE_TOPK, STAGE_PREP } stage;

/* A row to be timed: T tokens, of which the last sees n cells; near: their lists share
 * what a model's do, instead of as little as can be. */
typedef struct job {
  stage stage;
  int32_t kv, n_tokens, n;
  bool near;
  double seconds[LAB_ROUNDS_MAX];
} job;

/* The calls of a job, with their args in memory that lives as long. */
typedef struct calls {
  stk_qsa_attn_args attn;
  stk_qsa_score_args score;
  stk_qsa_topk_args topk;
  stk_qsa_prep_args prep;
  st_call list[2];
  int32_t n;
} calls;

static strata_status floats(float **out, size_t n, uint64_t *random, double low, double high,
                            strata_error *err) {
  void *memory;
  ST_TRY(st_calloc_aligned(&memory, n, sizeof(float), "the benchmark", err));
  *out = memory;
  for (size_t i = 0; i < n && random; ++i)
    (*out)[i] = (float)(low + (double)(lab_random(random) >> 11) / 9007199254740992.0 * (high - low));
  return STRATA_OK;
}

/* A cache of CELLS cells of a kind, filled by the op's own prepare. */
static strata_status fill_cache(bench *b, int32_t kind, strata_error *err) {
  const stk_cache cache = {.kind = kind, .n_planes = 2 * HKV, .dim = D};
  const size_t n_pages = (size_t)stk_cache_pages(CELLS);
  void *memory;
  b->kv_bytes[kind] = n_pages * stk_cache_page_bytes(&cache);
  ST_TRY(st_huge_pages_new(&memory, b->kv_bytes[kind], "the benchmark", err)); /* as a long cache is */
  b->kv_memory[kind] = memory;
  ST_TRY(st_calloc(&memory, n_pages, sizeof(uint8_t *), "the benchmark", err));
  b->kv_pages[kind] = memory;
  stk_qsa_attn_args args = {.kv_pages = b->kv_pages[kind], .kv_block = b->kv_memory[kind],
                            .n_tokens = 1, .pos0 = CELLS - 1, .q_heads = HQ, .kv_heads = HKV,
                            .head_dim = D, .kv_kind = kind};
  stk_qsa_attn_cache(&args, 7);
  return STRATA_OK;
}

static strata_status fill_blocks(bench *b, uint64_t *random, strata_error *err) {
  const size_t n_blocks = CELLS / RATIO, n_pages = (size_t)stk_cache_pages(CELLS / RATIO);
  float *keys;
  void *memory;
  ST_TRY(floats(&keys, n_blocks * DI, random, -2, 2, err));
  b->block_memory = (uint8_t *)keys;
  ST_TRY(st_calloc(&memory, n_pages, sizeof(uint8_t *), "the benchmark", err));
  b->block_pages = memory;
  const stk_cache blocks = {b->block_pages, STK_KV_F32, 1, DI};
  stk_cache_fill_table(&blocks, CELLS / RATIO, b->block_memory);
  return STRATA_OK;
}

static strata_status bench_init(bench *b, st_pool *pool, st_cpu_level level, strata_error *err) {
  uint64_t random = 1;
  void *memory;
  *b = (bench){.pool = pool};
  st_kernel_set_choose(&b->set, level);
  ST_TRY(floats(&b->q, (size_t)T_MAX * HQ * D, &random, -3, 3, err));
  ST_TRY(floats(&b->q_raw, (size_t)T_MAX * HQ * 2 * D, &random, -4, 4, err));
  ST_TRY(floats(&b->kv_raw, (size_t)T_MAX * 2 * HKV * D, &random, -3, 3, err));
  ST_TRY(floats(&b->index_raw, (size_t)T_MAX * (HI + 1) * DI, &random, -3, 3, err));
  ST_TRY(floats(&b->gain, D, &random, 0.5, 1.5, err));
  ST_TRY(floats(&b->angles, (size_t)2 * T_MAX * PAIRS, &random, -1, 1, err));
  ST_TRY(floats(&b->iq, (size_t)T_MAX * HI * DI, &random, -2, 2, err));
  ST_TRY(floats(&b->score, (size_t)T_MAX * (CELLS / RATIO), &random, 0, 60, err));
  ST_TRY(floats(&b->out, (size_t)T_MAX * HQ * D, NULL, 0, 0, err));
  ST_TRY(floats(&b->partial, (size_t)HQ * (D + 2) * (size_t)stk_qsa_splits_max(BUDGET, RATIO), NULL, 0, 0, err));
  ST_TRY(floats(&b->open_keys, (size_t)RATIO * DI, NULL, 0, 0, err));
  ST_TRY(st_calloc(&memory, (size_t)T_MAX * IDS, sizeof(int32_t), "the benchmark", err));
  b->ids = memory;
  ST_TRY(st_calloc(&memory, T_MAX, sizeof(int32_t), "the benchmark", err));
  b->n_ids = memory;
  for (int32_t kind = 0; kind < STK_KV_KINDS; ++kind) ST_TRY(fill_cache(b, kind, err));
  return fill_blocks(b, &random, err);
}

static void bench_release(bench *b) {
  void *const all[] = {b->q, b->q_raw, b->kv_raw, b->index_raw, b->gain, b->angles, b->iq, b->score,
                       b->out, b->partial, b->open_keys, b->ids, b->n_ids, b->block_memory,
                       b->block_pages};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) st_free(all[i]);
  for (int32_t kind = 0; kind < STK_KV_KINDS; ++kind) {
    st_pages_free(b->kv_memory[kind], b->kv_bytes[kind]);
    st_free(b->kv_pages[kind]);
  }
}

static void add_call(calls *c, const bench *b, st_op op, const void *args, int32_t n_tokens) {
  int32_t threads = st_pool_threads(b->pool);
  c->list[c->n++] = (st_call){b->set.kernel[op], args, n_tokens > 1 ? 4 * threads : threads, (int32_t)op, -1};
}

/* The part of a cache of `rows` rows, out of which of n rows, that this turn gets. */
static int64_t first_page(const bench *b, int64_t n, int64_t rows) {
  int64_t parts = rows / n > 0 ? rows / n : 1;
  return b->turn % parts * (stk_cache_pages(rows) / parts);
}

static void make_calls(calls *c, const bench *b, const job *j) {
  const int32_t T = j->n_tokens, pos0 = j->n - T;
  uint8_t *const *kv = b->kv_pages[j->kv] + first_page(b, j->n, CELLS);
  uint8_t *const *blocks = b->block_pages + first_page(b, j->n / RATIO, CELLS / RATIO);
  c->n = 0;
  c->attn = (stk_qsa_attn_args){.q = b->q, .q_raw = b->q_raw, .kv_pages = kv, .ids = b->ids,
                                .n_ids = b->n_ids, .out = b->out, .partial = b->partial,
                                .ids_stride = IDS, .n_tokens = T, .pos0 = pos0, .q_heads = HQ,
                                .kv_heads = HKV, .head_dim = D, .budget = BUDGET, .ratio = RATIO,
                                .kv_kind = j->kv, .outputs = STK_ATTN_F32};
  c->score = (stk_qsa_score_args){.iq = b->iq, .block_pages = blocks, .score = b->score,
                                  .score_stride = CELLS / RATIO, .n_tokens = T, .pos0 = pos0,
                                  .idx_heads = HI, .idx_dim = DI, .ratio = RATIO, .budget = BUDGET};
  c->topk = (stk_qsa_topk_args){.score = b->score, .ids = b->ids, .n_ids = b->n_ids,
                                .score_stride = CELLS / RATIO, .ids_stride = IDS, .n_tokens = T,
                                .pos0 = pos0, .ratio = RATIO, .budget = BUDGET};
  c->prep = (stk_qsa_prep_args){
      .q_raw = b->q_raw, .k_raw = b->kv_raw, .v_raw = b->kv_raw + (size_t)T_MAX * HKV * D,
      .index_raw = b->index_raw, .q_gain = b->gain, .k_gain = b->gain, .iq_gain = b->gain,
      .ik_gain = b->gain, .cos = b->angles, .sin = b->angles, .block_cos = b->angles,
      .block_sin = b->angles, .q = b->out, .iq = b->partial, .open_keys = b->open_keys,
      .kv_pages = kv, .block_pages = blocks, .n_tokens = T, .pos0 = pos0, .q_heads = HQ,
      .kv_heads = HKV, .head_dim = D, .idx_heads = HI, .idx_dim = DI, .ratio = RATIO,
      .n_pairs = PAIRS, .kv_kind = j->kv, .kinds = STK_QSA_ALL, .eps = 1e-6f};
  switch (j->stage) {
    case STAGE_FLASH: add_call(c, b, ST_OP_qsa_flash, &c->attn, T); break;
    case STAGE_DECODE:
      add_call(c, b, ST_OP_qsa_decode, &c->attn, T);
      add_call(c, b, ST_OP_qsa_merge, &c->attn, T);
      break;
    case STAGE_SCORE: add_call(c, b, ST_OP_qsa_score, &c->score, T); break;
    case STAGE_TOPK: add_call(c, b, ST_OP_qsa_topk, &c->topk, T); break;
    case STAGE_PREP: add_call(c, b, ST_OP_qsa_prep, &c->prep, T); break;
  }
}

/* Cells that any of the window's lists has; writes the lists. */
static strata_status make_lists(bench *b, const job *j, uint64_t seed, double *n_cells, strata_error *err) {
  calls c;
  void *memory;
  make_calls(&c, b, j);
  if (j->near) ST_TRY(lab_near_lists(&c.attn, seed, err));
  else stk_qsa_attn_lists(&c.attn, seed, 0);
  if (!n_cells) return STRATA_OK;
  ST_TRY(st_calloc(&memory, (size_t)j->n, 1, "the benchmark", err));
  uint8_t *seen = memory;
  for (int64_t t = 0; t < j->n_tokens; ++t)
    for (int64_t i = 0; i < stk_qsa_n_cells(&c.attn, t); ++i)
      seen[stk_qsa_attn_is_dense(&c.attn, t) ? i : b->ids[t * IDS + i]] = 1;
  *n_cells = 0;
  for (int64_t cell = 0; cell < j->n; ++cell) *n_cells += seen[cell];
  st_free(memory);
  return STRATA_OK;
}

static strata_status run_job(bench *b, const job *j, double *seconds, strata_error *err) {
  calls c;
  ++b->turn;
  if (j->stage == STAGE_FLASH || j->stage == STAGE_DECODE)
    ST_TRY(make_lists(b, j, (uint64_t)b->turn, NULL, err));
  make_calls(&c, b, j);
  double begin = st_clock_seconds();
  st_pool_run(b->pool, c.list, c.n, NULL, NULL);
  *seconds = st_clock_seconds() - begin;
  return STRATA_OK;
}

/* The cells of any list come from main memory, once; the rest from the level that
 * holds it. */
static strata_status floor_of(bench *b, const job *j, const lab_rates *rates, double *seconds,
                              strata_error *err) {
  const stk_cache cache = {.kind = j->kv, .n_planes = 2 * HKV, .dim = D};
  calls c;
  stk_work near = {0};
  make_calls(&c, b, j);
  st_kreg_op((st_op)c.list[0].tag)->work(c.list[0].args, &near);
  stk_work far = {.state_bytes = near.state_bytes};
  if (j->stage == STAGE_FLASH || j->stage == STAGE_DECODE) {
    double cells;
    ST_TRY(make_lists(b, j, 1, &cells, err));
    far.state_bytes = cells * (double)stk_cache_row_bytes(&cache);
  }
  near.state_bytes = 0;
  lab_floor here = lab_floor_of(rates, &near, near.io_bytes);
  *seconds = fmax(here.compute_s, here.memory_s + lab_floor_of(rates, &far, (double)CELLS * 4096).memory_s);
  return STRATA_OK;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static strata_status add_row(lab_qsa_rows *out, bench *b, job *j, const lab_rates *rates,
                             int32_t n_rounds, strata_error *err) {
  static const char *const names[] = {"flash", "decode", "score", "topk", "prep"};
  static const char *const kinds[] = {"f32", "f16", "q8"};
  double floor;
  calls c;
  make_calls(&c, b, j);
  ST_TRY(floor_of(b, j, rates, &floor, err));
  qsort(j->seconds, (size_t)n_rounds, sizeof *j->seconds, compare_doubles);
  out->rows[out->n++] = (lab_qsa_row){
      .what = names[j->stage], .variant = c.list[0].kernel->variant,
      .kv = j->stage == STAGE_SCORE || j->stage == STAGE_TOPK ? "" : kinds[j->kv],
      .lists = j->stage > STAGE_DECODE || j->n <= BUDGET ? "" : j->near ? "near" : "far",
      .n_tokens = j->n_tokens, .n = j->n, .best = j->seconds[0] / j->n_tokens,
      .median = j->seconds[n_rounds / 2] / j->n_tokens, .floor = floor / j->n_tokens};
  return STRATA_OK;
}

static strata_status measure(bench *b, job *jobs, size_t n_jobs, int32_t n_rounds,
                             const lab_rates *rates, lab_qsa_rows *out, strata_error *err) {
  double unused;
  for (size_t i = 0; i < n_jobs; ++i) ST_TRY(run_job(b, &jobs[i], &unused, err));
  for (int32_t round = 0; round < n_rounds; ++round)
    for (size_t i = 0; i < n_jobs; ++i) ST_TRY(run_job(b, &jobs[i], &jobs[i].seconds[round], err));
  for (size_t i = 0; i < n_jobs; ++i) ST_TRY(add_row(out, b, &jobs[i], rates, n_rounds, err));
  return STRATA_OK;
}

strata_status lab_roof_qsa(st_pool *pool, const lab_ceilings *ceilings, int32_t n_rounds,
                           lab_qsa_rows *out, strata_error *err) {
  static const int32_t lengths[] = {2048, 8192, 32768, CELLS};
  strata_status status = STRATA_OK;
  void *memory = NULL;
  size_t n_jobs = 0;
  bench b = {0};
  *out = (lab_qsa_rows){0};
  if (n_rounds < 1 || n_rounds > LAB_ROUNDS_MAX)
    ST_FAIL(err, ARG, "lab roof: %d rounds: 1 to %d expected", n_rounds, LAB_ROUNDS_MAX);
  ST_TRY_OUT(bench_init(&b, pool, ceilings->level, err));
  ST_TRY_OUT(st_calloc(&memory, sizeof out->rows / sizeof *out->rows, sizeof(job), "the benchmark", err));
  job *jobs = memory;
  for (int32_t kv = 0; kv < STK_KV_KINDS; ++kv)
    for (int32_t i = 0; i < 7; ++i)
      jobs[n_jobs++] = (job){.stage = STAGE_FLASH, .kv = kv, .n_tokens = T_FLASH, .n = lengths[i < 4 ? i : i - 3],
                             .near = i >= 4};
  for (int32_t kv = 0; kv < STK_KV_KINDS; ++kv)
    for (int32_t i = 0; i < 4; ++i)
      jobs[n_jobs++] = (job){.stage = STAGE_DECODE, .kv = kv, .n_tokens = 1, .n = lengths[i]};
  for (stage s = STAGE_SCORE; s <= STAGE_TOPK; ++s)
    for (int32_t T = 1; T <= T_MAX; T += T_MAX - 1)
      for (int32_t i = 1; i < 4; ++i) jobs[n_jobs++] = (job){.stage = s, .n_tokens = T, .n = lengths[i]};
  for (int32_t kv = 0; kv < STK_KV_KINDS; ++kv)
    jobs[n_jobs++] = (job){.stage = STAGE_PREP, .kv = kv, .n_tokens = T_MAX, .n = 2048};
  ST_TRY_OUT(measure(&b, jobs, n_jobs, n_rounds, &ceilings->all, out, err));
out:
  bench_release(&b);
  st_free(memory);
  return status;
}
