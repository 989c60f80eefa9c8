/* Timing the gated delta net's kernels as a layer's pipeline, with the states of all
 * layers taken in turn, against the machine's ceilings. */
#include "lab/lab_roof.h"

#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "gdn_post/gdn_post.h"
#include "gdn_pre/gdn_pre.h"
#include "gdn_step/gdn_step.h"
#include "kreg/st_kreg.h"
#include "lab/lab_case.h"
#include "os/st_process.h"

enum { HK = 16, HV = 48, D = 128, TAPS = 4, C = (2 * HK + HV) * D, LAYERS = 36, T_MAX = 2048 };

/* Buffers of one layer at T_MAX tokens, and the states of all layers. */
typedef struct bench {
  st_pool *pool;
  st_kernel_set set;
  float *qkv, *ab, *z, *conv_w, *gates, *gain, *history, *k_tail;
  float *qn, *kn, *vc, *gb, *kq, *o, *y, *states;
  int32_t next_layer; /* whose state a cold run takes */
} bench;

static strata_status floats(float **out, size_t n, uint64_t *random, double low, double high,
                            strata_error *err) {
  void *memory;
  ST_TRY(st_calloc_aligned(&memory, n, sizeof(float), "the benchmark", err));
  *out = memory;
  for (size_t i = 0; i < n && random; ++i)
    (*out)[i] = (float)(low + (double)(lab_random(random) >> 11) / 9007199254740992.0 * (high - low));
  return STRATA_OK;
}

static void bench_release(bench *b) {
  float *const all[] = {b->qkv, b->ab, b->z, b->conv_w, b->gates, b->gain, b->history, b->k_tail,
                        b->qn, b->kn, b->vc, b->gb, b->kq, b->o, b->y, b->states};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) st_free(all[i]);
}

static strata_status bench_init(bench *b, st_pool *pool, st_cpu_level level, strata_error *err) {
  uint64_t random = 1;
  *b = (bench){.pool = pool};
  st_kernel_set_choose(&b->set, level);
  ST_TRY(floats(&b->qkv, (size_t)T_MAX * C, &random, -2, 2, err));
  ST_TRY(floats(&b->ab, (size_t)T_MAX * 2 * HV, &random, -4, 4, err));
  ST_TRY(floats(&b->z, (size_t)T_MAX * HV * D, &random, -3, 3, err));
  ST_TRY(floats(&b->conv_w, (size_t)C * TAPS, &random, -0.7, 0.7, err));
  ST_TRY(floats(&b->gates, 2 * HV, &random, -4, -1, err));
  ST_TRY(floats(&b->gain, D, &random, 0.5, 1.5, err));
  ST_TRY(floats(&b->history, (size_t)(TAPS - 1) * C, &random, -2, 2, err));
  ST_TRY(floats(&b->k_tail, (size_t)2 * HK * D, NULL, 0, 0, err));
  ST_TRY(floats(&b->qn, (size_t)T_MAX * HK * D, NULL, 0, 0, err));
  ST_TRY(floats(&b->kn, (size_t)(T_MAX + 2) * HK * D, NULL, 0, 0, err));
  ST_TRY(floats(&b->vc, (size_t)T_MAX * HV * D, NULL, 0, 0, err));
  ST_TRY(floats(&b->gb, (size_t)T_MAX * HV * 2, NULL, 0, 0, err));
  ST_TRY(floats(&b->kq, (size_t)T_MAX * HK * 3, NULL, 0, 0, err));
  ST_TRY(floats(&b->o, (size_t)T_MAX * HV * D, NULL, 0, 0, err));
  ST_TRY(floats(&b->y, (size_t)T_MAX * HV * D, NULL, 0, 0, err));
  return floats(&b->states, LAYERS * stk_gdn_state_floats(HV, D, D), NULL, 0, 0, err);
}

typedef enum stage { STAGE_PRE, STAGE_SCAN, STAGE_POST, STAGE_ALL } stage;

/* A row to be timed. */
typedef struct job {
  stage stage;
  int32_t n_tokens, pos0;
  bool cold;
  const stk_kernel *scan; /* NULL: the chosen one */
  double seconds[LAB_ROUNDS_MAX];
} job;

/* The calls of a job, with their args in memory that lives as long. */
typedef struct calls {
  stk_gdn_pre_args pre;
  stk_gdn_scan_args scan;
  stk_gdn_post_args post;
  st_call list[3];
  int32_t n;
} calls;

static void add_call(calls *c, const bench *b, const stk_kernel *kernel, const void *args,
                     int32_t n_tokens) {
  int32_t threads = st_pool_threads(b->pool);
  c->list[c->n++] = (st_call){kernel, args, n_tokens > 1 ? 4 * threads : threads, 0, -1};
}

static void make_calls(calls *c, bench *b, const job *j) {
  const int32_t T = j->n_tokens;
  float *state = b->states + (size_t)b->next_layer * stk_gdn_state_floats(HV, D, D);
  if (j->cold) b->next_layer = (b->next_layer + 1) % LAYERS;
  c->n = 0;
  c->pre = (stk_gdn_pre_args){b->qkv, b->ab, b->conv_w, b->gates, b->gates + HV, b->history,
                              b->k_tail, b->qn, b->kn, b->vc, b->gb, b->kq, T, j->pos0, HK, HV, D,
                              D, TAPS, STK_GDN_ALL, STK_F32};
  c->scan = (stk_gdn_scan_args){b->qn, b->kn, b->vc, b->gb, b->kq, state, b->o, T, j->pos0, HK, HV, D, D, STK_F32};
  c->post = (stk_gdn_post_args){.o = b->o, .z = b->z, .gain = b->gain, .y = b->y, .n_tokens = T,
                                .v_heads = HV, .v_dim = D, .eps = 1e-6f, .outputs = STK_POST_F32};
  const stk_kernel *scan = j->scan ? j->scan : b->set.kernel[T == 1 ? ST_OP_gdn_step : ST_OP_gdn_scan];
  if (j->stage == STAGE_PRE || j->stage == STAGE_ALL) add_call(c, b, b->set.kernel[ST_OP_gdn_pre], &c->pre, T);
  if (j->stage == STAGE_SCAN || j->stage == STAGE_ALL) add_call(c, b, scan, &c->scan, T);
  if (j->stage == STAGE_POST || j->stage == STAGE_ALL) add_call(c, b, b->set.kernel[ST_OP_gdn_post], &c->post, T);
}

static double run_job(bench *b, const job *j) {
  calls c;
  make_calls(&c, b, j);
  double begin = st_clock_seconds();
  st_pool_run(b->pool, c.list, c.n, NULL, NULL);
  return st_clock_seconds() - begin;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The floor of a job's calls, one after the other. A cold state comes from the 36
 * layers' states; everything else of a window from the level that holds it. */
static double floor_of(bench *b, const job *j, const lab_rates *rates) {
  const double states_bytes = (double)LAYERS * sizeof(float) * (double)stk_gdn_state_floats(HV, D, D);
  calls c;
  double seconds = 0;
  make_calls(&c, b, j);
  for (int32_t i = 0; i < c.n; ++i) {
    stk_work near = {0};
    st_kreg_op((st_op)st_kreg_op_by_name(c.list[i].kernel->op))->work(c.list[i].args, &near);
    stk_work far = {.state_bytes = j->cold ? near.state_bytes : 0};
    near.state_bytes -= far.state_bytes;
    const double near_bytes = near.weight_bytes + near.state_bytes + near.io_bytes;
    seconds += lab_floor_split(rates, &near, near_bytes, &far, far.state_bytes > 0 ? states_bytes : 0).seconds;
  }
  return seconds;
}

static void add_row(lab_gdn_rows *out, bench *b, job *j, const lab_rates *rates, int32_t n_rounds) {
  static const char *const names[] = {"pre", "scan", "post", "pre+scan+post"};
  calls c;
  make_calls(&c, b, j);
  qsort(j->seconds, (size_t)n_rounds, sizeof *j->seconds, compare_doubles);
  out->rows[out->n++] = (lab_gdn_row){
      .what = names[j->stage], .variant = c.list[c.n > 1 ? 1 : 0].kernel->variant,
      .n_tokens = j->n_tokens, .cold = j->cold, .best = j->seconds[0],
      .median = j->seconds[n_rounds / 2], .floor = floor_of(b, j, rates)};
}

static const stk_kernel *variant_by_name(const char *name) {
  const stk_kernel *kernel;
  for (int32_t i = 0; (kernel = st_kreg_variant(ST_OP_gdn_scan, i)); ++i)
    if (strcmp(kernel->variant, name) == 0 &&
        st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa)))
      return kernel;
  return NULL;
}

static void measure(bench *b, job *jobs, size_t n_jobs, int32_t n_rounds, const lab_rates *rates,
                    lab_gdn_rows *out) {
  for (size_t i = 0; i < n_jobs; ++i) run_job(b, &jobs[i]); /* pages, caches, clock */
  for (int32_t round = 0; round < n_rounds; ++round)
    for (size_t i = 0; i < n_jobs; ++i) jobs[i].seconds[round] = run_job(b, &jobs[i]);
  for (size_t i = 0; i < n_jobs; ++i) add_row(out, b, &jobs[i], rates, n_rounds);
}

strata_status lab_roof_gdn(st_pool *pool, const lab_ceilings *ceilings, int32_t n_rounds,
                           const char *scan, lab_gdn_rows *out, strata_error *err) {
  static const job all[] = {
      {.stage = STAGE_SCAN, .n_tokens = 1, .pos0 = 0, .cold = true},
      {.stage = STAGE_SCAN, .n_tokens = 1, .pos0 = 1, .cold = true},
      {.stage = STAGE_SCAN, .n_tokens = 2, .cold = true},
      {.stage = STAGE_SCAN, .n_tokens = 4, .cold = true},
      {.stage = STAGE_SCAN, .n_tokens = 8, .cold = true},
      {.stage = STAGE_SCAN, .n_tokens = 64},   {.stage = STAGE_SCAN, .n_tokens = 512},
      {.stage = STAGE_PRE, .n_tokens = 1},     {.stage = STAGE_PRE, .n_tokens = 512},
      {.stage = STAGE_POST, .n_tokens = 1},    {.stage = STAGE_POST, .n_tokens = 512},
      {.stage = STAGE_ALL, .n_tokens = 512},   {.stage = STAGE_ALL, .n_tokens = 1024},
      {.stage = STAGE_ALL, .n_tokens = 2048},  {.stage = STAGE_SCAN, .n_tokens = 512}};
  enum { N = sizeof all / sizeof *all };
  strata_status status = STRATA_OK;
  void *memory = NULL;
  bench b = {0};
  *out = (lab_gdn_rows){0};
  if (n_rounds < 1 || n_rounds > LAB_ROUNDS_MAX)
    ST_FAIL(err, ARG, "lab roof: %d rounds: 1 to %d expected", n_rounds, LAB_ROUNDS_MAX);
  const stk_kernel *other = scan ? variant_by_name(scan) : NULL;
  if (scan && !other)
    ST_FAIL(err, ARG, "lab roof: %s: a variant of gdn_scan that this CPU can run expected", scan);
  ST_TRY_OUT(bench_init(&b, pool, ceilings->level, err));
  ST_TRY_OUT(st_calloc(&memory, N, sizeof(job), "the benchmark", err));
  job *jobs = memory;
  memcpy(jobs, all, sizeof all);
  jobs[N - 1].scan = other;
  measure(&b, jobs, other ? N : N - 1, n_rounds, &ceilings->all, out);
out:
  bench_release(&b);
  st_free(memory);
  return status;
}
