/* gdn_scan: the gated delta rule, token by token.
 *
 * For value head h with key head kh = h / (Hv/Hk), S [Dk][Dv] the old state:
 *
 *   p[j] = sum_i S[i][j] * k[i]        r[j] = sum_i S[i][j] * q[i]
 *   delta[j] = beta * fma(-d, p[j], v[j])
 *   o[j]     = fma(kq, delta[j], d * r[j])
 *   S[i][j]  = fma(k[i], delta[j], d * S[i][j])
 *
 * Shapes    qn, kn  in     f32 [T][Hk][Dk]
 *           vc      in     f32 [T][Hv][Dv]
 *           gb      in     f32 [T][Hv][2]      decay d, then beta
 *           kq      in     f32 [T][Hk]
 *           state   inout  f32 [Hv][Dk][Dv]
 *           o       out    f32 [T][Hv][Dv]
 * Requires  Dk and Dv multiples of 32, Hv a multiple of Hk.
 * Sum order rows4: the Dk rows are cut into 4 blocks of Dk/4 consecutive rows;
 *           in a block one chain of fused multiply-adds in ascending row order
 *           from +0; then (b0 + b1) + (b2 + b3).
 * Numerics  exact; the same bytes for any split of the tokens. A NaN stays in
 *           its own head.
 * Threads   parts cut (head, column tile) pairs.
 * Source    Yang, Kautz, Hatamizadeh, arXiv:2412.06464; the form with kq reads
 *           the old state only, so one pass over S serves both sums. */
#ifndef STK_GDN_SCAN_H
#define STK_GDN_SCAN_H

#include <strata/kernel.h>

#define STK_GDN_SCAN_CONTRACT 1u

typedef struct stk_gdn_scan_args {
  const float *qn, *kn, *vc, *gb, *kq;
  float *state, *o;
  int32_t n_tokens, k_heads, v_heads, k_dim, v_dim;
} stk_gdn_scan_args;

extern const stk_op stk_gdn_scan_op;

#endif
