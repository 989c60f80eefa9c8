/* k_simd.h -- vectors of f32 lanes, one text for every CPU level.
 *
 * A kernel is written once over the type vf (VW lanes) and is built for each
 * level its first comment names; which branch below is taken follows from the
 * compile flags alone. The level called scalar has VW = 1, so the same text is
 * the portable kernel.
 *
 *   level    VW  type
 *   scalar    1  float
 *   neon      4  float32x4_t
 *   avx2      8  __m256
 *   avx512   16  __m512
 *
 * Every operation is one IEEE-754 binary32 operation a lane, round to nearest
 * even. vf_fma(a, b, c) is a * b + c with one rounding. Comparisons with a NaN
 * are false. vf_select(m, a, b) is a where m holds, else b. vf_store_half rounds
 * to fp16, nearest even. vi_store_i8 stores the low byte of lanes in -128 .. 127;
 * bit i of vm_bits is lane i. Another level adds
 * its branch here and its row in src/os/st_cpu_levels.inc. */
#ifndef K_SIMD_H
#define K_SIMD_H

#include <stdint.h>
#include <string.h>

#include "common/k_math.h"

/* Before a loop of a few fixed steps whose vectors must stay in registers. */
#define K_UNROLL _Pragma("GCC unroll 32")
#define K_INLINE static inline __attribute__((always_inline, unused))
/* From here on the compiler does not know what p points to: what it would load once
 * before a loop, and spill, it loads where it is used. */
#define K_OPAQUE(p) __asm__("" : "+r"(p))

#if defined(STK_LEVEL_avx512)

#include <immintrin.h>
#define VW 16
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;
K_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
K_INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
K_INLINE vf vf_set1(float a) { return _mm512_set1_ps(a); }
K_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
K_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
K_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
K_INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
K_INLINE vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
K_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
K_INLINE vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
K_INLINE vf vf_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
K_INLINE vi vi_set1(int32_t a) { return _mm512_set1_epi32(a); }
K_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
K_INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
K_INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
#define vi_sll(a, n) _mm512_slli_epi32((a), (n))
#define vi_sra(a, n) _mm512_srai_epi32((a), (n))
K_INLINE vi vf_bits(vf a) { return _mm512_castps_si512(a); }
K_INLINE vf vi_float(vi a) { return _mm512_castsi512_ps(a); }
K_INLINE vf vi_convert(vi a) { return _mm512_cvtepi32_ps(a); }
K_INLINE void vf_store_half(uint16_t *p, vf a) {
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#define K_SIMD_NARROW
K_INLINE vf vf_load_half(const uint16_t *p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
K_INLINE vf vf_set1_half(uint16_t h) { return _mm512_cvtph_ps(_mm256_set1_epi16((short)h)); }
K_INLINE vf vf_load_i8(const int8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
K_INLINE void vi_store_i8(int8_t *p, vi a) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(a));
}
K_INLINE uint32_t vm_bits(vm m) { return m; }

#elif defined(STK_LEVEL_avx2)

#include <immintrin.h>
#define VW 8
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;
K_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
K_INLINE void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
K_INLINE vf vf_set1(float a) { return _mm256_set1_ps(a); }
K_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
K_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
K_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
K_INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
K_INLINE vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
K_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
K_INLINE vm vf_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
K_INLINE vf vf_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
K_INLINE vi vi_set1(int32_t a) { return _mm256_set1_epi32(a); }
K_INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
K_INLINE vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
K_INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
#define vi_sll(a, n) _mm256_slli_epi32((a), (n))
#define vi_sra(a, n) _mm256_srai_epi32((a), (n))
K_INLINE vi vf_bits(vf a) { return _mm256_castps_si256(a); }
K_INLINE vf vi_float(vi a) { return _mm256_castsi256_ps(a); }
K_INLINE vf vi_convert(vi a) { return _mm256_cvtepi32_ps(a); }
K_INLINE void vf_store_half(uint16_t *p, vf a) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
#define K_SIMD_NARROW
K_INLINE vf vf_load_half(const uint16_t *p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
K_INLINE vf vf_set1_half(uint16_t h) { return _mm256_cvtph_ps(_mm_set1_epi16((short)h)); }
K_INLINE vf vf_load_i8(const int8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
K_INLINE void vi_store_i8(int8_t *p, vi a) {
  __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(words, words));
}
K_INLINE uint32_t vm_bits(vm m) { return (uint32_t)_mm256_movemask_ps(m); }

#elif defined(STK_LEVEL_neon)

#include <arm_neon.h>
#define VW 4
typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint32x4_t vm;
K_INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
K_INLINE void vf_store(float *p, vf a) { vst1q_f32(p, a); }
K_INLINE vf vf_set1(float a) { return vdupq_n_f32(a); }
K_INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
K_INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
K_INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
K_INLINE vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
K_INLINE vf vf_sqrt(vf a) { return vsqrtq_f32(a); }
K_INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
K_INLINE vm vf_lt(vf a, vf b) { return vcltq_f32(a, b); }
K_INLINE vf vf_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
K_INLINE vi vi_set1(int32_t a) { return vdupq_n_s32(a); }
K_INLINE vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
K_INLINE vi vi_sub(vi a, vi b) { return vsubq_s32(a, b); }
K_INLINE vi vi_and(vi a, vi b) { return vandq_s32(a, b); }
#define vi_sll(a, n) vshlq_n_s32((a), (n))
#define vi_sra(a, n) vshrq_n_s32((a), (n))
K_INLINE vi vf_bits(vf a) { return vreinterpretq_s32_f32(a); }
K_INLINE vf vi_float(vi a) { return vreinterpretq_f32_s32(a); }
K_INLINE vf vi_convert(vi a) { return vcvtq_f32_s32(a); }
K_INLINE void vf_store_half(uint16_t *p, vf a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }

#elif defined(STK_LEVEL_scalar)

#define VW 1
typedef float vf;
typedef int32_t vi;
typedef int vm;
K_INLINE vf vf_load(const float *p) { return *p; }
K_INLINE void vf_store(float *p, vf a) { *p = a; }
K_INLINE vf vf_set1(float a) { return a; }
K_INLINE vf vf_add(vf a, vf b) { return a + b; }
K_INLINE vf vf_sub(vf a, vf b) { return a - b; }
K_INLINE vf vf_mul(vf a, vf b) { return a * b; }
K_INLINE vf vf_div(vf a, vf b) { return a / b; }
K_INLINE vf vf_sqrt(vf a) { return __builtin_sqrtf(a); }
K_INLINE vf vf_fma(vf a, vf b, vf c) { return __builtin_fmaf(a, b, c); }
K_INLINE vm vf_lt(vf a, vf b) { return a < b; }
K_INLINE vf vf_select(vm m, vf a, vf b) { return m ? a : b; }
K_INLINE vi vi_set1(int32_t a) { return a; }
K_INLINE vi vi_add(vi a, vi b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
K_INLINE vi vi_sub(vi a, vi b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
K_INLINE vi vi_and(vi a, vi b) { return a & b; }
#define vi_sll(a, n) ((int32_t)((uint32_t)(a) << (n)))
#define vi_sra(a, n) ((a) >> (n))
K_INLINE vi vf_bits(vf a) {
  vi b;
  memcpy(&b, &a, 4);
  return b;
}
K_INLINE vf vi_float(vi a) {
  vf b;
  memcpy(&b, &a, 4);
  return b;
}
K_INLINE vf vi_convert(vi a) { return (float)a; }
K_INLINE void vf_store_half(uint16_t *p, vf a) { *p = (uint16_t)ks_to_half(a); }

#else
#error "the Makefile names the CPU level with -DSTK_LEVEL_<level>"
#endif

/* The narrow types, for a level whose branch does not define them. */
#ifndef K_SIMD_NARROW
K_INLINE vf vf_load_half(const uint16_t *p) {
  float x[VW];
  for (int i = 0; i < VW; ++i) x[i] = ks_from_half(p[i]);
  return vf_load(x);
}
K_INLINE vf vf_set1_half(uint16_t h) { return vf_set1(ks_from_half(h)); }
K_INLINE vf vf_load_i8(const int8_t *p) {
  float x[VW];
  for (int i = 0; i < VW; ++i) x[i] = (float)p[i];
  return vf_load(x);
}
K_INLINE void vi_store_i8(int8_t *p, vi a) {
  int32_t x[VW];
  memcpy(x, &a, sizeof x);
  for (int i = 0; i < VW; ++i) p[i] = (int8_t)x[i];
}
K_INLINE uint32_t vm_bits(vm m) {
  float x[VW];
  uint32_t bits = 0;
  vf_store(x, vf_select(m, vf_set1(1.0f), vf_set1(0.0f)));
  for (int i = 0; i < VW; ++i) bits |= (uint32_t)(x[i] != 0.0f) << i;
  return bits;
}
#endif

K_INLINE vf vf_zero(void) { return vf_set1(0.0f); }
/* The larger one; b when they are equal or when one is a NaN. */
K_INLINE vf vf_max(vf a, vf b) { return vf_select(vf_lt(b, a), a, b); }

#endif
