/* isa: scalar avx2 avx512 neon
 * qsa_merge -- head by head; a head's sums are a few KiB. */
#include "qsa_merge/qsa_merge.h"

#include "common/k_attn.h"

static void row(const stk_qsa_merge_args *a, int64_t r) {
  const int64_t dim = a->head_dim, t = r / a->q_heads, n = stk_qsa_n_cells(a, t);
  const int is_nan = !stk_qsa_attn_is_dense(a, t) && a->n_ids[t] < 0;
  float acc[K_ATTN_DIM_MAX];
  const float *part = stk_qsa_partial(a, r, 0);
  k_soft total = {.m = {part[dim]}, .l = {part[dim + 1]}, .acc = acc};
  memcpy(acc, part, (size_t)dim * sizeof(float));
  for (int64_t split = 1; split * STK_ATTN_SPLIT < n; ++split) {
    float *more = stk_qsa_partial(a, r, split);
    k_attn_merge(&total, &(k_soft){.m = {more[dim]}, .l = {more[dim + 1]}, .acc = more}, 1, dim);
  }
  k_attn_finish(acc, is_nan ? NAN : 1.0f / total.l[0], a->q_raw + r * 2 * dim + dim, dim,
                a->outputs & STK_ATTN_F32 ? a->out + r * dim : NULL,
                a->outputs & STK_ATTN_F16 ? a->out_half + r * dim : NULL);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_merge_args *a = args;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->q_heads, 1, part, n_parts, &begin, &end);
  for (int64_t r = begin; r < end; ++r) row(a, r);
}

STK_KERNEL_LEVEL(qsa_merge, STK_QSA_MERGE_CONTRACT, stk_qsa_merge_args, STK_EXACT, run);
