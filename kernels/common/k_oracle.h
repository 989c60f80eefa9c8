/* k_oracle.h -- the sum orders and conversions as plainly as they can be said,
 * for the oracles. Nothing here is shared with the kernels. */
#ifndef K_ORACLE_H
#define K_ORACLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <strata/kernel.h>

#include "common/k_cache.h"
#include "common/k_math.h"
#include "common/k_rows.h"

/* One element of a stored matrix. */
static inline float ko_element(const stk_matrix *m, int64_t row, int64_t col) {
  size_t at = (size_t)row * (size_t)m->n_cols + (size_t)col;
  const uint8_t *p = (const uint8_t *)m->data + at * stk_dtype_bytes(m->dtype);
  if (m->dtype == STK_F32) {
    float x;
    memcpy(&x, p, 4);
    return x;
  }
  unsigned h = (unsigned)p[0] | (unsigned)p[1] << 8;
  return m->dtype == STK_BF16 ? ks_from_bf16(h) : ks_from_half(h);
}

/* tree32 over products a[e] * b[e] of two rows (k_rows.h; b NULL: over a). */
static inline float ko_tree32_rows(const void *a, const void *b, int32_t type, int64_t n) {
  float lane[32] = {0};
  for (int64_t group = 0; group * 128 < n; ++group)
    for (int l = 0; l < 32; ++l) {
      float s[4];
      for (int step = 0; step < 4; ++step) {
        int64_t e = group * 128 + step * 32 + l;
        float x = e < n ? k_rows_get(a, e, type) : 0.0f;
        s[step] = e < n && b ? x * k_rows_get(b, e, type) : x;
      }
      float sum = (s[0] + s[1]) + (s[2] + s[3]);
      lane[l] = group ? lane[l] + sum : sum;
    }
  for (int half = 16; half; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  return lane[0];
}

static inline float ko_tree32(const float *a, const float *b, int64_t n) {
  return ko_tree32_rows(a, b, STK_F32, n);
}

/* fma32: lanes as in tree32, in each a chain of fused multiply-adds. n % 32 = 0. */
static inline float ko_fma32(const float *a, const float *b, int64_t n) {
  float lane[32];
  for (int l = 0; l < 32; ++l) {
    lane[l] = a[l] * b[l];
    for (int64_t e = l + 32; e < n; e += 32) lane[l] = fmaf(a[e], b[e], lane[l]);
  }
  for (int half = 16; half; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  return lane[0];
}

/* seg256: the dot product of row `row` of w with x. */
static inline float ko_seg256(const stk_matrix *w, int64_t row, const float *x) {
  float total = 0.0f;
  for (int64_t begin = 0; begin < w->n_cols; begin += 256) {
    float sum = 0.0f;
    for (int64_t k = begin; k < begin + 256 && k < w->n_cols; ++k)
      sum = fmaf(ko_element(w, row, k), x[k], sum);
    total = begin ? total + sum : sum;
  }
  return total;
}

/* y = (x * inv) * gain with inv = rsqrt(tree32(x^2) * (1/n) + eps); returns the
 * mean of squares. */
static inline float ko_rms_norm(const float *x, const float *gain, float eps, int64_t n, float *y) {
  float mean_square = ko_tree32(x, x, n) * (1.0f / (float)n);
  float inv = ks_rsqrt(mean_square + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * inv) * gain[i];
  return mean_square;
}

/* A value of a cache, and a row written into it, one value at a time. */
static inline float ko_cache_get(const stk_cache *c, int64_t plane, int64_t row, int64_t d) {
  const void *data = stk_cache_data(c, plane, row);
  if (c->kind == STK_KV_F32) return ((const float *)data)[d];
  if (c->kind == STK_KV_F16) return ks_from_half(((const uint16_t *)data)[d]);
  return (float)((const int8_t *)data)[d] *
         ks_from_half(stk_cache_scales(c, plane, row)[d / STK_Q8_GROUP]);
}

static inline unsigned ko_q8_scale(const float *x, int64_t n) {
  float amax = 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    if (!isfinite(x[i])) return STK_Q8_NAN;
    amax = fmaxf(amax, fabsf(x[i]));
  }
  unsigned half = ks_to_half(amax / 127.0f);
  return half < 0x7c00 ? half : STK_Q8_NAN;
}

static inline int8_t ko_q8(float x, unsigned half) {
  if (half == 0 || half == STK_Q8_NAN) return 0;
  float q = nearbyintf(x / ks_from_half(half));
  return (int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
}

static inline void ko_cache_put(const stk_cache *c, int64_t plane, int64_t row, const float *x) {
  void *data = stk_cache_data(c, plane, row);
  if (c->kind == STK_KV_F32) memcpy(data, x, (size_t)c->dim * sizeof(float));
  if (c->kind == STK_KV_F16)
    for (int64_t d = 0; d < c->dim; ++d) ((uint16_t *)data)[d] = (uint16_t)ks_to_half(x[d]);
  for (int64_t at = 0; c->kind == STK_KV_Q8 && at < c->dim; at += STK_Q8_GROUP) {
    int64_t n = c->dim - at < STK_Q8_GROUP ? c->dim - at : STK_Q8_GROUP;
    unsigned half = ko_q8_scale(x + at, n);
    stk_cache_scales(c, plane, row)[at / STK_Q8_GROUP] = (uint16_t)half;
    for (int64_t d = at; d < at + n; ++d) ((int8_t *)data)[d] = ko_q8(x[d], half);
  }
}

#endif
