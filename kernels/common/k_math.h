/* k_math.h -- the shared functions for one lane, in C and in CUDA C:
 * ks_exp ks_log1p ks_sigmoid ks_silu ks_silu_half ks_softplus ks_rsqrt ks_sincos, and
 * the conversions ks_from_half ks_to_half ks_from_bf16.
 *
 * Their bits are part of the numerics contract: a fixed sequence of IEEE
 * operations, built without contraction (-ffp-contract=off, --fmad=false). */
#ifndef K_MATH_H
#define K_MATH_H

#ifdef __CUDACC__
#define K_FUNCTION static __device__ __forceinline__
K_FUNCTION float ks_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
K_FUNCTION float ks_sqrt(float a) { return __fsqrt_rn(a); }
K_FUNCTION int ks_bits(float a) { return __float_as_int(a); }
K_FUNCTION float ks_float(int a) { return __int_as_float(a); }
#else
#include <stdint.h>
#include <string.h>
#define K_FUNCTION static inline __attribute__((always_inline, unused))
K_FUNCTION float ks_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
K_FUNCTION float ks_sqrt(float a) { return __builtin_sqrtf(a); }
K_FUNCTION int ks_bits(float a) {
  int b;
  memcpy(&b, &a, 4);
  return b;
}
K_FUNCTION float ks_float(int a) {
  float b;
  memcpy(&b, &a, 4);
  return b;
}
#endif
K_FUNCTION float ks_add(float a, float b) { return a + b; }
K_FUNCTION float ks_sub(float a, float b) { return a - b; }
K_FUNCTION float ks_mul(float a, float b) { return a * b; }
K_FUNCTION float ks_div(float a, float b) { return a / b; }
K_FUNCTION float ks_set1(float a) { return a; }
K_FUNCTION int ks_lt(float a, float b) { return a < b; }
K_FUNCTION float ks_select(int m, float a, float b) { return m ? a : b; }
K_FUNCTION int ks_iset1(int a) { return a; }
K_FUNCTION int ks_iadd(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
K_FUNCTION int ks_isub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
K_FUNCTION int ks_iand(int a, int b) { return a & b; }
#define ks_isll(a, n) ((int)((unsigned)(a) << (n)))
#define ks_isra(a, n) ((a) >> (n))
K_FUNCTION float ks_convert(int a) { return (float)a; }

#define K(name) ks_##name
#define KF float
#define KI int
#define KM int
#include "common/k_math_body.inc"
#undef K
#undef KF
#undef KI
#undef KM

/* sin and cos of an angle in radians, for every finite x; NaN otherwise. The
 * angle is reduced by pi/2 exactly: the 24 bits of x times the 96 bits of 2/pi
 * that matter for its exponent, in integers, give the quadrant and 64 bits of
 * the rest. */
K_FUNCTION void ks_sincos(float x, float *sin_out, float *cos_out) {
  /* 2/pi = 0.A2F9836E..., 32 bits a word, after four words of zeros for the
   * exponents whose window begins before the point. */
  const unsigned two_over_pi[] = {0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                                  0xdb629599u, 0x3c439041u, 0xfe5163abu};
  unsigned bits = (unsigned)ks_bits(x) & 0x7fffffffu;
  int quadrant = 0;
  float r = ks_float((int)bits), r_low = 0.0f;
  if (bits >= 0x7f800000u) {
    *sin_out = *cos_out = ks_float(0x7fc00000);
    return;
  }
  if (bits > 0x3f490fdau) { /* above pi/4 */
    int exponent = (int)(bits >> 23) - 150;
    unsigned long long mantissa = (bits & 0x7fffffu) | 0x800000u;
    int first = exponent - 2 + 32; /* bit of the table where the window begins */
    int word = first >> 5, shift = first & 31;
    unsigned w[3];
    for (int i = 0; i < 3; ++i) {
      unsigned long long pair = (unsigned long long)two_over_pi[word + i] << 32;
      if (word + i + 1 < 8) pair |= two_over_pi[word + i + 1];
      w[i] = (unsigned)(pair << shift >> 32);
    }
    unsigned long long t = mantissa * w[2];
    unsigned low = (unsigned)t;
    t = (t >> 32) + mantissa * w[1];
    unsigned middle = (unsigned)t;
    t = (t >> 32) + mantissa * w[0];
    unsigned high = (unsigned)t;
    quadrant = (int)(high >> 30);
    unsigned long long fraction =
        ((unsigned long long)high << 34) | ((unsigned long long)middle << 2) | (low >> 30);
    if (fraction >> 63) ++quadrant;
    /* Of a quarter turn, in [-1/2, 1/2) * 2^63. */
    long long part = (long long)fraction >> 1;
    float f = (float)part;
    float f_low = (float)(part - (long long)f);
    const float scale = ks_float(0x20000000);            /* 2^-63 */
    const float half_pi = 1.57079637f, half_pi_low = -4.37113883e-8f;
    f *= scale;
    f_low *= scale;
    r = f * half_pi;
    r_low = ks_fma(f, half_pi, -r) + ks_fma(f, half_pi_low, f_low * half_pi);
  }
  float z = r * r;
  float s = ks_fma(ks_fma(ks_fma(2.71831149e-6f, z, -1.98393348e-4f), z, 8.33332912e-3f), z,
                   -1.66666667e-1f);
  float sine = r + ks_fma(z * r, s, r_low);
  float c = ks_fma(ks_fma(2.44331571e-5f, z, -1.38873163e-3f), z, 4.16666456e-2f);
  float w0 = 1.0f - 0.5f * z;
  float cosine = w0 + (((1.0f - w0) - 0.5f * z) + ks_fma(z * z, c, -(r * r_low)));
  float swapped_sine = (quadrant & 1) ? cosine : sine;
  float swapped_cosine = (quadrant & 1) ? sine : cosine;
  if (quadrant & 2) swapped_sine = -swapped_sine;
  if ((quadrant + 1) & 2) swapped_cosine = -swapped_cosine;
  *sin_out = ks_bits(x) < 0 ? -swapped_sine : swapped_sine;
  *cos_out = swapped_cosine;
}

/* fp16 bits to f32 (exact) and back (nearest even; overflow gives infinity; a
 * NaN stays one and becomes quiet). */
K_FUNCTION float ks_from_half(unsigned h) {
  unsigned sign = (h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    unsigned payload = (magnitude & 0x3ffu) << 13;
    return ks_float((int)(sign | 0x7f800000u | payload | (payload ? 0x400000u : 0u)));
  }
  if (magnitude >= 0x400u) return ks_float((int)(sign | ((magnitude << 13) + 0x38000000u)));
  float subnormal = (float)(int)magnitude * 5.96046448e-8f; /* 2^-24 */
  return ks_float((int)(sign | (unsigned)ks_bits(subnormal)));
}

K_FUNCTION unsigned ks_to_half(float x) {
  unsigned bits = (unsigned)ks_bits(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  if (magnitude >= 0x47800000u) return sign | 0x7c00u; /* 65536 and above */
  if (magnitude < 0x38800000u) {                       /* below 2^-14: subnormal */
    /* Adding 0.5 aligns the last kept bit with the last bit of a float. */
    float aligned = ks_float((int)magnitude) + 0.5f;
    return sign | ((unsigned)ks_bits(aligned) - 0x3f000000u);
  }
  unsigned odd = (magnitude >> 13) & 1u;
  return sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

K_FUNCTION float ks_from_bf16(unsigned h) { return ks_float((int)(h << 16)); }

#endif
