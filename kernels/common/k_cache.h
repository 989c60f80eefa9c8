/* k_cache.h -- the layout of a paged cache: how a row (a cell's key or value, a
 * block's key) is found and how it is stored. Contracts, oracles, kernels and the
 * state of a sequence all use it.
 *
 * A cache is a table of pages of 256 rows each, so it grows a page at a time and
 * nothing moves. A row has n_planes vectors of dim values; the planes of a page
 * lie one after the other:
 *
 *   data    [n_planes][256][dim]     f32, fp16 or int8
 *   scales  [n_planes][256][groups]  fp16, only for q8; groups = ceil(dim / 64)
 *
 * The keys of kv head h are plane h of the key-value cache, its values plane
 * kv_heads + h. Block keys are an f32 cache of one plane.
 *
 * f32   the value itself
 * f16   the value rounded to fp16, nearest even; overflow gives infinity
 * q8    groups of 64 consecutive values (the last one may be shorter):
 *         s = fp16(max |x| / 127), q = clamp(rint(x / s), -127, 127) with the
 *         stored s; s = 0 gives q = 0. It reads as q * s, which is exact in f32.
 *       If a value of the group is not finite, or s is not, s is the NaN 0x7e00
 *       and q = 0: the whole group reads as NaN, so that it is noticed.
 *
 * All sizes and offsets are 64-bit: a cache may have more than 2^31 elements. */
#ifndef K_CACHE_H
#define K_CACHE_H

#include <stddef.h>
#include <stdint.h>

typedef enum stk_kv { STK_KV_F32, STK_KV_F16, STK_KV_Q8, STK_KV_KINDS } stk_kv;

enum { STK_CACHE_PAGE = 256, STK_Q8_GROUP = 64, STK_Q8_NAN = 0x7e00 };

typedef struct stk_cache {
  uint8_t *const *pages; /* [ceil(rows / 256)] */
  int32_t kind;          /* stk_kv */
  int64_t n_planes, dim;
} stk_cache;

/* Bytes of one plane's row of dim values: the values, and their scales. */
static inline int64_t stk_row_data_bytes(int64_t dim, int kind) {
  return dim * (kind == STK_KV_F32 ? 4 : kind == STK_KV_F16 ? 2 : 1);
}
static inline int64_t stk_row_scale_bytes(int64_t dim, int kind) {
  return kind == STK_KV_Q8 ? (dim + STK_Q8_GROUP - 1) / STK_Q8_GROUP * 2 : 0;
}
static inline size_t stk_cache_data_bytes(const stk_cache *c) { return (size_t)stk_row_data_bytes(c->dim, c->kind); }
static inline size_t stk_cache_scale_bytes(const stk_cache *c) { return (size_t)stk_row_scale_bytes(c->dim, c->kind); }
/* Bytes of a row over all planes, and of a page. */
static inline size_t stk_cache_row_bytes(const stk_cache *c) {
  return (size_t)c->n_planes * (stk_cache_data_bytes(c) + stk_cache_scale_bytes(c));
}
static inline size_t stk_cache_page_bytes(const stk_cache *c) {
  return STK_CACHE_PAGE * stk_cache_row_bytes(c);
}

/* Where the values, and the scales, of a plane's row lie. */
static inline void *stk_cache_data(const stk_cache *c, int64_t plane, int64_t row) {
  size_t at = (size_t)plane * STK_CACHE_PAGE + (size_t)row % STK_CACHE_PAGE;
  return c->pages[(size_t)row / STK_CACHE_PAGE] + at * stk_cache_data_bytes(c);
}
static inline uint16_t *stk_cache_scales(const stk_cache *c, int64_t plane, int64_t row) {
  size_t at = (size_t)plane * STK_CACHE_PAGE + (size_t)row % STK_CACHE_PAGE;
  uint8_t *scales = c->pages[(size_t)row / STK_CACHE_PAGE] +
                    (size_t)c->n_planes * STK_CACHE_PAGE * stk_cache_data_bytes(c);
  return (uint16_t *)(void *)(scales + at * stk_cache_scale_bytes(c));
}

static inline int64_t stk_cache_pages(int64_t rows) {
  return (rows + STK_CACHE_PAGE - 1) / STK_CACHE_PAGE;
}

/* For tests and the laboratory: pages for n rows out of one block of memory, the
 * last page first, since nothing may count on their order. */
static inline void stk_cache_fill_table(const stk_cache *c, int64_t rows, uint8_t *block) {
  int64_t n = stk_cache_pages(rows);
  for (int64_t i = 0; i < n; ++i)
    ((uint8_t **)(uintptr_t)c->pages)[i] =
        (uint8_t *)((uintptr_t)block + (size_t)(n - 1 - i) * stk_cache_page_bytes(c));
}

#endif
