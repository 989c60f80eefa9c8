/* ple_mix: how much of the n-gram value each residual stream takes.
 *
 *   key = rms(key_raw[t][c]) * key_gain[c]     qry = rms(r[t][c]) * query_gain[c]
 *   s = tree32(key * qry) * H^-1/2
 *   s = sign(s) * sqrt(max(|s|, 1e-6)),  sign(0) = 0, a NaN stays one
 *   gv[t][c][:] = sigmoid(s) * val[t][:]       nv = rms(gv[t][c]) * conv_gain[c]
 *
 * Shapes    key_raw  in   f32 [T][S][H]     val  in  f32 [T][H]
 *           r        in   f32 [T][S][H]
 *           key_gain, query_gain, conv_gain  in  f32 [S][H]   (1 + w)
 *           gv, nv   out  f32 [T][S][H]
 * Rounding  norms as in k_norm.h with 1/H; H^-1/2 is the f32 nearest to it.
 * Numerics  exact.
 * Threads   parts cut (token, stream) pairs. */
#ifndef STK_PLE_MIX_H
#define STK_PLE_MIX_H

#include <strata/kernel.h>

#define STK_PLE_MIX_CONTRACT 2u

typedef struct stk_ple_mix_args {
  const float *key_raw, *val, *r, *key_gain, *query_gain, *conv_gain;
  float *gv, *nv;
  int32_t n_tokens, n_streams, hidden;
  float eps;
} stk_ple_mix_args;

extern const stk_op stk_ple_mix_op;

#endif
