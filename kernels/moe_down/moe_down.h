/* moe_down: the second half of each expert, and the weighted sum of experts.
 *
 *   y[t] = sum_i weight[t][i] * (down_e h[t][i]) + shared[t] * (down_E h_shared[t])
 *
 * with e = expert[t][i]. The first product is rounded, then one fused
 * multiply-add an expert in ascending id, the shared expert last.
 *
 * Shapes    h         in   f32 [T][k][F];  h_shared  in  f32 [T][F_shared]
 *           down      in   E + 1 matrices [H][F_e], as stored
 *           expert    in   i32 [T][k]   ascending in a row
 *           weight    in   f32 [T][k];  shared  in  f32 [T]
 *           y         out  f32 [T][H]
 * Sum order seg256 inside an expert.
 * Numerics  exact; a token's result does not depend on who shares its expert.
 * Threads   parts cut columns of y, so each adds its experts in order. */
#ifndef STK_MOE_DOWN_H
#define STK_MOE_DOWN_H

#include <strata/kernel.h>

#define STK_MOE_DOWN_CONTRACT 1u

typedef struct stk_moe_down_args {
  const float *h, *h_shared, *weight, *shared;
  const stk_matrix *down; /* [n_experts + 1] */
  const int32_t *expert;
  float *y;
  int32_t n_tokens, n_experts, n_used, hidden, expert_ff, shared_ff;
  /* Tests only: the type of the matrices they make, what those point into, and how
   * many experts have weights of their own (0: all). */
  stk_dtype dtype;
  const void *test_data;
  int32_t test_experts;
} stk_moe_down_args;

extern const stk_op stk_moe_down_op;

#endif
