/* k_rope.h -- partial rotary positions of one head: the pairs (i, i + n) of the
 * first 2n dimensions are turned; the others stay. */
#ifndef K_ROPE_H
#define K_ROPE_H

#include "common/k_math.h"
#include "common/k_simd.h"

K_INLINE void k_rope(float *x, const float *cos, const float *sin, int64_t n) {
  int64_t i = 0;
  for (; i + VW <= n; i += VW) {
    vf low = vf_load(x + i), high = vf_load(x + i + n), c = vf_load(cos + i), s = vf_load(sin + i);
    vf_store(x + i, vf_fma(vf_sub(vf_set1(-0.0f), high), s, vf_mul(low, c)));
    vf_store(x + i + n, vf_fma(low, s, vf_mul(high, c)));
  }
  for (; i < n; ++i) {
    float low = x[i], high = x[i + n];
    x[i] = ks_fma(-high, sin[i], low * cos[i]);
    x[i + n] = ks_fma(low, sin[i], high * cos[i]);
  }
}

#endif
