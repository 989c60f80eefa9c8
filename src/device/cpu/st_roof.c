/* Ceilings: lists of one call over all threads, timed. */
#include "device/cpu/st_roof.h"

#include "core/st_mem.h"
#include "os/st_process.h"
#include "roof/roof.h"

enum { REPEATS = 12 };

/* The levels of os/st_cpu_levels.inc, each with its lanes. */
#if defined(__x86_64__)
#define LEVELS(X, op) X(op, scalar, 1) X(op, avx2, 8) X(op, avx512, 16)
#elif defined(__aarch64__)
#define LEVELS(X, op) X(op, scalar, 1) X(op, neon, 4)
#else
#define LEVELS(X, op) X(op, scalar, 1)
#endif
#define DECLARE(op, level, lanes) extern const stk_kernel stk_##op##__##level;
#define KERNEL(op, level, lanes) [ST_CPU_##level] = &stk_##op##__##level,
#define LANES(op, level, lanes) [ST_CPU_##level] = lanes,

LEVELS(DECLARE, roof_fma)
LEVELS(DECLARE, roof_dot8)
LEVELS(DECLARE, roof_read)
LEVELS(DECLARE, roof_copy)
LEVELS(DECLARE, roof_update)
static const stk_kernel *const fma_kernels[ST_CPU_LEVELS] = {LEVELS(KERNEL, roof_fma)};
static const stk_kernel *const dot8_kernels[ST_CPU_LEVELS] = {LEVELS(KERNEL, roof_dot8)};
static const stk_kernel *const memory_kernels[ST_TRAFFICS][ST_CPU_LEVELS] = {
    {LEVELS(KERNEL, roof_read)}, {LEVELS(KERNEL, roof_copy)}, {LEVELS(KERNEL, roof_update)}};
static const int32_t lanes_of[ST_CPU_LEVELS] = {LEVELS(LANES, roof_fma)};

/* The shortest time of one call over all threads. */
static double best_time(st_pool *pool, const stk_kernel *kernel, const stk_roof_args *args) {
  const st_call call = {kernel, args, st_pool_threads(pool), 0, -1};
  double best = 1e30;
  for (int i = 0; i < REPEATS; ++i) {
    double begin = st_clock_seconds();
    st_pool_run(pool, &call, 1, NULL, NULL);
    double seconds = st_clock_seconds() - begin;
    if (seconds < best) best = seconds;
  }
  return best;
}

double st_roof_flops(st_pool *pool, st_cpu_level level) {
  float sink[STK_ROOF_PARTS_MAX];
  stk_roof_args args = {.n_rounds = 1 << 20, .sink = sink};
  if (lanes_of[level] == 1) args.n_rounds >>= 3;
  return 2.0 * STK_ROOF_FMAS * lanes_of[level] * (double)args.n_rounds * st_pool_threads(pool) /
         best_time(pool, fma_kernels[level], &args);
}

strata_status st_roof_dot8(st_pool *pool, st_cpu_level level, double *ops_per_s, strata_error *err) {
  float sink[STK_ROOF_PARTS_MAX];
  void *data;
  /* 4 KiB stay in the first cache. */
  stk_roof_args args = {.n_floats = 1024, .n_rounds = 1 << 13, .sink = sink};
  if (lanes_of[level] == 1) args.n_rounds >>= 4;
  *ops_per_s = 0;
  ST_TRY(st_calloc_aligned(&data, (size_t)args.n_floats, sizeof(float), "the roof", err));
  args.data = data;
  double seconds = best_time(pool, dot8_kernels[level], &args);
  st_free(data);
  *ops_per_s = 2.0 * STK_ROOF_DOTS * 4.0 * (double)args.n_floats * (double)args.n_rounds *
               st_pool_threads(pool) / seconds;
  return STRATA_OK;
}

strata_status st_roof_memory(st_pool *pool, st_cpu_level level, st_traffic traffic, int64_t n_bytes,
                             double *bytes_per_s, strata_error *err) {
  float sink[STK_ROOF_PARTS_MAX];
  void *data;
  *bytes_per_s = 0;
  if (n_bytes < 1 || n_bytes > (int64_t)1 << 30)
    ST_FAIL(err, ARG, "roof: %lld bytes: 1 to 2^30 expected", (long long)n_bytes);
  stk_roof_args args = {.sink = sink, .n_floats = (n_bytes + 1023) / 1024 * 256};
  ST_TRY(st_calloc_aligned(&data, (size_t)args.n_floats, sizeof(float), "the roof", err));
  args.data = data;
  /* At least 64 MiB a run: long enough for the clock, short enough to find a quiet
   * moment. */
  args.n_rounds = ((int64_t)64 << 20) / (args.n_floats * 4) + 1;
  double seconds = best_time(pool, memory_kernels[traffic][level], &args);
  st_free(data);
  double touched = 4.0 * (double)args.n_floats * (double)args.n_rounds;
  *bytes_per_s = (traffic == ST_TRAFFIC_UPDATE ? 2.0 : 1.0) * touched / seconds;
  return STRATA_OK;
}
