/* isa: scalar avx2 avx512 neon
 * roof_fma -- twelve chains hide the latency of one. */
#include "common/k_simd.h"
#include "roof/roof.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_roof_args *a = args;
  (void)n_parts;
  vf acc[STK_ROOF_FMAS], x = vf_set1(0.999f), y = vf_set1(0.001f);
  K_UNROLL for (int i = 0; i < STK_ROOF_FMAS; ++i) acc[i] = vf_set1((float)i);
  for (int64_t round = 0; round < a->n_rounds; ++round)
    K_UNROLL for (int i = 0; i < STK_ROOF_FMAS; ++i) acc[i] = vf_fma(acc[i], x, y);
  vf sum = acc[0];
  for (int i = 1; i < STK_ROOF_FMAS; ++i) sum = vf_add(sum, acc[i]);
  float lanes[VW];
  vf_store(lanes, sum);
  a->sink[part] = lanes[0];
}

STK_KERNEL_LEVEL(roof_fma, 0, stk_roof_args, STK_EXACT, run);
