/* gdn_pre: everything a gated delta net layer does to a token before the
 * recurrence.
 *
 *   conv[t][c] = silu( w[c][0]*u[t-K+1][c] + ... + w[c][K-1]*u[t][c] )
 *   qn = q * (rsqrt(tree32(q^2) + 1e-6) * Dk^-1/2)   kn = k * rsqrt(tree32(k^2) + 1e-6)
 *   kq = tree32(kn * qn)                             vc = v
 *   gb = (exp(-exp(a_log) * softplus(a + dt_bias)), sigmoid(b))
 *
 * u is the raw projection [q | k | v], K the number of taps; q, k, v are the
 * parts of conv. Rows before the window come from history.
 *
 * Shapes    qkv      in     f32 [T][C], C = 2*Hk*Dk + Hv*Dv
 *           ab       in     f32 [T][2*Hv]    a, then b
 *           conv_w   in     f32 [C][K]
 *           a_log, dt_bias  in  f32 [Hv]
 *           history  inout  f32 [K-1][C]     raw rows, oldest first; advanced by T
 *           qn, kn   out    f32 [T][Hk][Dk]
 *           vc       out    f32 [T][Hv][Dv]
 *           gb       out    f32 [T][Hv][2]   decay d = exp(g), then beta
 *           kq       out    f32 [T][Hk]
 * Requires  Dk and Dv multiples of 32, 2 <= K <= 16.
 * Rounding  conv: the product of tap 0, then one fused multiply-add a tap in
 *           ascending order. Dk^-1/2 is the f32 nearest to it.
 * Numerics  exact. A NaN stays in its own head or gate.
 * Threads   parts cut heads (a key head has q and k), so each owns the history
 *           of its channels.
 * Source    Yang, Kautz, Hatamizadeh, arXiv:2412.06464. */
#ifndef STK_GDN_PRE_H
#define STK_GDN_PRE_H

#include <strata/kernel.h>

#define STK_GDN_PRE_CONTRACT 1u
enum { STK_CONV_TAPS_MAX = 16 };

typedef struct stk_gdn_pre_args {
  const float *qkv, *ab, *conv_w, *a_log, *dt_bias;
  float *history, *qn, *kn, *vc, *gb, *kq;
  int32_t n_tokens, k_heads, v_heads, k_dim, v_dim, n_taps;
} stk_gdn_pre_args;

extern const stk_op stk_gdn_pre_op;

#endif
