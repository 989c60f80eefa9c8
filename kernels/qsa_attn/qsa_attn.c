/* isa: scalar
 * qsa_attn -- one head of one token at a time, a cell after the other: the route to
 * compare others with, and nothing else. */
#include "qsa_attn/qsa_attn.h"

#include "common/k_attn.h"

static void attend(const stk_qsa_attn_args *a, int64_t row) {
  const int64_t dim = a->head_dim, t = row / a->q_heads, h = row % a->q_heads;
  const int64_t n = a->n_ids[t] < 0 ? -(int64_t)a->n_ids[t] : a->n_ids[t];
  const stk_cache cache = stk_qsa_attn_kv(a);
  float acc[2][K_ATTN_DIM_MAX];
  k_soft total = {.acc = acc[0]}, next = {.acc = acc[1]};
  k_stage stage;
  for (int64_t at = 0; at < n; at += K_ATTN_TILE) {
    k_tile tile;
    k_soft *soft = at < STK_ATTN_SPLIT ? &total : &next;
    const int cells = (int)(n - at < K_ATTN_TILE ? n - at : K_ATTN_TILE);
    k_attn_stage(&cache, h / (a->q_heads / a->kv_heads), a->ids + t * a->ids_stride, at, cells, &stage, &tile);
    k_ahead nothing = {0};
    k_attn_tile(&tile, cells, a->q + row * dim, dim, 1, at % STK_ATTN_SPLIT == 0, &nothing, soft);
    const int last = at + K_ATTN_TILE >= n || (at + K_ATTN_TILE) % STK_ATTN_SPLIT == 0;
    if (last && soft == &next) k_attn_merge(&total, &next, 1, dim);
  }
  k_attn_finish(acc[0], a->n_ids[t] < 0 ? NAN : 1.0f / total.l[0], a->q_raw + row * 2 * dim + dim, dim,
                a->outputs & STK_ATTN_F32 ? a->out + row * dim : NULL,
                a->outputs & STK_ATTN_F16 ? a->out_half + row * dim : NULL);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_attn_args *a = args;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->q_heads, 1, part, n_parts, &begin, &end);
  for (int64_t row = begin; row < end; ++row) attend(a, row);
}

STK_KERNEL_LEVEL(qsa_attn, STK_QSA_ATTN_CONTRACT, stk_qsa_attn_args, STK_EXACT, run);
