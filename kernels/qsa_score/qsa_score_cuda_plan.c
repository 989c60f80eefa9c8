/* qsa_score: how its GPU kernels are launched. */
#include <stdio.h>

#include "qsa_score/qsa_score_cuda_grid.h"

enum { GRID_Y_MAX = 65535 };

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  const stk_qsa_score_args *a = args;
  const int32_t rows = qsa_score_rows(a), tokens = qsa_score_tile_tokens(rows), walk = qsa_score_walk(a);
  const int32_t token_tiles = qsa_score_token_tiles(a), key_tiles = qsa_score_key_tiles(a);
  const int64_t floats = (int64_t)tokens * a->idx_heads * a->idx_dim +
                         (int64_t)QSA_SCORE_TILE * (a->idx_dim + QSA_SCORE_PAD);
  if (a->idx_dim > QSA_SCORE_DIM_MAX) return "qsa_score: idx_dim: at most 512 expected on a GPU";
  if (4 * floats > chip->shared_bytes_max) return "qsa_score: idx_heads * idx_dim: fewer expected on this GPU";
  if (token_tiles > GRID_Y_MAX) return "qsa_score: n_tokens: at most 1048560 expected on a GPU";
  *launch = (stk_cuda_launch){.block = 64 * (uint32_t)(tokens / rows), .shared_bytes = (uint32_t)(4 * floats)};
  launch->grid[0] = key_tiles ? (uint32_t)((key_tiles + walk - 1) / walk) : 1;
  launch->grid[1] = token_tiles ? (uint32_t)token_tiles : 1;
  launch->grid[2] = 1;
  snprintf(launch->options, sizeof launch->options, "-DQSA_DI=%d -DQSA_HI=%d -DQSA_ROWS=%d", a->idx_dim, a->idx_heads,
           rows);
  return NULL;
}

static const char *plan_w16(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  return qsa_score_rows(args) > 1 ? plan(args, chip, launch)
                                  : "qsa_score: n_tokens: two with scores expected by cuda_w16";
}

STK_CUDA_KERNEL(qsa_score, cuda_w16, qsa_score_cuda_w16, STK_QSA_SCORE_CONTRACT, stk_qsa_score_args, STK_EXACT, plan_w16);
STK_CUDA_KERNEL(qsa_score, cuda, qsa_score_cuda, STK_QSA_SCORE_CONTRACT, stk_qsa_score_args, STK_EXACT, plan);
