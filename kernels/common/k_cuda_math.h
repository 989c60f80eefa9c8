/* k_cuda_math.h -- sigmoid and silu for GPU kernels: the bits of k_math.h with fewer
 * instructions where a lane's values are not far from 1, which is decided for the warp.
 *
 * The compiler's division checks the exponents and may call a function; here the
 * divisor is 1 + z in [1, 2], so without tiny numerators the quotient's correction
 * steps alone give the nearest float: y is 1 / divisor within an ulp, and after two
 * corrections by the exact remainder the quotient is correctly rounded. */
#ifndef K_CUDA_MATH_H
#define K_CUDA_MATH_H

#include "common/k_cuda.h"

KC_INLINE float kf_div(float top, float divisor) {
  float y = kc_reciprocal(divisor);
  y = ks_fma(y, ks_fma(-divisor, y, 1.0f), y);
  float q = top * y;
  q = ks_fma(ks_fma(-divisor, q, top), y, q);
  return ks_fma(ks_fma(-divisor, q, top), y, q);
}

#define kf_set1 ks_set1
#define kf_add ks_add
#define kf_sub ks_sub
#define kf_mul ks_mul
#define kf_sqrt ks_sqrt
#define kf_fma ks_fma
#define kf_lt ks_lt
#define kf_select ks_select
#define kf_bits ks_bits
#define kf_float ks_float
#define kf_convert ks_convert
#define kf_iset1 ks_iset1
#define kf_iadd ks_iadd
#define kf_isub ks_isub
#define kf_iand ks_iand
#define kf_isll ks_isll
#define kf_isra ks_isra

#define K(name) kf_##name
#define KF float
#define KI int
#define KM int
#include "common/k_math_body.inc"
#undef K
#undef KF
#undef KI
#undef KM

/* y[i] = sigmoid(x[i]), i < n (constant); y is not x. */
KC_INLINE void kc_sigmoid(const float *x, float *y, int n) {
  int near = 1;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    near &= x[i] > -60.0f;
    y[i] = kf_sigmoid(x[i]);
  }
  if (kc_rarely(!near))
    KC_UNROLL for (int i = 0; i < n; ++i) y[i] = ks_sigmoid(x[i]);
}

/* The same for silu; here x near 0 makes the numerator tiny. */
KC_INLINE void kc_silu(const float *x, float *y, int n) {
  int near = 1;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    near &= (x[i] > -60.0f) & (kc_abs(x[i]) > 8.67361738e-19f); /* 2^-60 */
    y[i] = kf_silu(x[i]);
  }
  if (kc_rarely(!near))
    KC_UNROLL for (int i = 0; i < n; ++i) y[i] = ks_silu(x[i]);
}

#endif
