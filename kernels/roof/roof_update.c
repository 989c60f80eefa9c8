/* isa: scalar avx2 avx512 neon
 * roof_update -- the traffic of a recurrent state: each line is read and written. */
#include "common/k_simd.h"
#include "roof/roof.h"

enum { VECTORS = 8 };

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_roof_args *a = args;
  const vf one = vf_set1(1.0f);
  int64_t begin, end;
  stk_slice(a->n_floats, 256, part, n_parts, &begin, &end);
  for (int64_t round = 0; round < a->n_rounds; ++round)
    for (int64_t e = begin; e < end; e += VECTORS * VW)
      K_UNROLL for (int i = 0; i < VECTORS; ++i) {
        float *x = a->data + e + i * VW;
        vf_store(x, vf_add(vf_load(x), one));
      }
  a->sink[part] = begin < end ? a->data[begin] : 0.0f;
}

STK_KERNEL_LEVEL(roof_update, 0, stk_roof_args, STK_EXACT, run);
