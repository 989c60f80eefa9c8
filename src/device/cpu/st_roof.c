/* Ceilings: the best of several short runs, since others share the machine. */
#include "device/cpu/st_roof.h"

#include "core/st_mem.h"
#include "os/st_process.h"
#include "roof/roof.h"

enum { REPEATS = 12 };

#define LEVELS(op) \
  {&stk_##op##__scalar, &stk_##op##__avx2, &stk_##op##__avx512}
#if defined(__x86_64__)
extern const stk_kernel stk_roof_fma__scalar, stk_roof_fma__avx2, stk_roof_fma__avx512;
extern const stk_kernel stk_roof_read__scalar, stk_roof_read__avx2, stk_roof_read__avx512;
static const stk_kernel *const fma_kernels[] = LEVELS(roof_fma);
static const stk_kernel *const read_kernels[] = LEVELS(roof_read);
#else
extern const stk_kernel stk_roof_fma__scalar, stk_roof_read__scalar;
static const stk_kernel *const fma_kernels[] = {&stk_roof_fma__scalar};
static const stk_kernel *const read_kernels[] = {&stk_roof_read__scalar};
#endif

static int32_t lanes_of(st_cpu_level level) {
#if defined(__x86_64__)
  if (level == ST_CPU_avx512) return 16;
  if (level == ST_CPU_avx2) return 8;
#endif
  (void)level;
  return 1;
}

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

strata_status st_roof_flops(st_pool *pool, st_cpu_level level, double *flops_per_s,
                            strata_error *err) {
  float sink[STK_ROOF_PARTS_MAX];
  (void)err;
  stk_roof_args args = {.n_rounds = 1 << 20, .sink = sink};
  if (lanes_of(level) == 1) args.n_rounds >>= 3;
  double seconds = best_time(pool, fma_kernels[level], &args);
  *flops_per_s = 2.0 * STK_ROOF_FMAS * lanes_of(level) * (double)args.n_rounds *
                 st_pool_threads(pool) / seconds;
  return STRATA_OK;
}

strata_status st_roof_read(st_pool *pool, st_cpu_level level, int64_t n_bytes, double *bytes_per_s,
                           strata_error *err) {
  float sink[STK_ROOF_PARTS_MAX];
  void *data;
  *bytes_per_s = 0;
  if (n_bytes < 1 || n_bytes > (int64_t)1 << 30)
    ST_FAIL(err, ARG, "roof: %lld bytes: 1 to 2^30 expected", (long long)n_bytes);
  stk_roof_args args = {.sink = sink, .n_floats = (n_bytes + 1023) / 1024 * 256};
  ST_TRY(st_calloc_aligned(&data, (size_t)args.n_floats, sizeof(float), "the roof", err));
  args.data = data;
  /* About 64 MiB a run: long enough for the clock, short enough to find a quiet
   * moment. */
  args.n_rounds = ((int64_t)64 << 20) / (args.n_floats * 4) + 1;
  double seconds = best_time(pool, read_kernels[level], &args);
  st_free(data);
  *bytes_per_s = 4.0 * (double)args.n_floats * (double)args.n_rounds / seconds;
  return STRATA_OK;
}
