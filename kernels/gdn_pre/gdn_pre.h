/* gdn_pre: everything a gated delta net layer does to a token before the
 * recurrence, in the layout that the recurrence reads.
 *
 *   conv[t][c] = silu( w[c][0]*u[t-K+1][c] + ... + w[c][K-1]*u[t][c] )
 *   qn = q * (rsqrt(tree32(q^2) + 1e-6) * Dk^-1/2)   kn = k * rsqrt(tree32(k^2) + 1e-6)
 *   vc = v
 *   kq = tree32(kn_t * qn_t);  for a token of odd absolute index pos0 + t also
 *   kk = tree32(kn_{t-1} * kn_t),  kkq = tree32(kn_{t-1} * qn_t);  0 for an even one
 *   gb = (exp(-exp(a_log) * softplus(a + dt_bias)), sigmoid(b))
 *
 * u is the raw projection [q | k | v], K the number of taps; q, k, v are the
 * parts of conv. Rows before the window come from history; the keys of the two
 * tokens before it from k_tail (zeros before the sequence).
 *
 * rows is the type of all rows of channels, f32 or f16 (common/k_rows.h). With f16 silu is
 * silu_half (common/k_math_body.inc): a value is within 0.51 ulp of fp16. kq, kk and kkq
 * are of kn and qn as stored.
 *
 * Shapes    qkv      in     rows [T][C], C = 2*Hk*Dk + Hv*Dv
 *           ab       in     f32 [T][2*Hv]    a, then b
 *           conv_w   in     f32 [C][K]
 *           a_log, dt_bias  in  f32 [Hv]
 *           history  inout  rows [K-1][C]    raw rows, oldest first; advanced by T
 *           k_tail   inout  rows [2][Hk][Dk] keys of the last two tokens, older
 *                                            first; advanced by T
 *           qn       out    rows [Hk][T][Dk]
 *           kn       out    rows [Hk][T+2][Dk]  rows 0 and 1 are k_tail as it was
 *           vc       out    rows [Hv][T][Dv]
 *           gb       out    f32 [Hv][T][2]   decay a = exp(g), then beta
 *           kq       out    f32 [Hk][T][3]   kq, kk, kkq
 *           kinds    which channels this call does: a layer's work may be one
 *                    call (packed) or one for each kind (legacy); same bytes
 * Requires  Dk and Dv multiples of 32, Dk at most 512, 2 <= K <= 16.
 * Rounding  conv: the product of tap 0, then one fused multiply-add a tap in
 *           ascending order. Dk^-1/2 is the f32 nearest to it.
 * Numerics  exact. A NaN stays in its own head or gate.
 * Threads   parts cut heads (a key head has q and k), so each owns the history
 *           of its channels.
 * Layout    head-major, because the recurrence runs through all tokens of a head:
 *           rows of one head 8 and 24 KiB apart cost it 40 %.
 * Source    Yang, Kautz, Hatamizadeh, arXiv:2412.06464. */
#ifndef STK_GDN_PRE_H
#define STK_GDN_PRE_H

#include <strata/kernel.h>

#define STK_GDN_PRE_CONTRACT 5u
enum { STK_CONV_TAPS_MAX = 16, STK_GDN_PRE_K_DIM_MAX = 512 };

enum {
  STK_GDN_KEYS = 1,   /* q and k heads: qn, kn, kq, their history, k_tail */
  STK_GDN_VALUES = 2, /* v heads: vc and their history */
  STK_GDN_GATES = 4,  /* gb */
  STK_GDN_ALL = 7
};

typedef struct stk_gdn_pre_args {
  const void *qkv;
  const float *ab, *conv_w, *a_log, *dt_bias;
  void *history, *k_tail, *qn, *kn, *vc;
  float *gb, *kq;
  int32_t n_tokens, pos0, k_heads, v_heads, k_dim, v_dim, n_taps, kinds;
  int32_t rows; /* STK_F32 or STK_F16 */
} stk_gdn_pre_args;

extern const stk_op stk_gdn_pre_op;

#endif
