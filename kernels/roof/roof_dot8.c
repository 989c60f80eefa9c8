/* isa: scalar avx2 avx512 neon
 * roof_dot8 -- an unsigned byte times a signed one. The levels have no instruction
 * for the whole (they do without VNNI): pairs of products are added in 16 bits,
 * pairs of those in 32. */
#include "common/k_simd.h"
#include "roof/roof.h"

#if defined(STK_LEVEL_avx512)
enum { BYTES = 64 };
typedef __m512i lanes;
K_INLINE lanes load(const uint8_t *p) { return _mm512_loadu_si512(p); }
K_INLINE lanes zero(void) { return _mm512_setzero_si512(); }
K_INLINE lanes weights(int i) { return _mm512_set1_epi8((char)(3 * i - 4)); }
K_INLINE lanes dot(lanes sum, lanes x, lanes w) {
  lanes pairs = _mm512_madd_epi16(_mm512_maddubs_epi16(x, w), _mm512_set1_epi16(1));
  return _mm512_add_epi32(sum, pairs);
}
K_INLINE int32_t first(lanes x) { return _mm_cvtsi128_si32(_mm512_castsi512_si128(x)); }
#elif defined(STK_LEVEL_avx2)
enum { BYTES = 32 };
typedef __m256i lanes;
K_INLINE lanes load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
K_INLINE lanes zero(void) { return _mm256_setzero_si256(); }
K_INLINE lanes weights(int i) { return _mm256_set1_epi8((char)(3 * i - 4)); }
K_INLINE lanes dot(lanes sum, lanes x, lanes w) {
  lanes pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), _mm256_set1_epi16(1));
  return _mm256_add_epi32(sum, pairs);
}
K_INLINE int32_t first(lanes x) { return _mm256_extract_epi32(x, 0); }
#elif defined(STK_LEVEL_neon)
enum { BYTES = 16 };
typedef int32x4_t lanes;
K_INLINE lanes load(const uint8_t *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
K_INLINE lanes zero(void) { return vdupq_n_s32(0); }
K_INLINE lanes weights(int i) { return vreinterpretq_s32_s8(vdupq_n_s8((int8_t)(3 * i - 4))); }
K_INLINE lanes dot(lanes sum, lanes x, lanes w) {
  const uint8x16_t u = vreinterpretq_u8_s32(x);
  const int16x8_t s = vmovl_s8(vget_low_s8(vreinterpretq_s8_s32(w)));
  const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(u)));
  const int16x8_t high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(u)));
  const int16x8_t pairs = vpaddq_s16(vmulq_s16(low, s), vmulq_s16(high, s));
  return vpadalq_s16(sum, pairs);
}
K_INLINE int32_t first(lanes x) { return vgetq_lane_s32(x, 0); }
#else
enum { BYTES = 1 };
typedef int32_t lanes;
K_INLINE lanes load(const uint8_t *p) { return *p; }
K_INLINE lanes zero(void) { return 0; }
K_INLINE lanes weights(int i) { return 3 * i - 4; }
K_INLINE lanes dot(lanes sum, lanes x, lanes w) { return (int32_t)((uint32_t)sum + (uint32_t)(x * w)); }
K_INLINE int32_t first(lanes x) { return x; }
#endif

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_roof_args *a = args;
  const uint8_t *data = (const uint8_t *)a->data;
  (void)n_parts;
  lanes sum[STK_ROOF_DOTS], w[STK_ROOF_DOTS];
  K_UNROLL for (int i = 0; i < STK_ROOF_DOTS; ++i) sum[i] = zero(), w[i] = weights(i);
  for (int64_t round = 0; round < a->n_rounds; ++round)
    for (int64_t e = 0; e < 4 * a->n_floats; e += BYTES) {
      const lanes x = load(data + e);
      K_UNROLL for (int i = 0; i < STK_ROOF_DOTS; ++i) sum[i] = dot(sum[i], x, w[i]);
    }
  int32_t total = 0;
  for (int i = 0; i < STK_ROOF_DOTS; ++i) total += first(sum[i]) & 0xff;
  a->sink[part] = (float)total;
}

STK_KERNEL_LEVEL(roof_dot8, 0, stk_roof_args, STK_EXACT, run);
