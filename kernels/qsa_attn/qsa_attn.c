/* isa: scalar
 * qsa_attn -- one head of one token at a time, a cell after the other: the route to
 * compare others with, and nothing else. */
#include "qsa_attn/qsa_attn.h"

#include "common/k_attn.h"

static void attend(const stk_qsa_attn_args *a, int64_t row, k_stage *stage) {
  const int64_t dim = a->head_dim, t = row / a->q_heads, h = row % a->q_heads;
  const int64_t n = a->n_ids[t] < 0 ? -(int64_t)a->n_ids[t] : a->n_ids[t];
  const k_span span = {.cache = stk_qsa_attn_kv(a), .kv = h / (a->q_heads / a->kv_heads),
                       .ids = a->ids + t * a->ids_stride, .q = a->q + row * dim, .n_heads = 1,
                       .n_tokens = 1, .n_cells = {n}};
  float acc[2][K_ATTN_DIM_MAX];
  k_soft total = {.acc = acc[0]}, next = {.acc = acc[1]};
  for (int64_t from = 0; from < n; from += STK_ATTN_SPLIT) {
    k_attn_split(&span, from, STK_ATTN_SPLIT, from > 0, from ? &next : &total, stage);
    if (from) k_attn_merge(&total, &next, 1, dim);
  }
  k_attn_finish(acc[0], a->n_ids[t] < 0 ? NAN : 1.0f / total.l[0], a->q_raw + row * 2 * dim + dim, dim,
                a->outputs & STK_ATTN_F32 ? a->out + row * dim : NULL,
                a->outputs & STK_ATTN_F16 ? a->out_half + row * dim : NULL);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_attn_args *a = args;
  k_stage stage;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->q_heads, 1, part, n_parts, &begin, &end);
  for (int64_t row = begin; row < end; ++row) attend(a, row, &stage);
}

STK_KERNEL_LEVEL(qsa_attn, STK_QSA_ATTN_CONTRACT, stk_qsa_attn_args, STK_EXACT, run);
