/* qsa_prep_cuda_grid.h -- how the GPU kernel of qsa_prep is laid over a window: what
 * the kernel and its plan must agree about. */
#ifndef QSA_PREP_CUDA_GRID_H
#define QSA_PREP_CUDA_GRID_H

#include "qsa_prep/qsa_prep.h"

enum { QSA_PREP_WARPS = 4 };

/* The heads of a token that kinds asks for. */
static inline int32_t qsa_prep_heads(const stk_qsa_prep_args *a) {
  return (a->kinds & STK_QSA_QUERIES ? a->q_heads : 0) + (a->kinds & STK_QSA_KV ? a->kv_heads : 0) +
         (a->kinds & STK_QSA_INDEX ? a->idx_heads : 0);
}

/* Blocks in the second dimension for them; behind them are those of the block keys. */
static inline int32_t qsa_prep_head_rows(const stk_qsa_prep_args *a) {
  return (qsa_prep_heads(a) + QSA_PREP_WARPS - 1) / QSA_PREP_WARPS;
}

#endif
