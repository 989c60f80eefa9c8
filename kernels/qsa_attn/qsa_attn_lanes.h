/* qsa_attn_lanes.h -- what the attention kernels for GPUs share: numbers of rows of any
 * kind, places in the cache, sums over the lanes of a warp, the output. */
#ifndef QSA_ATTN_LANES_H
#define QSA_ATTN_LANES_H

#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
#include "qsa_attn/qsa_attn_cuda.h"

/* ---- numbers of a row ------------------------------------------------------------------ */

/* 1 to 4 neighbouring numbers from element e on, as words of their bits. */
KC_INLINE void load_words(const unsigned char *row, int kind, int e, int n, unsigned w[4]) {
  if (kind == STK_KV_Q8 && n == 1) w[0] = row[e];
  else if (kind == STK_KV_Q8 && n == 2) w[0] = *(const uint16_t *)(const void *)(row + e);
  else if (kind == STK_KV_Q8) w[0] = *(const unsigned *)(const void *)(row + e);
  else if (kind == STK_KV_F16 && n == 1) w[0] = *(const uint16_t *)(const void *)(row + 2 * e);
  else if (kind == STK_KV_F16 && n == 2) w[0] = *(const unsigned *)(const void *)(row + 2 * e);
  else if (kind == STK_KV_F32 && n == 1) w[0] = *(const unsigned *)(const void *)(row + 4 * e);
  else if (n == 4 && kind == STK_KV_F32) {
    const kc4 f = kc_load4((const float *)(const void *)(row + 4 * e));
    KC_UNROLL for (int i = 0; i < 4; ++i) w[i] = (unsigned)ks_bits(f.v[i]);
  } else {
    const kc2 f = kc_load2((const float *)(const void *)(row + (kind == STK_KV_F32 ? 4 : 2) * e));
    KC_UNROLL for (int i = 0; i < 2; ++i) w[i] = (unsigned)ks_bits(f.v[i]);
  }
}

KC_INLINE float number(const unsigned w[4], int i, int kind, float scale) {
  if (kind == STK_KV_F32) return ks_float((int)w[i]);
  if (kind == STK_KV_F16) return kc_from_half((uint16_t)(w[i / 2] >> i % 2 * 16));
  return (float)(int8_t)(w[0] >> i * 8) * scale;
}

/* Numbers e .. e + n - 1 of a row; n is a constant. */
KC_INLINE void load_numbers(const unsigned char *row, const unsigned char *scales, int kind, int e, int n, float *x) {
  unsigned w[4];
  float scale = 0.0f;
  load_words(row, kind, e, n, w);
  if (kind == STK_KV_Q8) scale = kc_from_half(*(const uint16_t *)(const void *)(scales + e / STK_Q8_GROUP * 2));
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

/* ---- sums over lanes ------------------------------------------------------------------------ */

KC_INLINE float larger(float a, float b) { return b < a ? a : b; }

/* Of n trees, those that a lane still has after some steps. */
KC_INLINE int trees_left(int n, int step) { return (n + (1 << step) - 1) >> step; }

/* Sums of n trees whose lanes are the warp's, each in one lane: in every step two trees
 * share an exchange, and a lane goes on with one of them. n is a constant. */
KC_INLINE float sum_each(float *v, int n) {
  KC_UNROLL for (int step = 0; step < 5; ++step) {
    const int before = trees_left(n, step), after = trees_left(n, step + 1), upper = kc_lane & 16 >> step;
    KC_UNROLL for (int i = 0; i < (n + 1) / 2; ++i) {
      if (i >= after) continue;
      if (i + after < before) {
        const float keep = upper ? v[i + after] : v[i], give = upper ? v[i] : v[i + after];
        v[i] = keep + kc_shuffle_xor(give, 16 >> step);
      } else {
        v[i] = v[i] + kc_shuffle_xor(v[i], 16 >> step);
      }
    }
  }
  return v[0];
}

/* Which of the n sums this lane has. */
KC_INLINE int sum_index(int n) {
  int index = 0;
  KC_UNROLL for (int step = 4; step >= 0; --step) {
    const int after = trees_left(n, step + 1);
    if (kc_lane & 16 >> step && index + after < trees_left(n, step)) index += after;
  }
  return index;
}

/* ---- the output -------------------------------------------------------------------------------- */

/* Element `at` of the output; a NaN leaves as the one that CPUs make. */
KC_INLINE void store_output(const stk_qsa_attn_args *a, int64_t at, float y, int is_nan) {
  is_nan |= y != y;
  if (a->outputs & STK_ATTN_F32) a->out[at] = is_nan ? ks_float(0x7fc00000) : y;
  if (a->outputs & STK_ATTN_F16) a->out_half[at] = is_nan ? (uint16_t)0x7e00 : kc_half(y);
}

#endif
