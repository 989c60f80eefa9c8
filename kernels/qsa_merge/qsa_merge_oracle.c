/* qsa_merge, the oracle. */
#include "qsa_attn/qsa_attn_plain.h"
#include "qsa_merge/qsa_merge.h"

static void load(const stk_qsa_merge_args *a, int64_t row, int64_t split, plain_soft *s) {
  const float *in = stk_qsa_partial(a, row, split);
  memcpy(s->acc, in, (size_t)a->head_dim * sizeof(float));
  s->m = in[a->head_dim];
  s->l = in[a->head_dim + 1];
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_merge_args *a = args;
  (void)n_parts;
  if (part != 0) return;
  for (int64_t row = 0; row < (int64_t)a->n_tokens * a->q_heads; ++row) {
    int64_t t = row / a->q_heads, n = stk_qsa_n_cells(a, t);
    plain_soft total, next;
    load(a, row, 0, &total);
    for (int64_t split = 1; split * STK_ATTN_SPLIT < n; ++split) {
      load(a, row, split, &next);
      plain_merge(&total, &next, a->head_dim);
    }
    plain_finish(a, row, &total, !stk_qsa_attn_is_dense(a, t) && a->n_ids[t] < 0);
  }
}

STK_KERNEL(qsa_merge, oracle, "scalar", STK_QSA_MERGE_CONTRACT, stk_qsa_merge_args, STK_EXACT, run);
