/* gdn_post: gated normalisation of the recurrence's output, head by head.
 *
 *   inv = rsqrt(tree32(o^2) * (1/D) + eps)
 *   y   = ((o * inv) * gain) * sigmoid(z)
 *
 * Shapes    o     in   f32 [Hv][T][D]    head-major, as gdn_scan writes it
 *           z     in   f32 [T][Hv*D]
 *           gain  in   f32 [D]        plain, not 1 + w
 *           y     out  f32 [T][Hv*D]
 * Numerics  exact.
 * Threads   parts cut (token, head) pairs. */
#ifndef STK_GDN_POST_H
#define STK_GDN_POST_H

#include <strata/kernel.h>

#define STK_GDN_POST_CONTRACT 2u

typedef struct stk_gdn_post_args {
  const float *o, *z, *gain;
  float *y;
  int32_t n_tokens, v_heads, v_dim;
  float eps;
} stk_gdn_post_args;

extern const stk_op stk_gdn_post_op;

#endif
