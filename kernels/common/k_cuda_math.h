/* k_cuda_math.h -- division, sigmoid and silu for GPU kernels: the bits of k_math.h
 * with fewer instructions where values are not far from 1.
 *
 * The compiler's division checks the exponents and may call a function. Where the quotient
 * is a normal number and the remainder is exact (subnormal or not), one step that corrects
 * the one by the other is enough. With y = 1 / c correctly rounded, a * y is
 * within 1.5 ulp of a / c, and q + y * (a - q c), before its rounding, within 5 * 2^-25 ulp.
 * Only a quotient as near as that to the middle between two floats could then go to the
 * wrong one; tests/cuda/test_emulated divides all pairs whose quotients are up to 16 * 2^-25
 * ulp from one (of significands, all there are: 93 million). That the reciprocal of every
 * divisor in [1, 2^120] begins right, tests/cuda/test_device shows on the chip. */
#ifndef K_CUDA_MATH_H
#define K_CUDA_MATH_H

#include "common/k_cuda.h"

/* a / c, correctly rounded, for |a| in [2^-90, 2^90], c in [2^-30, 2^30] and y = 1 / c
 * correctly rounded. */
KC_INLINE float kc_divide_near(float a, float c, float y) {
  const float q = a * y;
  return ks_fma(ks_fma(-q, c, a), y, q);
}

/* Both in [2^-64, 2^64), a part of the range of kc_divide_near's a; false for a NaN. Twice
 * the bits, which shifts the sign out, minus twice those of 2^-64 are below 2^31 then. */
KC_INLINE int kc_are_near(float a, float b) {
  const unsigned lowest = 2u * 0x1f800000u;
  return !((((unsigned)ks_bits(a) * 2u - lowest) | ((unsigned)ks_bits(b) * 2u - lowest)) >> 31);
}

/* In the range of its c. */
KC_INLINE int kc_is_near_one(float c) { return c >= 9.31322575e-10f && c <= 1.07374182e9f; }

/* 1 / divisor, correctly rounded, for a divisor in [1, 2^120]. */
KC_INLINE float kc_inverse(float divisor) {
  const float y = kc_reciprocal(divisor);
  return ks_fma(y, ks_fma(-divisor, y, 1.0f), y);
}

/* top / divisor for a divisor in [1, 2^24] and |top| in [2^-70, 2^7]. */
KC_INLINE float kf_div(float top, float divisor) { return kc_divide_near(top, divisor, kc_inverse(divisor)); }

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

/* Where the shared functions need neither the unit 2^-64 (from -16 on) nor a bound (up to some
 * 60), and silu's numerator is not tiny: sigmoid in [-16, 48), silu for |x| in [2^-60, 16).
 * Said as bits whose two highest are 0, so that of many numbers an OR tells whether all are:
 * of [-16, 48) a float in [0, 2) is made. A NaN is in neither. */
KC_INLINE unsigned kc_sigmoid_range(float x) { return (unsigned)ks_bits(ks_fma(x, 0.03125f, 0.5f)); }
KC_INLINE unsigned kc_silu_range(float x) { return (unsigned)ks_bits(x) * 2u - 2u * 0x21800000u; }
KC_INLINE int kc_are_in_range(unsigned ranges) { return !(ranges & 0xc0000000u); }

/* 1 + e^-x: as in one_plus_exp, where the power of two is the bits of t, shifted. */
KC_INLINE float kc_one_plus_exp_near(float x) {
  float v;
  const float t = kf_exp_reduced(-x, &v), s = ks_float((int)(((unsigned)ks_bits(t) << 23) + 0x3f800000u));
  return ks_fma(v, s, 1.0f + s);
}
KC_INLINE float kc_sigmoid_near(float x) { return kc_inverse(kc_one_plus_exp_near(x)); }
KC_INLINE float kc_silu_near(float x) { return kf_div(x, kc_one_plus_exp_near(x)); }

/* The shared functions out of line: where they are hardly ever needed, their code would only
 * part the lines of the code that is. */
KC_APART float kc_sigmoid_apart(float x) { return ks_sigmoid(x); }
KC_APART float kc_silu_apart(float x) { return ks_silu(x); }

/* y[i] = sigmoid(x[i]), i < n (constant); y is not x. */
KC_INLINE void kc_sigmoid(const float *x, float *y, int n) {
  unsigned ranges = 0;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    ranges |= kc_sigmoid_range(x[i]);
    y[i] = kc_sigmoid_near(x[i]);
  }
  if (kc_rarely(!kc_are_in_range(ranges)))
    KC_UNROLL for (int i = 0; i < n; ++i) y[i] = kc_sigmoid_apart(x[i]);
}

KC_INLINE void kc_silu(const float *x, float *y, int n) {
  unsigned ranges = 0;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    ranges |= kc_silu_range(x[i]);
    y[i] = kc_silu_near(x[i]);
  }
  if (kc_rarely(!kc_are_in_range(ranges)))
    KC_UNROLL for (int i = 0; i < n; ++i) y[i] = kc_silu_apart(x[i]);
}

/* silu_half without its bounds, for |x| up to 80, or a NaN, which the product passes on. */
KC_INLINE float kc_silu_half_near(float x) { return x * kc_inverse(kf_one_plus_exp_half(x)); }
KC_APART float kc_silu_half_apart(float x) { return ks_silu_half(x); }

/* y[i] = silu_half(x[i]), i < n (constant); y is not x. */
KC_INLINE void kc_silu_half(const float *x, float *y, int n) {
  float largest = 0.0f;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    largest = kc_max(largest, kc_abs(x[i]));
    y[i] = kc_silu_half_near(x[i]);
  }
  if (kc_rarely(largest > 80.0f))
    KC_UNROLL for (int i = 0; i < n; ++i) y[i] = kc_silu_half_apart(x[i]);
}

/* x[k] = rsqrt(factor * (sum over the lanes of x[k]) + shift), k < n (constant): square root
 * and division of all are made once, in different lanes. */
KC_INLINE void kc_rsqrt_sums(float *x, int n, float factor, float shift) {
  const float own = ks_rsqrt(kc_lanes_each(x, n, KC_SUM) * factor + shift);
  KC_UNROLL for (int k = 0; k < n; ++k) x[k] = kc_shuffle(own, kc_each_lane(k, n));
}

#endif
