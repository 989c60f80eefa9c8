/* qsa_decode: the splits of qsa_flash, each by itself, so that one token's work can
 * be shared among threads. qsa_merge adds them up; the two together give the bytes
 * of qsa_flash.
 *
 * Args are those of qsa_attn (qsa_attn.h); lists are derived as in qsa_flash. Of the
 * outputs only this one is written:
 *
 *   partial  out  f32 [T][Hq][n_splits_max][D + 2]   of each split of the token's
 *                 list: acc [D], m, l. n_splits_max = ceil((budget + ratio - 1) / 256);
 *                 splits that the list does not have are not written.
 *
 * Numerics  exact.
 * Threads   parts cut (token, heads of one kv head, split). */
#ifndef STK_QSA_DECODE_H
#define STK_QSA_DECODE_H

#include "qsa_attn/qsa_attn.h"

#define STK_QSA_DECODE_CONTRACT STK_QSA_ATTN_CONTRACT

typedef stk_qsa_attn_args stk_qsa_decode_args;

/* Splits of the longest list. */
static inline int64_t stk_qsa_splits_max(int32_t budget, int32_t ratio) {
  return ((int64_t)budget + ratio - 1 + STK_ATTN_SPLIT - 1) / STK_ATTN_SPLIT;
}
/* Cells of token t's list. */
static inline int64_t stk_qsa_n_cells(const stk_qsa_attn_args *a, int64_t t) {
  if (stk_qsa_attn_is_dense(a, t)) return a->pos0 + t + 1;
  return a->n_ids[t] < 0 ? -(int64_t)a->n_ids[t] : a->n_ids[t];
}
/* Where split number `split` of row t * Hq + h lies. */
static inline float *stk_qsa_partial(const stk_qsa_attn_args *a, int64_t row, int64_t split) {
  return a->partial +
         (row * stk_qsa_splits_max(a->budget, a->ratio) + split) * (a->head_dim + 2);
}

extern const stk_op stk_qsa_decode_op;

#endif
