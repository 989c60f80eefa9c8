/* hc_mix: a block's input, the mean over the residual streams of their gated,
 * normalised values (hyper-connections).
 *
 *   x[t][d] = (sum_c sigmoid(u[t][c][d]) * n[t][c][d]) * (1/S)
 *
 * Shapes    u, n  in   f32 [T][S][H]
 *           x     out  f32 [T][H]
 * Rounding  c ascending: a product, then fused multiply-adds; 1/S is an f32
 *           constant.
 * Numerics  exact.
 * Threads   parts cut the elements of x. */
#ifndef STK_HC_MIX_H
#define STK_HC_MIX_H

#include <strata/kernel.h>

#define STK_HC_MIX_CONTRACT 2u

typedef struct stk_hc_mix_args {
  const float *u, *n;
  float *x;
  int32_t n_tokens, n_streams, hidden;
} stk_hc_mix_args;

extern const stk_op stk_hc_mix_op;

#endif
