/* k_vrows.h -- rows of f32 or f16 (k_rows.h), a vector at a time. */
#ifndef K_VROWS_H
#define K_VROWS_H

#include "common/k_rows.h"
#include "common/k_simd.h"

K_INLINE vf kv_rows_load(const void *rows, int64_t i, int32_t type) {
  return type == STK_F16 ? vf_load_half((const uint16_t *)rows + i) : vf_load((const float *)rows + i);
}
K_INLINE void kv_rows_store(void *rows, int64_t i, int32_t type, vf x) {
  if (type == STK_F16) vf_store_half((uint16_t *)rows + i, x);
  else vf_store((float *)rows + i, x);
}

/* n elements from element i on. */
K_INLINE void kv_rows_read(const void *rows, int64_t i, int32_t type, int64_t n, float *x) {
  int64_t e = 0;
  for (; e + VW <= n; e += VW) vf_store(x + e, kv_rows_load(rows, i + e, type));
  for (; e < n; ++e) x[e] = k_rows_get(rows, i + e, type);
}

/* The same in place if they are f32, else widened. */
K_INLINE const float *kv_rows_in_f32(const void *rows, int64_t i, int32_t type, int64_t n, float *wide) {
  if (type == STK_F32) return (const float *)rows + i;
  kv_rows_read(rows, i, type, n, wide);
  return wide;
}

#endif
