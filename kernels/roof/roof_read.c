/* isa: scalar avx2 avx512 neon
 * roof_read -- sums in eight chains, so that loads alone count. */
#include "common/k_simd.h"
#include "roof/roof.h"

enum { CHAINS = 8 };

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_roof_args *a = args;
  int64_t begin, end;
  stk_slice(a->n_floats, 256, part, n_parts, &begin, &end);
  vf acc[CHAINS];
  K_UNROLL for (int i = 0; i < CHAINS; ++i) acc[i] = vf_zero();
  for (int64_t round = 0; round < a->n_rounds; ++round)
    for (int64_t e = begin; e < end; e += CHAINS * VW)
      K_UNROLL for (int i = 0; i < CHAINS; ++i) acc[i] = vf_add(acc[i], vf_load(a->data + e + i * VW));
  vf sum = acc[0];
  for (int i = 1; i < CHAINS; ++i) sum = vf_add(sum, acc[i]);
  float lanes[VW];
  vf_store(lanes, sum);
  a->sink[part] = lanes[0];
}

STK_KERNEL_LEVEL(roof_read, 0, stk_roof_args, STK_EXACT, run);
