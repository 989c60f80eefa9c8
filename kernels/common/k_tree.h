/* k_tree.h -- the sum order tree32: sums along a head or a row.
 *
 * Element e belongs to lane e mod 32 and step e div 32. In a lane, four steps
 * at a time are added as (s0 + s1) + (s2 + s3), missing elements being +0, and
 * these groups are added in ascending order, starting from the first. Then the
 * 32 lanes are combined by halves: l += l^16, l^8, l^4, l^2, l^1. An empty sum
 * is +0. Products are rounded one by one.
 *
 * And fma32, for attention's dot products: the same lanes, n a multiple of 32; in a
 * lane one chain of fused multiply-adds in ascending order, which begins with the
 * first product, rounded; then the same halves. */
#ifndef K_TREE_H
#define K_TREE_H

#include "common/k_simd.h"

enum { K_TREE_VECTORS = 32 / VW };

/* The 32 lanes of a tree sum, as vectors. */
typedef struct k_lanes {
  vf v[K_TREE_VECTORS];
} k_lanes;

/* The first halvings, down to one vector. */
K_INLINE vf k_lanes_fold(k_lanes a) {
  K_UNROLL for (int half = K_TREE_VECTORS / 2; half; half /= 2)
    K_UNROLL for (int i = 0; i < half; ++i) a.v[i] = vf_add(a.v[i], a.v[i + half]);
  return a.v[0];
}

/* Sum of the 32 lanes by halves. */
K_INLINE float k_lanes_sum(k_lanes a) {
  vf v = k_lanes_fold(a);
#if defined(STK_LEVEL_avx512)
  __m256 y = _mm256_add_ps(_mm512_castps512_ps256(v),
                           _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)));
#elif defined(STK_LEVEL_avx2)
  __m256 y = v;
#endif
#if defined(STK_LEVEL_avx512) || defined(STK_LEVEL_avx2)
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  x = _mm_add_ss(x, _mm_movehdup_ps(x));
  return _mm_cvtss_f32(x);
#elif defined(STK_LEVEL_neon)
  return vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v)));
#else
  return v;
#endif
}

/* The largest of the 32 lanes by halves: max(a, b) is a if b < a, else b. */
K_INLINE float k_lanes_max(k_lanes a) {
  float lane[VW];
  K_UNROLL for (int half = K_TREE_VECTORS / 2; half; half /= 2)
    K_UNROLL for (int i = 0; i < half; ++i) a.v[i] = vf_max(a.v[i], a.v[i + half]);
  vf_store(lane, a.v[0]);
  K_UNROLL for (int half = VW / 2; half; half /= 2)
    K_UNROLL for (int i = 0; i < half; ++i) lane[i] = lane[i + half] < lane[i] ? lane[i] : lane[i + half];
  return lane[0];
}

/* Lane i of the result is the sum by halves of the lanes of v[i]: VW sums for
 * little more than the work of three. */
K_INLINE vf k_sum_each(vf v[VW]) {
#if defined(STK_LEVEL_avx512)
  vf a[8], b[4], c[2];
  K_UNROLL for (int i = 0; i < 8; ++i)
    a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                         _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xee));
  K_UNROLL for (int i = 0; i < 4; ++i)
    b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));
  K_UNROLL for (int i = 0; i < 2; ++i)
    c[i] = _mm512_add_ps(_mm512_shuffle_ps(b[2 * i], b[2 * i + 1], 0x44),
                         _mm512_shuffle_ps(b[2 * i], b[2 * i + 1], 0xee));
  vf sums = _mm512_add_ps(_mm512_shuffle_ps(c[0], c[1], 0x88), _mm512_shuffle_ps(c[0], c[1], 0xdd));
  /* 128-bit lane L holds the sums 4e + L, e = 0 .. 3. */
  return _mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums);
#elif defined(STK_LEVEL_avx2)
  vf a[4], b[2];
  K_UNROLL for (int i = 0; i < 4; ++i)
    a[i] = _mm256_add_ps(_mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x20),
                         _mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x31));
  K_UNROLL for (int i = 0; i < 2; ++i)
    b[i] = _mm256_add_ps(_mm256_shuffle_ps(a[2 * i], a[2 * i + 1], 0x44),
                         _mm256_shuffle_ps(a[2 * i], a[2 * i + 1], 0xee));
  vf sums = _mm256_add_ps(_mm256_shuffle_ps(b[0], b[1], 0x88), _mm256_shuffle_ps(b[0], b[1], 0xdd));
  /* 128-bit lane L holds the sums 2e + L, e = 0 .. 3. */
  return _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#elif defined(STK_LEVEL_neon)
  vf a[2];
  K_UNROLL for (int i = 0; i < 2; ++i)
    a[i] = vaddq_f32(vcombine_f32(vget_low_f32(v[2 * i]), vget_low_f32(v[2 * i + 1])),
                     vcombine_f32(vget_high_f32(v[2 * i]), vget_high_f32(v[2 * i + 1])));
  return vpaddq_f32(a[0], a[1]);
#else
  return v[0];
#endif
}

/* The lanes of sum_e a[e] * b[e], n elements. */
K_INLINE k_lanes k_dot_lanes(const float *a, const float *b, int64_t n) {
  k_lanes total;
  K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) total.v[i] = vf_zero();
  int64_t e = 0;
  for (; e + 128 <= n; e += 128)
    K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) {
      const float *p = a + e + i * VW, *q = b + e + i * VW;
      vf s0 = vf_mul(vf_load(p), vf_load(q)), s1 = vf_mul(vf_load(p + 32), vf_load(q + 32));
      vf s2 = vf_mul(vf_load(p + 64), vf_load(q + 64)), s3 = vf_mul(vf_load(p + 96), vf_load(q + 96));
      vf group = vf_add(vf_add(s0, s1), vf_add(s2, s3));
      total.v[i] = e ? vf_add(total.v[i], group) : group;
    }
  if (e < n) {
    /* The last group with its missing elements: their products are +0. */
    float product[128] = {0};
    for (int64_t j = 0; e + j < n; ++j) product[j] = a[e + j] * b[e + j];
    K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) {
      const float *p = product + i * VW;
      vf group = vf_add(vf_add(vf_load(p), vf_load(p + 32)),
                        vf_add(vf_load(p + 64), vf_load(p + 96)));
      total.v[i] = e ? vf_add(total.v[i], group) : group;
    }
  }
  return total;
}

K_INLINE float k_dot(const float *a, const float *b, int64_t n) {
  return k_lanes_sum(k_dot_lanes(a, b, n));
}

/* The lanes of sum_e a[e] * b[e] in the order fma32. */
K_INLINE k_lanes k_fma_lanes(const float *a, const float *b, int64_t n) {
  k_lanes total;
  K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i)
    total.v[i] = vf_mul(vf_load(a + i * VW), vf_load(b + i * VW));
  for (int64_t e = 32; e < n; e += 32)
    K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i)
      total.v[i] = vf_fma(vf_load(a + e + i * VW), vf_load(b + e + i * VW), total.v[i]);
  return total;
}

/* The tree sum of 32 values: one step, so each lane is (s + 0) + (0 + 0). */
K_INLINE float k_sum32(const float *a) {
  k_lanes lanes;
  K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) lanes.v[i] = vf_add(vf_load(a + i * VW), vf_zero());
  return k_lanes_sum(lanes);
}

#endif
