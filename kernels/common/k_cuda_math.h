/* k_cuda_math.h -- division, sigmoid and silu for GPU kernels: the bits of k_math.h
 * with fewer instructions where values are not far from 1.
 *
 * The compiler's division checks the exponents and may call a function. Where neither
 * quotient nor remainders can leave the range of normal numbers, the steps that
 * correct the quotient by its exact remainder are enough. tests/cuda compares both
 * divisions below with the plain one: every divisor in [1, 2^24] on the GPU, random pairs
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

/* top / divisor for a divisor in [1, 2^24] and |top| in [2^-70, 2^7]. For one significand of
 * divisors, all ones, that needs a reciprocal that begins right; tests/cuda/test_device shows
 * it on the chip. */
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

/* The shared functions where they need neither the unit 2^-64 nor a bound: x in [-16, 60), for
 * silu also |x| >= 2^-60, as a smaller x makes the numerator tiny. */
KC_INLINE int kc_sigmoid_is_near(float x) { return x >= -16.0f && x < 60.0f; }
/* As a range of the bits without the sign, where a NaN is a large number. */
KC_INLINE int kc_silu_is_near(float x) {
  const unsigned low = 0x21800000u, high = 0x42700000u; /* 2^-60, 60 */
  return ((unsigned)ks_bits(x) * 2u - 2u * low < 2u * (high - low)) & (x >= -16.0f);
}

/* 1 + e^-x: as in one_plus_exp, where the power of two is the bits of t, shifted. */
KC_INLINE float kc_one_plus_exp_near(float x) {
  float v;
  const float t = kf_exp_reduced(-x, &v), s = ks_float((int)(((unsigned)ks_bits(t) << 23) + 0x3f800000u));
  return ks_fma(v, s, 1.0f + s);
}
KC_INLINE float kc_sigmoid_near(float x) { return kf_div(1.0f, kc_one_plus_exp_near(x)); }
KC_INLINE float kc_silu_near(float x) { return kf_div(x, kc_one_plus_exp_near(x)); }

/* The shared functions out of line: where they are hardly ever needed, their code would only
 * part the lines of the code that is. */
KC_APART float kc_sigmoid_apart(float x) { return ks_sigmoid(x); }
KC_APART float kc_silu_apart(float x) { return ks_silu(x); }

/* y[i] = sigmoid(x[i]), i < n (constant); y is not x. */
KC_INLINE void kc_sigmoid(const float *x, float *y, int n) {
  int near = 1;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    near &= kc_sigmoid_is_near(x[i]);
    y[i] = kc_sigmoid_near(x[i]);
  }
  if (kc_rarely(!near))
    KC_UNROLL for (int i = 0; i < n; ++i) y[i] = kc_sigmoid_apart(x[i]);
}

KC_INLINE void kc_silu(const float *x, float *y, int n) {
  int near = 1;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    near &= kc_silu_is_near(x[i]);
    y[i] = kc_silu_near(x[i]);
  }
  if (kc_rarely(!near))
    KC_UNROLL for (int i = 0; i < n; ++i) y[i] = kc_silu_apart(x[i]);
}

/* x[k] = rsqrt(factor * (sum over the lanes of x[k]) + shift), k < n (constant): square root
 * and division of all are made once, in different lanes. */
KC_INLINE void kc_rsqrt_sums(float *x, int n, float factor, float shift) {
  const float own = ks_rsqrt(kc_lanes_each(x, n, KC_SUM) * factor + shift);
  KC_UNROLL for (int k = 0; k < n; ++k) x[k] = kc_shuffle(own, kc_each_lane(k, n));
}

#endif
