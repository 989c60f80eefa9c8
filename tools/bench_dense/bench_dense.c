/* Times dense attention by matrix products of OpenBLAS beside our sparse attention, in
 * one process and one run: 24 query and 2 kv heads of 256, a window of T tokens of
 * which the last sees n cells. Built by bench_dense.sh; OpenBLAS is loaded at run time.
 *
 *   bench_dense LIBOPENBLAS THREADS ROUNDS
 *
 * Dense: for each kv head, the scores of its 12 heads as one product, softmax with the
 * causal limit, the weighted values as another; queries, keys and values lie as the
 * products like them. Ours: scores of blocks, selection and attention, as a layer runs
 * them (up to 2051 cells that is dense attention too, and the results are compared).
 * Each side runs once untimed before it is timed, after a pause in which the other
 * side's threads go to sleep. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cpu/st_pool.h"
#include "kreg/st_kreg.h"
#include "os/st_process.h"
#include "qsa_flash/qsa_flash.h"
#include "qsa_score/qsa_score.h"
#include "qsa_topk/qsa_topk.h"

enum {
  HQ = 24, HKV = 2, PER_KV = HQ / HKV, D = 256, HI = 4, DI = 128, RATIO = 4, BUDGET = 2048,
  IDS = BUDGET + RATIO - 1, T = 32, N_MAX = 32768, ROUNDS_MAX = 51
};

static const int32_t lengths[] = {512, 2048, 8192, 32768};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, SIDES = 3 };
static const char *const sides[SIDES] = {"dense", "f32", "q8"};

static float *filled(size_t n, float low, float high) {
  float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
  if (!x) exit(1);
  for (size_t i = 0; i < n; ++i) x[i] = low + (high - low) * (float)rand() / (float)RAND_MAX;
  return x;
}

typedef struct bench {
  st_pool *pool;
  st_kernel_set set;
  float *q, *q_raw, *iq, *score, *out, *block_memory;
  int32_t *ids, *n_ids;
  uint8_t *kv_memory[STK_KV_KINDS], **kv_pages[STK_KV_KINDS], **block_pages;
  float *rows_q, *rows_k[HKV], *rows_v[HKV], *weights, *rows_out; /* the dense side's */
} bench;

/* ---- ours --------------------------------------------------------------------- */

static stk_qsa_attn_args attn_args(bench *b, int32_t kind, int32_t n) {
  return (stk_qsa_attn_args){.q = b->q, .q_raw = b->q_raw, .kv_pages = b->kv_pages[kind],
                             .kv_block = b->kv_memory[kind], .ids = b->ids, .n_ids = b->n_ids,
                             .out = b->out, .ids_stride = IDS, .n_tokens = T, .pos0 = n - T,
                             .q_heads = HQ, .kv_heads = HKV, .head_dim = D, .budget = BUDGET,
                             .ratio = RATIO, .kv_kind = kind, .outputs = STK_ATTN_F32};
}

static void run_ours(bench *b, int32_t kind, int32_t n) {
  const stk_qsa_attn_args attn = attn_args(b, kind, n);
  const stk_qsa_score_args score = {.iq = b->iq, .block_pages = b->block_pages, .score = b->score,
                                    .score_stride = N_MAX / RATIO, .n_tokens = T, .pos0 = n - T,
                                    .idx_heads = HI, .idx_dim = DI, .ratio = RATIO, .budget = BUDGET};
  const stk_qsa_topk_args topk = {.score = b->score, .ids = b->ids, .n_ids = b->n_ids,
                                  .score_stride = N_MAX / RATIO, .ids_stride = IDS, .n_tokens = T,
                                  .pos0 = n - T, .ratio = RATIO, .budget = BUDGET};
  const int32_t parts = 4 * st_pool_threads(b->pool);
  const st_call calls[] = {{b->set.kernel[ST_OP_qsa_score], &score, parts, 0, -1},
                           {b->set.kernel[ST_OP_qsa_topk], &topk, parts, 0, -1},
                           {b->set.kernel[ST_OP_qsa_flash], &attn, parts, 0, -1}};
  int first = n > IDS ? 0 : 2;
  st_pool_run(b->pool, calls + first, 3 - first, NULL, NULL);
}

/* ---- dense -------------------------------------------------------------------- */

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a,
                   int lda, const float *b, int ldb, float beta, float *c, int ldc);
static sgemm *cblas_sgemm;

typedef struct soft_args {
  float *weights;
  int32_t n;
} soft_args;

/* Row r is of token r / PER_KV. */
static void soft_run(const void *args, int32_t part, int32_t n_parts) {
  const soft_args *a = args;
  int64_t begin, end;
  stk_slice(T * PER_KV, 1, part, n_parts, &begin, &end);
  for (int64_t r = begin; r < end; ++r) {
    float *row = a->weights + r * a->n, max = row[0], sum = 0;
    const int32_t seen = a->n - T + (int32_t)(r / PER_KV) + 1;
    for (int32_t i = 1; i < seen; ++i) max = row[i] > max ? row[i] : max;
    for (int32_t i = 0; i < seen; ++i) sum += row[i] = expf(row[i] - max);
    for (int32_t i = 0; i < seen; ++i) row[i] *= 1 / sum;
    for (int32_t i = seen; i < a->n; ++i) row[i] = 0;
  }
}

static void run_dense(bench *b, int32_t n) {
  const stk_kernel soft = {.abi = STK_ABI, .op = "softmax", .run = soft_run};
  const soft_args args = {b->weights, n};
  const st_call call = {&soft, &args, st_pool_threads(b->pool), 0, -1};
  for (int kv = 0; kv < HKV; ++kv) {
    cblas_sgemm(ROW_MAJOR, NO_TRANS, TRANS, T * PER_KV, n, D, 1.0f / 16, b->rows_q + kv * T * PER_KV * D, D,
                b->rows_k[kv], D, 0, b->weights, n);
    st_pool_run(b->pool, &call, 1, NULL, NULL);
    cblas_sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, T * PER_KV, D, n, 1, b->weights, n, b->rows_v[kv], D, 0,
                b->rows_out + kv * T * PER_KV * D, D);
  }
}

/* ---- data --------------------------------------------------------------------- */

static void fill(bench *b) {
  b->q = filled((size_t)T * HQ * D, -3, 3);
  b->q_raw = filled((size_t)T * HQ * 2 * D, -4, 4);
  b->iq = filled((size_t)T * HI * DI, -2, 2);
  b->score = filled((size_t)T * (N_MAX / RATIO), 0, 0);
  b->out = filled((size_t)T * HQ * D, 0, 0);
  b->block_memory = filled((size_t)(N_MAX / RATIO) * DI, -2, 2);
  b->block_pages = calloc((size_t)stk_cache_pages(N_MAX / RATIO), sizeof(uint8_t *));
  b->ids = calloc((size_t)T * IDS, sizeof *b->ids);
  b->n_ids = calloc(T, sizeof *b->n_ids);
  const stk_cache blocks = {b->block_pages, STK_KV_F32, 1, DI};
  stk_cache_fill_table(&blocks, N_MAX / RATIO, (uint8_t *)b->block_memory);
  for (int kind = 0; kind < STK_KV_KINDS; ++kind) {
    const stk_cache cache = {NULL, kind, 2 * HKV, D};
    const size_t pages = (size_t)stk_cache_pages(N_MAX);
    b->kv_memory[kind] = aligned_alloc(64, pages * stk_cache_page_bytes(&cache));
    b->kv_pages[kind] = calloc(pages, sizeof(uint8_t *));
    if (!b->kv_memory[kind] || !b->kv_pages[kind]) exit(1);
    stk_qsa_attn_args args = attn_args(b, kind, N_MAX);
    stk_qsa_attn_cache(&args, 7);
  }
  /* The same values as the products like them. */
  b->rows_q = filled((size_t)T * HQ * D, 0, 0);
  b->rows_out = filled((size_t)T * HQ * D, 0, 0);
  b->weights = filled((size_t)T * PER_KV * N_MAX, 0, 0);
  const stk_cache f32 = {b->kv_pages[STK_KV_F32], STK_KV_F32, 2 * HKV, D};
  for (int kv = 0; kv < HKV; ++kv) {
    b->rows_k[kv] = filled((size_t)N_MAX * D, 0, 0);
    b->rows_v[kv] = filled((size_t)N_MAX * D, 0, 0);
    for (int64_t c = 0; c < N_MAX; ++c) {
      memcpy(b->rows_k[kv] + c * D, stk_cache_data(&f32, kv, c), D * sizeof(float));
      memcpy(b->rows_v[kv] + c * D, stk_cache_data(&f32, HKV + kv, c), D * sizeof(float));
    }
    for (int64_t r = 0; r < T * PER_KV; ++r)
      memcpy(b->rows_q + (kv * T * PER_KV + r) * D,
             b->q + (r / PER_KV * HQ + kv * PER_KV + r % PER_KV) * D, D * sizeof(float));
  }
}

/* Relative distance of the two results, gates put on the dense one. */
static double distance(const bench *b) {
  double difference = 0, size = 0;
  for (int64_t t = 0; t < T; ++t)
    for (int64_t h = 0; h < HQ; ++h)
      for (int64_t d = 0; d < D; ++d) {
        const double gate = (double)b->q_raw[((t * HQ + h) * 2 + 1) * D + d];
        const double want = (double)b->rows_out[((h / PER_KV * T + t) * PER_KV + h % PER_KV) * D + d] /
                            (1 + exp(-gate));
        const double off = want - (double)b->out[(t * HQ + h) * D + d];
        difference += off * off;
        size += want * want;
      }
  return sqrt(difference / size);
}

/* ---- the run -------------------------------------------------------------------- */

static double run_side(bench *b, int side, int32_t n) {
  double begin = st_clock_seconds();
  if (side == 0) run_dense(b, n);
  else run_ours(b, side == 1 ? STK_KV_F32 : STK_KV_Q8, n);
  return st_clock_seconds() - begin;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  static double times[SIDES][N_LENGTHS][ROUNDS_MAX];
  bench b = {0};
  strata_error err;
  if (argc != 4) return 2;
  int threads = atoi(argv[2]), rounds = atoi(argv[3]);
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library || threads < 1 || rounds < 1 || rounds > ROUNDS_MAX) return 2;
  *(void **)&cblas_sgemm = dlsym(library, "cblas_sgemm");
  void (*set_threads)(int);
  *(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
  if (!cblas_sgemm || !set_threads || st_pool_new(threads, &b.pool, &err) != STRATA_OK) return 2;
  set_threads(threads);
  st_kernel_set_choose(&b.set, st_cpu_best());
  fill(&b);
  for (int i = 0; i < 2; ++i) {
    run_side(&b, 0, lengths[i]);
    run_side(&b, 1, lengths[i]);
    printf("%d cells: ours is %.1e from dense, relative L2\n", lengths[i], distance(&b));
  }
  for (int round = 0; round < rounds; ++round)
    for (int i = 0; i < N_LENGTHS; ++i)
      for (int turn = 0; turn < SIDES; ++turn) {
        const int side = (turn + round) % SIDES;
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
        run_side(&b, side, lengths[i]);
        times[side][i][round] = run_side(&b, side, lengths[i]);
      }
  printf("\nMicroseconds a token, %d threads, windows of %d tokens.\n\n%7s", threads, T, "cells");
  for (int s = 0; s < SIDES; ++s) printf(" %9s %9s", sides[s], "median");
  printf(" %10s %9s\n", "dense/f32", "dense/q8");
  for (int i = 0; i < N_LENGTHS; ++i) {
    printf("%7d", lengths[i]);
    for (int s = 0; s < SIDES; ++s) {
      qsort(times[s][i], (size_t)rounds, sizeof(double), compare);
      printf(" %9.1f %9.1f", times[s][i][0] * 1e6 / T, times[s][i][rounds / 2] * 1e6 / T);
    }
    printf(" %10.2f %9.2f\n", times[0][i][rounds / 2] / times[1][i][rounds / 2],
           times[0][i][rounds / 2] / times[2][i][rounds / 2]);
  }
  return 0;
}
