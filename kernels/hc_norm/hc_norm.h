/* hc_norm: writes a block's output into the residual streams, then normalises
 * them for the next read (hyper-connections).
 *
 *   if y:  s[c] = 2 * sigmoid(inject[t][c] * (1/S));  r[t][c][:] += s[c] * y[t][:]
 *   mean_square[t][c] = tree32(r[t][c]^2) * (1/H)
 *   n[t][c][:] = (r[t][c][:] * rsqrt(mean_square + eps)) * gain[c][:]
 *
 * Shapes    r            inout f32 [T][S][H]   (only read when y is NULL)
 *           y            in    f32 [T][H], or NULL
 *           inject       in    f32 [T][S], row stride inject_stride; with y only
 *           gain         in    f32 [S][H]      1 + w of the checkpoint
 *           n            out   f32 [T][S][H]
 *           mean_square  out   f32 [T][S]      shows where a NaN came in
 * Rounding  r += s * y is one fused multiply-add; 1/S and 1/H are f32 constants.
 * Numerics  exact. A NaN stays in its own token.
 * Threads   parts cut (token, stream) pairs. */
#ifndef STK_HC_NORM_H
#define STK_HC_NORM_H

#include <strata/kernel.h>

#define STK_HC_NORM_CONTRACT 2u

typedef struct stk_hc_norm_args {
  float *r;
  const float *y, *inject, *gain;
  float *n, *mean_square;
  int64_t inject_stride;
  int32_t n_tokens, n_streams, hidden;
  float eps;
} stk_hc_norm_args;

extern const stk_op stk_hc_norm_op;

#endif
