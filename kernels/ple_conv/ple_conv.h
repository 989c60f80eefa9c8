/* ple_conv: the dilated convolution of the per-layer embedding, added to the
 * residual streams with the value itself.
 *
 *   cv[t][i] = silu( sum_j w[i][j] * nv[t - (K-1-j)*D][i] )
 *   r[t][i] += gv[t][i] + cv[t][i]
 *
 * Rows before the window come from history.
 *
 * Shapes    gv, nv   in     f32 [T][C]    C = S*H
 *           conv_w   in     f32 [C][K]
 *           history  inout  f32 [(K-1)*D][C]   rows of nv, oldest first; advanced
 *           r        inout  f32 [T][C]
 * Requires  2 <= K <= 16, D >= 1.
 * Rounding  the product of tap 0, then one fused multiply-add a tap in ascending
 *           order; gv + cv is rounded before it is added to r.
 * Numerics  exact.
 * Threads   parts cut channels. */
#ifndef STK_PLE_CONV_H
#define STK_PLE_CONV_H

#include <strata/kernel.h>

#define STK_PLE_CONV_CONTRACT 2u

typedef struct stk_ple_conv_args {
  const float *gv, *nv, *conv_w;
  float *history, *r;
  int32_t n_tokens, n_channels, n_taps, dilation;
} stk_ple_conv_args;

extern const stk_op stk_ple_conv_op;

#endif
