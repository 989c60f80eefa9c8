/* qsa_score_cuda_grid.h -- how the GPU kernel of qsa_score is laid over a window: what
 * the kernel and its plan must agree about. */
#ifndef QSA_SCORE_CUDA_GRID_H
#define QSA_SCORE_CUDA_GRID_H

#include "qsa_score/qsa_score.h"

enum {
  QSA_SCORE_ROWS = 8,       /* tokens of a thread */
  QSA_SCORE_TILE = 64,      /* block keys that are in shared memory at a time */
  QSA_SCORE_PAD = 16,       /* floats behind each of them */
  QSA_SCORE_WALK_MAX = 4,   /* tiles that meet the same queries one after the other */
  QSA_SCORE_BLOCKS = 1600,  /* of threads, that keep a large device busy to the end */
  QSA_SCORE_DIM_MAX = 512
};

/* Tokens that need scores. */
static inline int32_t qsa_score_tokens(const stk_qsa_score_args *a) {
  return a->n_tokens - stk_qsa_first_sparse(a->pos0, a->n_tokens, a->budget, a->ratio);
}

/* Tokens of a thread, and of a block of threads, which has two warps for each eight. */
static inline int32_t qsa_score_rows(const stk_qsa_score_args *a) {
  return qsa_score_tokens(a) > 1 ? QSA_SCORE_ROWS : 1;
}
static inline int32_t qsa_score_tile_tokens(int32_t rows) { return rows > 1 ? 2 * rows : 1; }

static inline int32_t qsa_score_token_tiles(const stk_qsa_score_args *a) {
  const int32_t tokens = qsa_score_tile_tokens(qsa_score_rows(a));
  return (qsa_score_tokens(a) + tokens - 1) / tokens;
}
static inline int32_t qsa_score_key_tiles(const stk_qsa_score_args *a) {
  return ((a->pos0 + a->n_tokens) / a->ratio + QSA_SCORE_TILE - 1) / QSA_SCORE_TILE;
}

/* Tiles of keys that a block of threads goes through. */
static inline int32_t qsa_score_walk(const stk_qsa_score_args *a) {
  const int64_t walk = (int64_t)qsa_score_token_tiles(a) * qsa_score_key_tiles(a) / QSA_SCORE_BLOCKS;
  return walk < 1 ? 1 : walk > QSA_SCORE_WALK_MAX ? QSA_SCORE_WALK_MAX : (int32_t)walk;
}

#endif
