/* k_norm.h -- root mean square normalisation of one row:
 * y = (x * inv) * gain with inv = rsqrt(tree32(x^2) * (1/n) + eps). */
#ifndef K_NORM_H
#define K_NORM_H

#include "common/k_math.h"
#include "common/k_tree.h"

/* Mean of squares of n values, the 1/n being a rounded f32 constant. */
K_INLINE float k_mean_square(const float *x, int64_t n) { return k_dot(x, x, n) * (1.0f / (float)n); }

/* y may be x. */
K_INLINE void k_scale_gain(const float *x, float inv, const float *gain, int64_t n, float *y) {
  int64_t i = 0;
  for (; i + VW <= n; i += VW)
    vf_store(y + i, vf_mul(vf_mul(vf_load(x + i), vf_set1(inv)), vf_load(gain + i)));
  for (; i < n; ++i) y[i] = (x[i] * inv) * gain[i];
}

/* Returns the mean square. */
K_INLINE float k_rms_norm(const float *x, const float *gain, float eps, int64_t n, float *y) {
  float mean_square = k_mean_square(x, n);
  k_scale_gain(x, ks_rsqrt(mean_square + eps), gain, n, y);
  return mean_square;
}

#endif
