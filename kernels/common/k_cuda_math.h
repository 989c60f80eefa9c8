/* k_cuda_math.h -- division, sigmoid and silu for GPU kernels: the bits of k_math.h
 * with fewer instructions where values are not far from 1.
 *
 * The compiler's division checks the exponents and may call a function. Where neither
 * quotient nor remainders can leave the range of normal numbers, the steps that
 * correct the quotient by its exact remainder are enough. tests/cuda compares both
 * divisions below with the plain one: every divisor in [1, 2] on the GPU, random pairs
 * on the CPU. */
#ifndef K_CUDA_MATH_H
#define K_CUDA_MATH_H

#include "common/k_cuda.h"

/* a / c, correctly rounded, for |a| in [2^-90, 2^90], c in [2^-30, 2^30] and y = 1 / c
 * correctly rounded: the first correction brings the quotient within one ulp, after
 * the second it is the nearest (Markstein's theorem). */
KC_INLINE float kc_divide_near(float a, float c, float y) {
  float q = a * y;
  q = ks_fma(ks_fma(-q, c, a), y, q);
  return ks_fma(ks_fma(-q, c, a), y, q);
}

/* Both in the range of kc_divide_near's a; false for a NaN. */
KC_INLINE int kc_are_near(float a, float b) {
  a = kc_abs(a);
  b = kc_abs(b);
  const float low = a < b ? a : b, high = a < b ? b : a;
  return (low >= 8.07793567e-28f) & (high <= 1.23794004e27f);
}

/* In the range of its c. */
KC_INLINE int kc_is_near_one(float c) { return c >= 9.31322575e-10f && c <= 1.07374182e9f; }

/* top / divisor for a divisor in [1, 2] and |top| >= 2^-100. */
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
