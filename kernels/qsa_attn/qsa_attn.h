/* qsa_attn: softmax attention of each query over its list of cells, times the
 * output gate.
 *
 * The list of token t (n = pos0 + t + 1): ids[t][0 .. |n_ids[t]|) if n_ids[t] is
 * not 0, else 0 .. n-1 (then ids is not read). A negative n_ids[t] says that the
 * list came from a NaN: the output is then NaN (acc * NaN). Head h uses kv head h / (Hq/Hkv).
 *
 * Order     the list is cut into splits of 256 cells, a split into tiles of 32:
 *   s_c = tree32(q * K_c) * D^-1/2
 *   tile: m' = max(m, max_c s_c);  f = exp(m - m');  e_c = exp(s_c - m')
 *         l = fma(l, f, tree32(e));  acc = acc * f, then acc = fma(e_c, V_c, acc)
 *         in cell order. The first tile of a split: l = tree32(e), acc from +0.
 *   merge of splits, ascending: m' = max(m, m2), f = exp(m - m'), f2 = exp(m2 - m')
 *         l = fma(l2, f2, l * f);  acc = fma(acc2, f2, acc * f)
 *   out = (acc * (1 / l)) * sigmoid(gate)
 * The same steps are taken whether splits run one after the other or apart.
 *
 * Shapes    q        in   f32 [T][Hq][D]
 *           q_raw    in   f32 [T][Hq][2][D]   only the gate half is read
 *           k_cache, v_cache  in  f32 [..][Hkv][D]
 *           ids      in   i32 [T][ids_stride]; n_ids  in  i32 [T]
 *           out      out  f32 [T][Hq][D]
 * Requires  D a multiple of 32.
 * Numerics  exact.
 * Threads   parts cut (token, group of heads) pairs. */
#ifndef STK_QSA_ATTN_H
#define STK_QSA_ATTN_H

#include <strata/kernel.h>

#define STK_QSA_ATTN_CONTRACT 2u
enum { STK_ATTN_TILE = 32, STK_ATTN_SPLIT = 256, STK_HEAD_DIM_MAX = 512 };

typedef struct stk_qsa_attn_args {
  const float *q, *q_raw, *k_cache, *v_cache;
  const int32_t *ids, *n_ids;
  float *out;
  int64_t ids_stride;
  int32_t n_tokens, pos0, q_heads, kv_heads, head_dim;
} stk_qsa_attn_args;

extern const stk_op stk_qsa_attn_op;

#endif
