/* moe_route: which experts a token goes to, and with what weights.
 *
 *   the k largest of logits[t][0..E): the larger first, then the lower id; a NaN
 *   is below everything, and makes all weights of its token NaN: it must not
 *   pass for an expert that nobody wants
 *   m = the largest selected;  e_i = exp(logit_i - m)
 *   (m = NaN if any logit of the token is one)
 *   weight_i = e_i / sum of e over the selected, in ascending id       (norm_topk)
 *   weight_i = e_i / tree32 of exp(logit - m) over all experts         (otherwise)
 *   shared[t] = sigmoid(shared_logit[t])
 *
 * Shapes    logits        in   f32 [T][E]
 *           shared_logit  in   f32 [T]
 *           expert        out  i32 [T][k]   ascending
 *           weight        out  f32 [T][k]   in the order of expert
 *           shared        out  f32 [T]
 *           all           out  f32 [T][E]   exp(logit - m); only written, and only
 *                                           needed, without norm_topk
 * Requires  1 <= k <= min(E, 64).
 * Numerics  exact.
 * Threads   parts cut tokens. */
#ifndef STK_MOE_ROUTE_H
#define STK_MOE_ROUTE_H

#include <strata/kernel.h>

#define STK_MOE_ROUTE_CONTRACT 3u
enum { STK_EXPERTS_USED_MAX = 64 };

typedef struct stk_moe_route_args {
  const float *logits, *shared_logit;
  int32_t *expert;
  float *weight, *shared, *all;
  int32_t n_tokens, n_experts, n_used, norm_topk;
} stk_moe_route_args;

extern const stk_op stk_moe_route_op;

#endif
