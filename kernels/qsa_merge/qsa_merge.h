/* qsa_merge: adds the splits that qsa_decode left, in ascending order, and applies
 * the gate: the second half of qsa_attn's steps.
 *
 * Args are those of qsa_attn (qsa_attn.h) and qsa_decode (qsa_decode.h); partial is
 * in, out and out_half are out. The cache, q and ids are not read; n_ids is, of
 * tokens beyond the budget.
 *
 * Numerics  exact.
 * Threads   parts cut (token, head) pairs. */
#ifndef STK_QSA_MERGE_H
#define STK_QSA_MERGE_H

#include "qsa_decode/qsa_decode.h"

#define STK_QSA_MERGE_CONTRACT STK_QSA_ATTN_CONTRACT

typedef stk_qsa_attn_args stk_qsa_merge_args;

extern const stk_op stk_qsa_merge_op;

#endif
