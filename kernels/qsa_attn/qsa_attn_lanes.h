/* qsa_attn_lanes.h -- what the attention kernels for GPUs share: numbers of rows of any
 * kind, places in the cache, sums over the lanes of a warp, the output. */
#ifndef QSA_ATTN_LANES_H
#define QSA_ATTN_LANES_H

#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
#include "qsa_attn/qsa_attn_cuda.h"

/* ---- numbers of a row ------------------------------------------------------------------ */

/* 1, 2, 4 or, if they are not f32, 8 neighbouring numbers from element e on, as words of
 * their bits. */
KC_INLINE void load_words(const unsigned char *row, int kind, int e, int n, unsigned w[4]) {
  const int bytes = n * (kind == STK_KV_F32 ? 4 : kind == STK_KV_F16 ? 2 : 1);
  row += bytes / n * e;
  if (bytes == 1) w[0] = *row;
  if (bytes == 2) w[0] = *(const uint16_t *)(const void *)row;
  if (bytes == 4) w[0] = *(const unsigned *)(const void *)row;
  if (bytes == 8) {
    const kc2 f = kc_load2((const float *)(const void *)row);
    KC_UNROLL for (int i = 0; i < 2; ++i) w[i] = (unsigned)ks_bits(f.v[i]);
  }
  if (bytes == 16) {
    const kc4 f = kc_load4((const float *)(const void *)row);
    KC_UNROLL for (int i = 0; i < 4; ++i) w[i] = (unsigned)ks_bits(f.v[i]);
  }
}

/* Number i of some. */
KC_INLINE float number(const unsigned w[4], int i, int kind, float scale) {
  if (kind == STK_KV_F32) return ks_float((int)w[i]);
  if (kind == STK_KV_F16) return kc_from_half((uint16_t)(w[i / 2] >> i % 2 * 16));
  return (float)(int8_t)(w[i / 4] >> i % 4 * 8) * scale;
}

/* The n numbers (4 or 8) of whole words of q8. A byte q + 128 in the middle of the bits of
 * 2^15 is 2^15 + 128 + q; 2^15 + 128 times the scale is exact, since that has eleven bits,
 * and so is q times it. (With a scale of 0 every q is 0: k_cache.h.) Two instructions a number
 * and a quarter; to extract, convert and scale it are three. */
KC_INLINE void q8_numbers(const unsigned w[4], int n, float scale, float *x) {
  const float offset = -32896.0f * scale;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const unsigned bits = kc_permute(w[i / 4] ^ 0x80808080u, 0x4700u, 0x5404u | (unsigned)(i % 4) << 4);
    x[i] = ks_fma(ks_float((int)bits), scale, offset);
  }
}

/* Numbers e .. e + n - 1 of a row, of one group; n is a constant. */
KC_INLINE void load_numbers(const unsigned char *row, const unsigned char *scales, int kind, int e, int n, float *x) {
  unsigned w[4];
  float scale = 0.0f;
  load_words(row, kind, e, n, w);
  if (kind == STK_KV_Q8) scale = kc_from_half(*(const uint16_t *)(const void *)(scales + e / STK_Q8_GROUP * 2));
  if (kind == STK_KV_Q8 && n >= 4) {
    q8_numbers(w, n, scale, x);
    return;
  }
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = number(w, i, kind, scale);
}

/* ---- places in the cache ------------------------------------------------------------------ */

/* dim and kind are constants. */
KC_INLINE qsa_cuda_place place_of(const stk_qsa_attn_args *a, int kv, int cell, int dim, int kind) {
  const int64_t data_bytes = stk_row_data_bytes(dim, kind), scale_bytes = stk_row_scale_bytes(dim, kind);
  const int64_t row = (int64_t)kv * STK_CACHE_PAGE + cell % STK_CACHE_PAGE;
  const uint8_t *page = a->kv_pages[cell / STK_CACHE_PAGE];
  qsa_cuda_place p = {NULL, NULL};
  p.data = page + row * data_bytes;
  if (kind == STK_KV_Q8) p.scales = page + 2 * a->kv_heads * (STK_CACHE_PAGE * data_bytes) + row * scale_bytes;
  return p;
}

/* ---- the output -------------------------------------------------------------------------------- */

/* Element `at` of the output; a NaN leaves as the one that CPUs make. */
KC_INLINE void store_output(const stk_qsa_attn_args *a, int64_t at, float y, int is_nan) {
  is_nan |= y != y;
  if (a->outputs & STK_ATTN_F32) a->out[at] = is_nan ? ks_float(0x7fc00000) : y;
  if (a->outputs & STK_ATTN_F16) a->out_half[at] = is_nan ? (uint16_t)0x7e00 : kc_half(y);
}

#endif
