/* qsa_attn: softmax attention of each query over its list of cells, times the
 * output gate. The plain route: it reads a list for every token.
 *
 * The list of token t is ids[t][0 .. |n_ids[t]|), ascending. A negative n_ids[t]
 * says that the list came from a NaN: the output is then NaN (acc * NaN). Head h
 * uses kv head h / (Hq/Hkv).
 *
 * Order     the list is cut into splits of 256 cells, a split into tiles of 32:
 *   s_c = fma32(q * K_c) * D^-1/2        (fma32, tree32: k_tree.h)
 *   tile: M = the largest s_c;  m' = max(m, M);  f = exp(m - m');  e_c = exp(s_c - m')
 *         l = fma(l, f, tree32(e));  acc = acc * f, then acc = fma(e_c, V_c, acc)
 *         in cell order. The first tile of a split: m' = M, l = tree32(e), acc from +0.
 *   merge of splits, ascending: m' = max(m, m2), f = exp(m - m'), f2 = exp(m2 - m')
 *         l = fma(l2, f2, l * f);  acc = fma(acc2, f2, acc * f)
 *   out = (acc * (1 / l)) * sigmoid(gate)
 * max(a, b) is a if b < a, else b. M is taken over 32 lanes, lane c for cell c and
 * s_0 where there is none, by halves: l = max(l, l^16), l^8, l^4, l^2, l^1.
 * The same steps are taken whether splits run one after the other or apart.
 *
 * Shapes    q        in   f32 [T][Hq][D]
 *           q_raw    in   f32 [T][Hq][2][D]   only the gate half is read
 *           kv_pages in   the key-value cache (k_cache.h: 2*Hkv planes of D, of the
 *                         kind kv_kind), rows 0 .. pos0+T-1
 *           ids      in   i32 [T][ids_stride]; n_ids  in  i32 [T]
 *           out      out  f32 [T][Hq][D], if outputs has STK_ATTN_F32
 *           out_half out  fp16 [T][Hq][D], if outputs has STK_ATTN_F16
 *           partial  -    not used here, see qsa_decode.h
 * Requires  D a multiple of 32, at most 512; ids_stride >= budget + ratio - 1.
 * Numerics  exact.
 * Threads   parts cut (token, head) pairs. */
#ifndef STK_QSA_ATTN_H
#define STK_QSA_ATTN_H

#include <strata/kernel.h>

#include "common/k_cache.h"

#define STK_QSA_ATTN_CONTRACT 5u
enum { STK_ATTN_TILE = 32, STK_ATTN_SPLIT = 256, STK_HEAD_DIM_MAX = 512 };
enum { STK_ATTN_F32 = 1, STK_ATTN_F16 = 2 };

typedef struct stk_qsa_attn_args {
  const float *q, *q_raw;
  uint8_t *const *kv_pages;
  uint8_t *kv_block; /* for tests: the memory of the pages */
  const int32_t *ids, *n_ids;
  float *out;
  uint16_t *out_half;
  float *partial;
  int64_t ids_stride;
  int32_t n_tokens, pos0, q_heads, kv_heads, head_dim, budget, ratio, kv_kind, outputs;
} stk_qsa_attn_args;

static inline stk_cache stk_qsa_attn_kv(const stk_qsa_attn_args *a) {
  const stk_cache cache = {a->kv_pages, a->kv_kind, 2 * (int64_t)a->kv_heads, a->head_dim};
  return cache;
}

/* Whether token t sees no more cells than the budget covers: its list is then all
 * of them, and the routes that derive it read neither ids nor n_ids. */
static inline int stk_qsa_attn_is_dense(const stk_qsa_attn_args *a, int64_t t) {
  return a->pos0 + t + 1 <= (int64_t)a->budget + a->ratio - 1;
}

/* How many of the window's tokens do so: the first ones. */
static inline int64_t stk_qsa_attn_n_dense(const stk_qsa_attn_args *a) {
  const int64_t n = (int64_t)a->budget + a->ratio - 1 - a->pos0;
  return n < 0 ? 0 : n < a->n_tokens ? n : a->n_tokens;
}

extern const stk_op stk_qsa_attn_op;

/* What the ops of this family (qsa_attn, qsa_flash, qsa_decode, qsa_merge) share;
 * in qsa_attn_op.c. Tensor lists are appended to, and the new length is returned:
 * inputs are q, the cache and the lists; outputs q_raw, out and out_half. */
const char *stk_qsa_attn_check(const void *args);
int32_t stk_qsa_attn_inputs(stk_qsa_attn_args *a, stk_tensor *tensors, int32_t n);
int32_t stk_qsa_attn_outputs(stk_qsa_attn_args *a, stk_tensor *tensors, int32_t n);
/* Lists that a selection could have given. Tokens within the budget: all cells if
 * list_all is 1, else poison. */
void stk_qsa_attn_lists(stk_qsa_attn_args *a, uint64_t seed, int list_all);
void stk_qsa_attn_cache(stk_qsa_attn_args *a, uint64_t seed);
void stk_qsa_attn_work(const void *args, stk_work *w);
int32_t stk_qsa_attn_params(void *args, stk_param *params);
void stk_qsa_attn_derive(void *args);
const char *stk_qsa_attn_shape(const void *args, void *shape);
void stk_qsa_attn_link(void *args);
size_t stk_qsa_attn_piece(const void *args, int32_t i, void **data);

/* A shape, for cases. */
#define STK_QSA_CASE(T, pos, hq, hkv, d, b, r, kv, outs)                                   \
  {.n_tokens = T, .pos0 = pos, .q_heads = hq, .kv_heads = hkv, .head_dim = d, .budget = b, \
   .ratio = r, .ids_stride = b + r - 1, .kv_kind = kv, .outputs = outs}

#endif
