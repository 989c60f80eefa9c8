/* k_cache_rows.h -- reading and writing rows of a paged cache as floats, VW at a
 * time. The layout and the rounding are those of k_cache.h; dim is a multiple of
 * 32. */
#ifndef K_CACHE_ROWS_H
#define K_CACHE_ROWS_H

#include "common/k_cache.h"
#include "common/k_math.h"
#include "common/k_simd.h"

K_INLINE void k_cache_read_half(const uint16_t *x, int64_t dim, float *y) {
  for (int64_t d = 0; d < dim; d += VW) vf_store(y + d, vf_load_half(x + d));
}

K_INLINE void k_cache_read_q8(const int8_t *x, const uint16_t *scales, int64_t dim, float *y) {
  int64_t d = 0;
  for (; d + STK_Q8_GROUP <= dim; d += STK_Q8_GROUP) {
    const vf scale = vf_set1_half(*scales++);
    K_UNROLL for (int i = 0; i < STK_Q8_GROUP; i += VW)
      vf_store(y + d + i, vf_mul(vf_load_i8(x + d + i), scale));
  }
  for (; d < dim; d += VW) vf_store(y + d, vf_mul(vf_load_i8(x + d), vf_set1_half(*scales)));
}

/* One group of n values, a multiple of 32; returns its scale. */
K_INLINE uint16_t k_cache_write_group(const float *x, int64_t n, int8_t *q) {
  /* Zero times anything finite is zero; of the rest it is a NaN. */
  vf largest = vf_zero(), finite = vf_zero();
  for (int64_t d = 0; d < n; d += VW) {
    vf v = vf_load(x + d);
    largest = vf_max(largest, vf_max(v, vf_sub(vf_zero(), v)));
    finite = vf_fma(v, vf_zero(), finite);
  }
  float lane[VW], check[VW], amax = 0.0f, sum = 0.0f;
  vf_store(lane, largest);
  vf_store(check, finite);
  for (int i = 0; i < VW; ++i) {
    amax = amax < lane[i] ? lane[i] : amax;
    sum += check[i];
  }
  uint16_t half = sum == 0.0f ? (uint16_t)ks_to_half(amax / 127.0f) : STK_Q8_NAN;
  if (half >= 0x7c00) half = STK_Q8_NAN;
  if (half == 0 || half == STK_Q8_NAN) {
    memset(q, 0, (size_t)n);
    return half;
  }
  const vf scale = vf_set1(ks_from_half(half));
  const vf magic = vf_set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
  for (int64_t d = 0; d < n; d += VW) {
    vf r = vf_sub(vf_add(vf_div(vf_load(x + d), scale), magic), magic);
    r = vf_select(vf_lt(vf_set1(127.0f), r), vf_set1(127.0f), r);
    r = vf_select(vf_lt(r, vf_set1(-127.0f)), vf_set1(-127.0f), r);
    vi_store_i8(q + d, vi_sub(vf_bits(vf_add(r, magic)), vf_bits(magic)));
  }
  return half;
}

K_INLINE void k_cache_write(const stk_cache *c, int64_t plane, int64_t row, const float *x) {
  void *data = stk_cache_data(c, plane, row);
  if (c->kind == STK_KV_F32) {
    memcpy(data, x, (size_t)c->dim * sizeof(float));
  } else if (c->kind == STK_KV_F16) {
    for (int64_t d = 0; d < c->dim; d += VW) vf_store_half((uint16_t *)data + d, vf_load(x + d));
  } else {
    uint16_t *scales = stk_cache_scales(c, plane, row);
    for (int64_t d = 0; d < c->dim; d += STK_Q8_GROUP) {
      int64_t n = c->dim - d < STK_Q8_GROUP ? c->dim - d : STK_Q8_GROUP;
      scales[d / STK_Q8_GROUP] = k_cache_write_group(x + d, n, (int8_t *)data + d);
    }
  }
}

#endif
