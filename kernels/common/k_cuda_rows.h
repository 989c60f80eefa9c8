/* k_cuda_rows.h -- rows of f32 or f16 (k_rows.h) in kernels for GPUs. type is a constant
 * where these are inlined; an address of n elements is aligned to all their bytes. */
#ifndef K_CUDA_ROWS_H
#define K_CUDA_ROWS_H

#include "common/k_cuda.h"

/* Bytes of an element. */
KC_INLINE int kc_row_bytes(int type) { return type == STK_F16 ? 2 : 4; }

/* Where element i lies. */
KC_INLINE const void *kc_row_at(const void *row, int64_t i, int type) {
  return (const char *)row + i * kc_row_bytes(type);
}
KC_INLINE void *kc_row_into(void *row, int64_t i, int type) { return (char *)row + i * kc_row_bytes(type); }

KC_INLINE float kc_row_load(const void *row, int64_t i, int type) {
  return type == STK_F16 ? kc_from_half(((const uint16_t *)row)[i]) : ((const float *)row)[i];
}
KC_INLINE void kc_row_store(void *row, int64_t i, int type, float x) {
  if (type == STK_F16) ((uint16_t *)row)[i] = kc_half(x);
  else ((float *)row)[i] = x;
}

/* An element as it is: a NaN keeps its bits. */
KC_INLINE unsigned kc_row_bits(const void *row, int64_t i, int type) {
  return type == STK_F16 ? ((const uint16_t *)row)[i] : (unsigned)ks_bits(((const float *)row)[i]);
}
KC_INLINE void kc_row_put_bits(void *row, int64_t i, int type, unsigned bits) {
  if (type == STK_F16) ((uint16_t *)row)[i] = (uint16_t)bits;
  else ((float *)row)[i] = ks_float((int)bits);
}

/* What an element of these bits reads as. */
KC_INLINE float kc_row_of_bits(unsigned bits, int type) {
  return type == STK_F16 ? kc_from_half((uint16_t)bits) : ks_float((int)bits);
}

/* The bits of two halves as those of a float, at an address aligned to both. */
KC_INLINE float kc_load_halves(const void *p) {
#ifdef __CUDACC__
  return *(const float *)p;
#else
  float both;
  memcpy(&both, p, sizeof both);
  return both;
#endif
}
KC_INLINE void kc_store_halves(void *p, float both) {
#ifdef __CUDACC__
  *(float *)p = both;
#else
  memcpy(p, &both, sizeof both);
#endif
}

/* The two halves in the bits of a float. */
KC_INLINE kc2 kc_from_half2(float both) {
  const unsigned bits = (unsigned)ks_bits(both);
  const kc2 r = {{kc_from_half((uint16_t)(bits & 0xffff)), kc_from_half((uint16_t)(bits >> 16))}};
  return r;
}

KC_INLINE kc2 kc_row_load2(const void *row, int64_t i, int type) {
  if (type == STK_F16) return kc_from_half2(kc_load_halves(kc_row_at(row, i, type)));
  return kc_load2((const float *)row + i);
}
KC_INLINE void kc_row_store2(void *row, int64_t i, int type, kc2 x) {
  if (type == STK_F16) kc_store_halves(kc_row_into(row, i, type), kc_half2(x.v[0], x.v[1]));
  else kc_store2((float *)row + i, x);
}

KC_INLINE kc4 kc_row_load4(const void *row, int64_t i, int type) {
  if (type != STK_F16) return kc_load4((const float *)row + i);
  const kc2 halves = kc_load2((const float *)kc_row_at(row, i, type));
  const kc2 low = kc_from_half2(halves.v[0]), high = kc_from_half2(halves.v[1]);
  const kc4 r = {{low.v[0], low.v[1], high.v[0], high.v[1]}};
  return r;
}
KC_INLINE void kc_row_store4(void *row, int64_t i, int type, kc4 x) {
  if (type == STK_F16) {
    const kc2 halves = {{kc_half2(x.v[0], x.v[1]), kc_half2(x.v[2], x.v[3])}};
    kc_store2((float *)kc_row_into(row, i, type), halves);
  } else {
    kc_store4((float *)row + i, x);
  }
}

/* What x reads as from a row. */
KC_INLINE float kc_row_round(float x, int type) { return type == STK_F16 ? kc_from_half(kc_half(x)) : x; }

/* A lane's n elements of a row (kc_element); n and group, 1 or 4, are constants. Where group
 * is 4 the row begins at a multiple of four elements. */
KC_INLINE void kc_row_load_elements(const void *row, float *x, int n, int group, int type) {
  row = kc_row_at(row, kc_lane * group, type);
  KC_UNROLL for (int i = 0; i < n; i += group) {
    if (group == 4) {
      const kc4 four = kc_row_load4(row, 32 * i, type);
      KC_UNROLL for (int j = 0; j < 4; ++j) x[i + j] = four.v[j];
    } else {
      x[i] = kc_row_load(row, 32 * i, type);
    }
  }
}
KC_INLINE void kc_row_store_elements(void *row, const float *x, int n, int group, int type) {
  row = kc_row_into(row, kc_lane * group, type);
  KC_UNROLL for (int i = 0; i < n; i += group) {
    if (group == 4) {
      const kc4 four = {{x[i], x[i + 1], x[i + 2], x[i + 3]}};
      kc_row_store4(row, 32 * i, type, four);
    } else {
      kc_row_store(row, 32 * i, type, x[i]);
    }
  }
}

#endif
