/* k_rows.h -- rows that an op takes and gives as f32 or as f16, as its parameter rows says
 * (STK_F32 or STK_F16). An f16 is widened when it is read; what is stored is rounded to
 * nearest even, to infinity above 65504. type is a constant where these are inlined. */
#ifndef K_ROWS_H
#define K_ROWS_H

#include <strata/kernel.h>

#include "common/k_math.h"

/* Whether it is one of the two. */
static inline int k_rows_are_known(int32_t type) { return type == STK_F32 || type == STK_F16; }

/* Of n elements. */
static inline size_t k_rows_bytes(int64_t n, int32_t type) { return (size_t)n * (type == STK_F16 ? 2u : 4u); }

/* Where element i lies. */
static inline const void *k_rows_at(const void *rows, int64_t i, int32_t type) {
  return (const char *)rows + i * (type == STK_F16 ? 2 : 4);
}
static inline void *k_rows_into(void *rows, int64_t i, int32_t type) {
  return (char *)rows + i * (type == STK_F16 ? 2 : 4);
}

/* Element i. */
static inline float k_rows_get(const void *rows, int64_t i, int32_t type) {
  return type == STK_F16 ? ks_from_half(((const uint16_t *)rows)[i]) : ((const float *)rows)[i];
}
static inline void k_rows_put(void *rows, int64_t i, int32_t type, float x) {
  if (type == STK_F16) ((uint16_t *)rows)[i] = (uint16_t)ks_to_half(x);
  else ((float *)rows)[i] = x;
}

/* n elements from element i on. */
static inline void k_rows_read(const void *rows, int64_t i, int32_t type, int64_t n, float *x) {
  for (int64_t e = 0; e < n; ++e) x[e] = k_rows_get(rows, i + e, type);
}

#endif
