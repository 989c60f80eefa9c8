/* qsa_prep: what a sparse attention layer does to its projections before any
 * attention: norms, rotary positions, and the caches.
 *
 *   q  = rope(rms(q_raw) * q_gain)        key[pos]   = rope(rms(k_raw) * k_gain)
 *   iq = rope(rms(iq_raw) * iq_gain)      value[pos] = v_raw
 *   for each block b of `ratio` tokens that ends in this window:
 *   block_keys[b] = rope(rms(mean of its raw index keys) * ik_gain) at the
 *                   position of the block's first token
 *
 * rope turns the pairs (i, i + n_pairs) of the first 2*n_pairs dimensions:
 *   x'[i] = fma(-x[i+n], sin, x[i]*cos)   x'[i+n] = fma(x[i], sin, x[i+n]*cos)
 *
 * Shapes, positions pos = pos0 + t:
 *   q_raw       in     f32 [T][Hq][2][D]    query, then output gate (not read)
 *   k_raw, v_raw  in   f32 [T][Hkv][D]
 *   index_raw   in     f32 [T][Hi+1][Di]    index queries, then the raw index key
 *   q_gain, k_gain  in f32 [D]; iq_gain, ik_gain  in  f32 [Di]   (1 + w)
 *   cos, sin    in     f32 [T][n_pairs]     of the window's positions
 *   block_cos, block_sin  in  f32 [n_blocks][n_pairs]  of the first positions of
 *                      the blocks that end in the window, n_blocks =
 *                      (pos0+T)/ratio - pos0/ratio
 *   q           out    f32 [T][Hq][D]
 *   iq          out    f32 [T][Hi][Di]
 *   kv_pages    out    the key-value cache (k_cache.h: 2*Hkv planes of D, of the
 *                      kind kv_kind): rows pos0 .. pos0+T-1 are written
 *   block_pages  out   the block keys (f32, one plane of Di): rows pos0/ratio ..
 *                      (pos0+T)/ratio-1 are written
 *   open_keys   inout  f32 [ratio][Di]        raw index keys: row j holds the last
 *                      token whose pos % ratio is j, so the open block's are here
 * kinds says which of these are made: STK_QSA_QUERIES q, STK_QSA_KV the cache,
 * STK_QSA_INDEX iq, STK_QSA_BLOCKS block keys and open_keys. One call for all and
 * a call for each give the same bytes.
 *
 * Rounding  the mean is a sum in ascending order times the f32 constant 1/ratio;
 *           norms as in k_norm.h with 1/D or 1/Di. Keys and values are rounded
 *           to the cache's kind last.
 * Requires  D, Di multiples of 32, D <= 512; 2*n_pairs <= min(D, Di).
 * Numerics  exact.
 * Threads   parts cut tokens and blocks; the last part owns open_keys and the
 *           first block, which reads them. */
#ifndef STK_QSA_PREP_H
#define STK_QSA_PREP_H

#include <strata/kernel.h>

#include "common/k_cache.h"

#define STK_QSA_PREP_CONTRACT 2u

enum {
  STK_QSA_QUERIES = 1, STK_QSA_KV = 2, STK_QSA_INDEX = 4, STK_QSA_BLOCKS = 8, STK_QSA_ALL = 15,
  STK_QSA_HEAD_MAX = 512
};

typedef struct stk_qsa_prep_args {
  const float *q_raw, *k_raw, *v_raw, *index_raw;
  const float *q_gain, *k_gain, *iq_gain, *ik_gain;
  const float *cos, *sin, *block_cos, *block_sin;
  float *q, *iq, *open_keys;
  uint8_t *const *kv_pages, *const *block_pages;
  uint8_t *kv_block, *block_block; /* for tests: the memory of the pages */
  int32_t n_tokens, pos0, q_heads, kv_heads, head_dim, idx_heads, idx_dim, ratio, n_pairs;
  int32_t kv_kind, kinds;
  float eps;
} stk_qsa_prep_args;

static inline int32_t stk_qsa_prep_first_block(const stk_qsa_prep_args *a) {
  return a->pos0 / a->ratio;
}
static inline int32_t stk_qsa_prep_n_blocks(const stk_qsa_prep_args *a) {
  return (a->pos0 + a->n_tokens) / a->ratio - a->pos0 / a->ratio;
}

static inline stk_cache stk_qsa_prep_kv(const stk_qsa_prep_args *a) {
  const stk_cache c = {a->kv_pages, a->kv_kind, 2 * (int64_t)a->kv_heads, a->head_dim};
  return c; /* no compound literal: CUDA C reads this too */
}
static inline stk_cache stk_qsa_prep_blocks(const stk_qsa_prep_args *a) {
  const stk_cache c = {a->block_pages, STK_KV_F32, 1, a->idx_dim};
  return c; /* no compound literal: CUDA C reads this too */
}

extern const stk_op stk_qsa_prep_op;

#endif
