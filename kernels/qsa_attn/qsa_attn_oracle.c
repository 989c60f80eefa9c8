/* qsa_attn, the oracle. */
#include <stdlib.h>

#include "qsa_attn/qsa_attn_plain.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_attn_args *a = args;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->q_heads, 1, part, n_parts, &begin, &end);
  for (int64_t row = begin; row < end; ++row) {
    int64_t t = row / a->q_heads;
    plain_row(a, row, a->ids + t * a->ids_stride, llabs(a->n_ids[t]), a->n_ids[t] < 0);
  }
}

STK_KERNEL(qsa_attn, oracle, "scalar", STK_QSA_ATTN_CONTRACT, stk_qsa_attn_args, STK_EXACT, run);
