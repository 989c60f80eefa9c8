/* Times ggml's GATED_DELTA_NET beside our gdn_scan, in one process and one run:
 * 16 key and 48 value heads of 128, f32 state, rounds in which every row of both
 * runs once, ggml first in even rounds. Built by bench_ggml.sh; nothing of ggml is in
 * this tree. Prints best and median of each and the ratio of the medians.
 *
 *   bench_ggml THREADS ROUNDS
 *
 * Up to T = 8 the states of 36 layers are cycled through, as a model does. ggml's
 * op leaves the new state behind its output, from where a model copies it back;
 * that copy is not timed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ggml-cpu.h>
#include <ggml.h>

#include "device/cpu/st_pool.h"
#include "gdn_step/gdn_step.h"
#include "kreg/st_kreg.h"
#include "os/st_process.h"

enum { HK = 16, HV = 48, D = 128, LAYERS = 36, T_MAX = 512, ROUNDS_MAX = 101 };

static const int32_t lengths[] = {1, 2, 4, 8, 16, 64, 512};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static int32_t layers_of(int32_t T) { return T <= 8 ? LAYERS : 1; }

static float *filled(size_t n, float low, float high) {
  float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
  if (!x) exit(1);
  for (size_t i = 0; i < n; ++i) x[i] = low + (high - low) * (float)rand() / (float)RAND_MAX;
  return x;
}

/* ---- ours --------------------------------------------------------------------- */

typedef struct ours {
  st_pool *pool;
  st_kernel_set set;
  float *qn, *kn, *vc, *gb, *kq, *states, *o;
  int32_t layer;
} ours;

static double run_ours(ours *b, int32_t T) {
  const size_t state_floats = stk_gdn_state_floats(HV, D, D);
  b->layer = (b->layer + 1) % layers_of(T);
  stk_gdn_scan_args args = {.qn = b->qn, .kn = b->kn, .vc = b->vc, .gb = b->gb, .kq = b->kq,
                            .state = b->states + (size_t)b->layer * state_floats, .o = b->o,
                            .n_tokens = T, .k_heads = HK, .v_heads = HV, .k_dim = D, .v_dim = D};
  int32_t threads = st_pool_threads(b->pool);
  st_call call = {b->set.kernel[T == 1 ? ST_OP_gdn_step : ST_OP_gdn_scan], &args,
                  T > 1 ? 4 * threads : threads, 0, -1};
  double begin = st_clock_seconds();
  st_pool_run(b->pool, &call, 1, NULL, NULL);
  return st_clock_seconds() - begin;
}

/* ---- ggml ---------------------------------------------------------------------- */

typedef struct theirs {
  struct ggml_context *context;
  struct ggml_cgraph *graph[LAYERS];
  struct ggml_cplan plan[LAYERS];
  int32_t layer;
} theirs;

static struct ggml_tensor *tensor(struct ggml_context *c, int64_t a, int64_t b, int64_t n, int64_t s,
                                  float low, float high) {
  struct ggml_tensor *t = ggml_new_tensor_4d(c, GGML_TYPE_F32, a, b, n, s);
  float *x = filled((size_t)(a * b * n * s), low, high);
  memcpy(t->data, x, ggml_nbytes(t));
  free(x);
  return t;
}

static void init_theirs(theirs *b, int32_t T, int n_threads, struct ggml_threadpool *pool) {
  size_t bytes = (size_t)layers_of(T) * (2 * (size_t)HV * D * D + (size_t)T * HV * D + 4096) * 4 +
                 (size_t)T * (2 * HK + HV + 2) * D * 4 + (64 << 20);
  b->context = ggml_init((struct ggml_init_params){.mem_size = bytes});
  struct ggml_tensor *q = tensor(b->context, D, HK, T, 1, -0.15f, 0.15f);
  struct ggml_tensor *k = tensor(b->context, D, HK, T, 1, -0.15f, 0.15f);
  struct ggml_tensor *v = tensor(b->context, D, HV, T, 1, -2, 2);
  struct ggml_tensor *g = tensor(b->context, 1, HV, T, 1, -0.3f, -0.01f);
  struct ggml_tensor *beta = tensor(b->context, 1, HV, T, 1, 0, 1);
  for (int32_t l = 0; l < layers_of(T); ++l) {
    struct ggml_tensor *state = tensor(b->context, D, D, HV, 1, -0.1f, 0.1f);
    b->graph[l] = ggml_new_graph_custom(b->context, 16, false);
    ggml_build_forward_expand(b->graph[l], ggml_gated_delta_net(b->context, q, k, v, g, beta, state, 1));
    b->plan[l] = ggml_graph_plan(b->graph[l], n_threads, pool);
    if (b->plan[l].work_size) b->plan[l].work_data = malloc(b->plan[l].work_size);
  }
}

static double run_theirs(theirs *b, int32_t T) {
  b->layer = (b->layer + 1) % layers_of(T);
  double begin = st_clock_seconds();
  ggml_graph_compute(b->graph[b->layer], &b->plan[b->layer]);
  return st_clock_seconds() - begin;
}

/* ---- the run -------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  static double times[2][N_LENGTHS][ROUNDS_MAX];
  static theirs peer[N_LENGTHS];
  ours us = {0};
  strata_error err;
  if (argc != 3) return 2;
  int threads = atoi(argv[1]), rounds = atoi(argv[2]);
  if (threads < 1 || rounds < 1 || rounds > ROUNDS_MAX) return 2;
  if (st_pool_new(threads, &us.pool, &err) != STRATA_OK) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  st_kernel_set_choose(&us.set, st_cpu_best());
  us.qn = filled((size_t)T_MAX * HK * D, -0.015f, 0.015f);
  us.kn = filled((size_t)(T_MAX + 2) * HK * D, -0.15f, 0.15f);
  us.vc = filled((size_t)T_MAX * HV * D, -2, 2);
  us.gb = filled((size_t)T_MAX * HV * 2, 0.75f, 0.99f);
  us.kq = filled((size_t)T_MAX * HK * 3, -0.1f, 0.1f);
  us.states = filled(LAYERS * stk_gdn_state_floats(HV, D, D), 0, 0);
  us.o = filled((size_t)T_MAX * HV * D, 0, 0);
  struct ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  params.poll = 0; /* threads that spin while the other side runs would disturb it */
  struct ggml_threadpool *pool = ggml_threadpool_new(&params);
  for (int i = 0; i < N_LENGTHS; ++i) init_theirs(&peer[i], lengths[i], threads, pool);

  for (int round = -1; round < rounds; ++round)
    for (int i = 0; i < N_LENGTHS; ++i)
      for (int turn = 0; turn < 2; ++turn) {
        int theirs_now = (turn + round + 2) % 2 == 0;
        /* Once untimed, so that each side's threads are awake. */
        double seconds = theirs_now ? run_theirs(&peer[i], lengths[i]) : run_ours(&us, lengths[i]);
        seconds = theirs_now ? run_theirs(&peer[i], lengths[i]) : run_ours(&us, lengths[i]);
        if (round >= 0) times[theirs_now][i][round] = seconds;
      }
  printf("%6s %12s %12s %12s %12s %8s\n", "T", "ours best", "median us", "ggml best", "median us", "ratio");
  for (int i = 0; i < N_LENGTHS; ++i) {
    for (int side = 0; side < 2; ++side) qsort(times[side][i], (size_t)rounds, sizeof(double), compare);
    double a = times[0][i][rounds / 2], b = times[1][i][rounds / 2];
    printf("%6d %12.1f %12.1f %12.1f %12.1f %8.2f\n", lengths[i], times[0][i][0] * 1e6, a * 1e6,
           times[1][i][0] * 1e6, b * 1e6, b / a);
  }
  return 0;
}
