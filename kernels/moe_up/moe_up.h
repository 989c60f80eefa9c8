/* moe_up: the first half of each expert, for the tokens that go to it.
 *
 *   h[t][i][f]     = silu(gate_e[f] . x[t]) * (up_e[f] . x[t])   e = expert[t][i]
 *   h_shared[t][f] = the same for expert number E, for every token
 *
 * Shapes    x         in   f32 [T][H]
 *           gate, up  in   E + 1 matrices [F_e][H], as stored; F_e = F for the
 *                          routed ones, F_shared for number E
 *           expert    in   i32 [T][k]   ascending in a row
 *           h         out  f32 [T][k][F]
 *           h_shared  out  f32 [T][F_shared]
 * Sum order seg256.
 * Numerics  exact; a token's result does not depend on who shares its expert.
 * Threads   parts cut (expert, rows) pairs. */
#ifndef STK_MOE_UP_H
#define STK_MOE_UP_H

#include <strata/kernel.h>

#define STK_MOE_UP_CONTRACT 2u

typedef struct stk_moe_up_args {
  const float *x;
  const stk_matrix *gate, *up; /* [n_experts + 1] */
  const int32_t *expert;
  float *h, *h_shared;
  int32_t n_tokens, n_experts, n_used, hidden, expert_ff, shared_ff;
  /* Tests only: the type of the matrices they make, what those point into, and how
   * many experts have weights of their own (0: all). */
  stk_dtype dtype;
  const void *test_data;
  int32_t test_experts;
} stk_moe_up_args;

extern const stk_op stk_moe_up_op;

#endif
