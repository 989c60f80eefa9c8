/* qsa_score: how well each complete block of cells matches a query's index.
 *
 * For token t with n = pos0 + t + 1 visible cells and n > budget + ratio - 1
 * (other tokens attend to everything; nothing is computed for them):
 *
 *   score[t][b] = (sum_h max(0, fma32(iq[t][h] * block_keys[b]))) * Di^-1/2
 *                 for b < n / ratio, heads in ascending order
 *
 * fma32: k_tree.h. max(0, x) is +0 where x is not above 0, and x where it is a NaN.
 *
 * Shapes    iq          in   f32 [T][Hi][Di]
 *           block_pages in   the block keys (k_cache.h: f32, one plane of Di)
 *           score       out  f32 [T][score_stride], score_stride >= (pos0+T)/ratio;
 *                            rows of tokens within the budget are not written
 * Numerics  exact.
 * Threads   parts cut blocks. */
#ifndef STK_QSA_SCORE_H
#define STK_QSA_SCORE_H

#include <strata/kernel.h>

#include "common/k_cache.h"

#define STK_QSA_SCORE_CONTRACT 3u

typedef struct stk_qsa_score_args {
  const float *iq;
  uint8_t *const *block_pages;
  uint8_t *block_block; /* for tests: the memory of the pages */
  float *score;
  int64_t score_stride;
  int32_t n_tokens, pos0, idx_heads, idx_dim, ratio, budget;
} stk_qsa_score_args;

/* The first window token that has more visible cells than the budget covers;
 * n_tokens if there is none. */
static inline int32_t stk_qsa_first_sparse(int32_t pos0, int32_t n_tokens, int32_t budget,
                                           int32_t ratio) {
  int64_t t = (int64_t)budget + ratio - 1 - pos0; /* pos0 + t + 1 > budget + ratio - 1 */
  return t < 0 ? 0 : t > n_tokens ? n_tokens : (int32_t)t;
}

static inline stk_cache stk_qsa_score_blocks(const stk_qsa_score_args *a) {
  const stk_cache c = {a->block_pages, STK_KV_F32, 1, a->idx_dim};
  return c; /* no compound literal: CUDA C reads this too */
}

extern const stk_op stk_qsa_score_op;

#endif
