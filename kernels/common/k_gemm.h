/* k_gemm.h -- products of f32 rows with a stored weight matrix, in the sum
 * order seg256: the inner index is cut into segments of 256; in a segment one
 * chain of fused multiply-adds in ascending order from +0; the segments' sums
 * are added in ascending order, starting from the first.
 *
 * The chains of different weight rows are independent, so a vector holds VW
 * weight rows, and weights are transposed in registers as they are loaded:
 *
 *   k_gemv   one token: weights go straight from memory to the multiply-adds;
 *            limited by the bytes of the weights.
 *   k_gemm   several tokens: a panel of K_NR weight rows is widened to f32 once
 *            a segment, then tiles of K_MR tokens by K_NR rows stay in
 *            registers for the whole segment; limited by the multiply-adds.
 *
 * Both give the same bytes: each output is its own chain. */
#ifndef K_GEMM_H
#define K_GEMM_H

#include <strata/kernel.h>

#include "common/k_simd.h"
#include "common/k_weight.h"

enum {
  K_SEGMENT = 256,
#if defined(STK_LEVEL_avx512)
  K_MR = 12, /* 24 accumulators, 2 weight vectors, 1 broadcast: 27 of 32 registers */
  K_NV = 2,
#elif defined(STK_LEVEL_avx2)
  K_MR = 6, /* 12 accumulators of 16 registers */
  K_NV = 2,
#elif defined(STK_LEVEL_neon)
  K_MR = 5, /* 20 accumulators, 4 weight vectors, 5 broadcasts: 29 of 32 registers */
  K_NV = 4,
#else
  K_MR = 4,
  K_NV = 2,
#endif
  K_NR = K_NV * VW,     /* weight rows of a panel */
  K_NR_GROUP = 4 * K_NR /* rows whose panels share a copied tile of tokens */
};

#define K_FUNCTION_LARGE static __attribute__((noinline, unused))

/* Columns of weights that K_FOR_COLUMNS reads at a time. */
K_INLINE int k_chunk(stk_dtype dtype) { return dtype == STK_F32 ? VW : 2 * VW; }

#if defined(STK_LEVEL_avx512)
/* Transposes 16 rows of 16 dwords. */
K_INLINE void k_transpose(__m512i r[16]) {
  __m512i t[16];
  K_UNROLL for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  K_UNROLL for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  K_UNROLL for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  K_UNROLL for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}
K_INLINE vi k_load_row(const uint8_t *p) { return _mm512_loadu_si512(p); }
K_INLINE vf k_half_low(vi pair) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pair));
}
K_INLINE vf k_half_high(vi pair) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pair, 16)));
}
#elif defined(STK_LEVEL_avx2)
/* Transposes 8 rows of 8 dwords. */
K_INLINE void k_transpose(__m256i r[8]) {
  __m256i t[8];
  K_UNROLL for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  __m256i u[8];
  K_UNROLL for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  K_UNROLL for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
  }
}
K_INLINE vi k_load_row(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
/* The low 16 bits of each dword, in order, as eight halfs. */
K_INLINE __m128i k_words(__m256i pair) {
  __m256i packed = _mm256_packus_epi32(pair, pair);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
K_INLINE vf k_half_low(vi pair) {
  return _mm256_cvtph_ps(k_words(_mm256_and_si256(pair, _mm256_set1_epi32(0xffff))));
}
K_INLINE vf k_half_high(vi pair) { return _mm256_cvtph_ps(k_words(_mm256_srli_epi32(pair, 16))); }
#elif defined(STK_LEVEL_neon)
/* Transposes 4 rows of 4 dwords. */
K_INLINE void k_transpose(int32x4_t r[4]) {
  int64x2_t t[4];
  K_UNROLL for (int i = 0; i < 4; i += 2) {
    t[i] = vreinterpretq_s64_s32(vtrn1q_s32(r[i], r[i + 1]));
    t[i + 1] = vreinterpretq_s64_s32(vtrn2q_s32(r[i], r[i + 1]));
  }
  K_UNROLL for (int i = 0; i < 2; ++i) {
    r[i] = vreinterpretq_s32_s64(vtrn1q_s64(t[i], t[i + 2]));
    r[i + 2] = vreinterpretq_s32_s64(vtrn2q_s64(t[i], t[i + 2]));
  }
}
K_INLINE vi k_load_row(const uint8_t *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
K_INLINE vf k_half_low(vi pair) { return vcvt_f32_f16(vreinterpret_f16_s16(vmovn_s32(pair))); }
K_INLINE vf k_half_high(vi pair) {
  return vcvt_f32_f16(vreinterpret_f16_s16(vshrn_n_s32(pair, 16)));
}
#endif

/* Loads k_chunk(dtype) columns of VW weight rows and does USE(j, column) for
 * j = 0, 1, ... in ascending order; column holds the VW weights of column j.
 * A macro, so that the columns stay in registers. row(i) is the address of row
 * i's first column. */
#if VW > 1
#define K_FOR_COLUMNS(row, dtype, USE) \
  do { \
    vi k_r_[VW]; \
    K_UNROLL for (int k_i_ = 0; k_i_ < VW; ++k_i_) k_r_[k_i_] = k_load_row(row(k_i_)); \
    k_transpose(k_r_); \
    if ((dtype) == STK_F32) { \
      K_UNROLL for (int k_i_ = 0; k_i_ < VW; ++k_i_) USE(k_i_, vi_float(k_r_[k_i_])); \
    } else if ((dtype) == STK_BF16) { \
      K_UNROLL for (int k_i_ = 0; k_i_ < VW; ++k_i_) { \
        USE(2 * k_i_, vi_float(vi_sll(k_r_[k_i_], 16))); \
        USE(2 * k_i_ + 1, \
            vi_float(vi_and(k_r_[k_i_], vi_set1((int32_t)0xffff0000)))); \
      } \
    } else { \
      K_UNROLL for (int k_i_ = 0; k_i_ < VW; ++k_i_) { \
        USE(2 * k_i_, k_half_low(k_r_[k_i_])); \
        USE(2 * k_i_ + 1, k_half_high(k_r_[k_i_])); \
      } \
    } \
  } while (0)
#else
#define K_FOR_COLUMNS(row, dtype, USE) \
  do { \
    K_UNROLL for (int k_i_ = 0; k_i_ < k_chunk(dtype); ++k_i_) \
      USE(k_i_, k_weight(row(0) + (size_t)k_i_ * stk_dtype_bytes(dtype), (dtype))); \
  } while (0)
#endif

/* The VW weights of one column, row by row, for columns past the last chunk. */
K_INLINE vf k_gather_column(const uint8_t *const rows[VW], size_t at, stk_dtype dtype) {
  float column[VW];
  for (int i = 0; i < VW; ++i) column[i] = k_weight(rows[i] + at, dtype);
  return vf_load(column);
}

/* ---- one token ------------------------------------------------------------- */

enum { K_GEMV_BLOCKS = 4, K_GEMV_ROWS = K_GEMV_BLOCKS * VW };

/* y[0 .. n_rows) of rows row0 .. row0 + n_rows - 1 of w, times x; n_rows is at
 * most K_GEMV_BLOCKS * VW, and rows past it are read as the last one. Four
 * blocks of rows run side by side: a chain of multiply-adds alone would wait
 * for itself. */
K_INLINE void k_gemv_block(const stk_matrix *w, stk_dtype dtype, const float *x, int64_t row0,
                           int n_rows, int n_blocks, float *y) {
  const size_t elem = stk_dtype_bytes(dtype);
  const size_t row_bytes = (size_t)w->n_cols * elem;
  const uint8_t *rows[K_GEMV_BLOCKS][VW];
  for (int b = 0; b < n_blocks; ++b)
    for (int i = 0; i < VW; ++i) {
      int r = b * VW + i < n_rows ? b * VW + i : n_rows - 1;
      rows[b][i] = (const uint8_t *)w->data + (size_t)(row0 + r) * row_bytes;
    }
  /* A chunk touches one line in each of many rows, which the hardware does not
   * see coming: ask for what is 256 bytes further on in each row, and past its
   * end in the row of the next group. */
  const size_t distance = row_bytes < 256 ? row_bytes : 256;
  const int chunk = k_chunk(dtype);
  vf total[K_GEMV_BLOCKS];
  for (int b = 0; b < n_blocks; ++b) total[b] = vf_zero();
  for (int64_t begin = 0; begin < w->n_cols; begin += K_SEGMENT) {
    int64_t end = begin + K_SEGMENT < w->n_cols ? begin + K_SEGMENT : w->n_cols;
    vf sum[K_GEMV_BLOCKS];
    for (int b = 0; b < n_blocks; ++b) sum[b] = vf_zero();
    int64_t k = begin;
    for (; k + chunk <= end; k += chunk)
      for (int b = 0; b < n_blocks; ++b) {
        vf acc = sum[b];
        size_t ahead = (size_t)k * elem + distance;
        if (ahead >= row_bytes) ahead += (K_GEMV_ROWS - 1) * row_bytes;
        K_UNROLL for (int i = 0; i < VW; ++i) __builtin_prefetch(rows[b][i] + ahead, 0, 2);
#define K_ROW(i) (rows[b][i] + (size_t)k * elem)
#define K_USE(j, column) acc = vf_fma((column), vf_set1(x[k + (j)]), acc)
        K_FOR_COLUMNS(K_ROW, dtype, K_USE);
#undef K_USE
#undef K_ROW
        sum[b] = acc;
      }
    for (; k < end; ++k)
      for (int b = 0; b < n_blocks; ++b)
        sum[b] = vf_fma(k_gather_column(rows[b], (size_t)k * elem, dtype), vf_set1(x[k]), sum[b]);
    for (int b = 0; b < n_blocks; ++b) total[b] = begin ? vf_add(total[b], sum[b]) : sum[b];
  }
  float lanes[K_GEMV_ROWS];
  for (int b = 0; b < n_blocks; ++b) vf_store(lanes + b * VW, total[b]);
  memcpy(y, lanes, (size_t)n_rows * sizeof *y);
}

/* y[r - row0] = w[r] . x for rows row0 .. row1 - 1. */
K_FUNCTION_LARGE void k_gemv(const stk_matrix *w, const float *x, int64_t row0, int64_t row1, float *y) {
  for (int64_t r = row0; r < row1; r += K_GEMV_ROWS) {
    int n_rows = (int)(row1 - r < K_GEMV_ROWS ? row1 - r : K_GEMV_ROWS);
    float *out = y + (r - row0);
    /* Constant arguments let the compiler make one loop for each case. */
#define K_CASE(dtype_) \
  (n_rows > 2 * VW ? k_gemv_block(w, dtype_, x, r, n_rows, K_GEMV_BLOCKS, out) \
   : n_rows > VW   ? k_gemv_block(w, dtype_, x, r, n_rows, 2, out) \
                   : k_gemv_block(w, dtype_, x, r, n_rows, 1, out))
    if (w->dtype == STK_BF16) K_CASE(STK_BF16);
    else if (w->dtype == STK_F16) K_CASE(STK_F16);
    else K_CASE(STK_F32);
#undef K_CASE
  }
}

/* ---- several tokens -------------------------------------------------------- */

/* Widens columns begin .. end - 1 of K_NR rows from row0 on to panel[k][K_NR];
 * rows from n_rows on repeat the last one and are never read back. */
K_INLINE void k_pack_typed(const stk_matrix *w, stk_dtype dtype, int64_t row0, int n_rows,
                           int64_t begin, int64_t end, float *panel) {
  const size_t elem = stk_dtype_bytes(dtype);
  const size_t row_bytes = (size_t)w->n_cols * elem;
  const int chunk = k_chunk(dtype);
  for (int v = 0; v < K_NV; ++v) {
    const uint8_t *rows[VW];
    for (int i = 0; i < VW; ++i) {
      int r = v * VW + i < n_rows ? v * VW + i : n_rows - 1;
      rows[i] = (const uint8_t *)w->data + (size_t)(row0 + r) * row_bytes;
    }
    int64_t k = begin;
    for (; k + chunk <= end; k += chunk) {
      float *out = panel + (k - begin) * K_NR + v * VW;
#define K_ROW(i) (rows[i] + (size_t)k * elem)
#define K_USE(j, column) vf_store(out + (j) * K_NR, (column))
      K_FOR_COLUMNS(K_ROW, dtype, K_USE);
#undef K_USE
#undef K_ROW
    }
    for (; k < end; ++k)
      vf_store(panel + (k - begin) * K_NR + v * VW, k_gather_column(rows, (size_t)k * elem, dtype));
  }
}

K_FUNCTION_LARGE void k_pack(const stk_matrix *w, int64_t row0, int n_rows, int64_t begin, int64_t end,
                          float *panel) {
  if (w->dtype == STK_BF16) k_pack_typed(w, STK_BF16, row0, n_rows, begin, end, panel);
  else if (w->dtype == STK_F16) k_pack_typed(w, STK_F16, row0, n_rows, begin, end, panel);
  else k_pack_typed(w, STK_F32, row0, n_rows, begin, end, panel);
}

/* One segment of a tile: c[i][K_NR] = or += x[i] . panel for n_tokens <= K_MR
 * tokens. x is the copied tile [K_MR][K_SEGMENT]; c has row stride c_stride. */
K_INLINE void k_tile(const float *x, const float *panel, int64_t depth, int n_tokens, float *c,
                     int64_t c_stride, int first) {
  vf acc[K_MR][K_NV];
  K_UNROLL for (int i = 0; i < K_MR; ++i)
    K_UNROLL for (int v = 0; v < K_NV; ++v) acc[i][v] = vf_zero();
  for (int64_t k = 0; k < depth; ++k) {
    vf w[K_NV];
    K_UNROLL for (int v = 0; v < K_NV; ++v) w[v] = vf_load(panel + k * K_NR + v * VW);
    K_UNROLL for (int i = 0; i < K_MR; ++i) {
      vf xi = vf_set1(x[i * K_SEGMENT + k]);
      K_UNROLL for (int v = 0; v < K_NV; ++v) acc[i][v] = vf_fma(w[v], xi, acc[i][v]);
    }
  }
  K_UNROLL for (int i = 0; i < K_MR; ++i)
    if (i < n_tokens)
      K_UNROLL for (int v = 0; v < K_NV; ++v) {
        float *out = c + i * c_stride + v * VW;
        vf_store(out, first ? acc[i][v] : vf_add(vf_load(out), acc[i][v]));
      }
}

/* The rows of x that k_gemm multiplies: token i is at x + index[i] * x_stride,
 * or x + i * x_stride when index is NULL. */
typedef struct k_rows {
  const float *x;
  int64_t x_stride;
  const int32_t *index;
} k_rows;

K_INLINE const float *k_row(const k_rows *rows, int64_t i) {
  return rows->x + (rows->index ? rows->index[i] : i) * rows->x_stride;
}

/* c[i][r - row0] = w[r] . token i, for tokens 0 .. n_tokens - 1 and rows row0 ..
 * row1 - 1, at most K_NR_GROUP of them. c has c_stride floats a row; c itself
 * holds the running sums between segments. */
K_FUNCTION_LARGE void k_gemm(const stk_matrix *w, const k_rows *rows, int64_t n_tokens, int64_t row0,
                   int64_t row1, float *c, int64_t c_stride) {
  _Alignas(64) float panel[4][K_SEGMENT * K_NR];
  _Alignas(64) float x[K_MR * K_SEGMENT];
  for (int i = 0; i < K_MR * K_SEGMENT; ++i) x[i] = 0.0f;
  for (int64_t begin = 0; begin < w->n_cols; begin += K_SEGMENT) {
    int64_t end = begin + K_SEGMENT < w->n_cols ? begin + K_SEGMENT : w->n_cols;
    int64_t depth = end - begin;
    int n_panels = 0;
    for (int64_t r = row0; r < row1; r += K_NR, ++n_panels)
      k_pack(w, r, (int)(row1 - r < K_NR ? row1 - r : K_NR), begin, end, panel[n_panels]);
    for (int64_t t = 0; t < n_tokens; t += K_MR) {
      int n = (int)(n_tokens - t < K_MR ? n_tokens - t : K_MR);
      for (int i = 0; i < n; ++i)
        memcpy(x + i * K_SEGMENT, k_row(rows, t + i) + begin, (size_t)depth * sizeof *x);
      for (int p = 0; p < n_panels; ++p) {
        float *out = c + t * c_stride + p * K_NR;
        int n_cols = (int)(row1 - row0 - p * K_NR < K_NR ? row1 - row0 - p * K_NR : K_NR);
        if (n_cols == K_NR) {
          k_tile(x, panel[p], depth, n, out, c_stride, begin == 0);
        } else {
          /* A panel that is not full goes through a tile of its own, so that
           * nothing is written past the last row. */
          float tile[K_MR * K_NR];
          for (int i = 0; i < n && begin; ++i)
            memcpy(tile + i * K_NR, out + i * c_stride, (size_t)n_cols * sizeof *tile);
          k_tile(x, panel[p], depth, n, tile, K_NR, begin == 0);
          for (int i = 0; i < n; ++i)
            memcpy(out + i * c_stride, tile + i * K_NR, (size_t)n_cols * sizeof *tile);
        }
      }
    }
  }
}

#endif
