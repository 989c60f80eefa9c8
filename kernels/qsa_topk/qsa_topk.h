/* qsa_topk: which cells a query attends to.
 *
 * For token t with n = pos0 + t + 1 visible cells and n > budget + ratio - 1,
 * nb = n / ratio complete blocks: the budget / ratio blocks with the highest
 * scores are selected, the higher score first, then the lower block; -0 equals
 * +0, a NaN is below everything. ids are the cells of those blocks in ascending
 * order, then the tail ratio*nb .. n-1. For other tokens the list is 0 .. n-1: it
 * is written if list_all is 1, for a route that reads lists always; else neither
 * ids nor n_ids of that token are touched, since the route derives them.
 *
 * Shapes    score   in   f32 [T][score_stride]
 *           ids     out  i32 [T][ids_stride], ids_stride >= budget + ratio - 1;
 *                        only n_ids[t] entries of a row are written
 *           n_ids   out  i32 [T]; negative, minus the number, if one of the nb scores
 *                        is a NaN: it must not pass for a block that nobody wants
 * Numerics  exact (integers). Time linear in the number of blocks for any scores.
 * Threads   parts cut tokens. */
#ifndef STK_QSA_TOPK_H
#define STK_QSA_TOPK_H

#include <strata/kernel.h>

#define STK_QSA_TOPK_CONTRACT 3u

typedef struct stk_qsa_topk_args {
  const float *score;
  int32_t *ids, *n_ids;
  int64_t score_stride, ids_stride;
  int32_t n_tokens, pos0, ratio, budget, list_all;
} stk_qsa_topk_args;

extern const stk_op stk_qsa_topk_op;

#endif
