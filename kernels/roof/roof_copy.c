/* isa: scalar avx2 avx512 neon
 * roof_copy -- plain stores: a line that is written is first read, as in kernels. */
#include "common/k_simd.h"
#include "roof/roof.h"

enum { VECTORS = 8 };

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_roof_args *a = args;
  int64_t begin, end;
  stk_slice(a->n_floats, 256, part, n_parts, &begin, &end);
  const int64_t half = (end - begin) / 2;
  float *from = a->data + begin, *to = from + half;
  for (int64_t round = 0; round < a->n_rounds; ++round)
    for (int64_t e = 0; e < half; e += VECTORS * VW) {
      vf x[VECTORS];
      K_UNROLL for (int i = 0; i < VECTORS; ++i) x[i] = vf_load(from + e + i * VW);
      K_UNROLL for (int i = 0; i < VECTORS; ++i) vf_store(to + e + i * VW, x[i]);
      /* Keeps each round: without it one copy would do for all. */
      __asm__ volatile("" : : "r"(to) : "memory");
    }
  a->sink[part] = half ? to[0] : 0.0f;
}

STK_KERNEL_LEVEL(roof_copy, 0, stk_roof_args, STK_EXACT, run);
