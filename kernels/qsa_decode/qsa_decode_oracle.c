/* qsa_decode, the oracle. */
#include "qsa_attn/qsa_attn_plain.h"
#include "qsa_decode/qsa_decode.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_decode_args *a = args;
  const int64_t D = a->head_dim;
  (void)n_parts;
  if (part != 0) return;
  for (int64_t row = 0; row < (int64_t)a->n_tokens * a->q_heads; ++row) {
    int64_t t = row / a->q_heads, n = stk_qsa_n_cells(a, t);
    const int32_t *ids = stk_qsa_attn_is_dense(a, t) ? NULL : a->ids + t * a->ids_stride;
    for (int64_t from = 0; from < n; from += STK_ATTN_SPLIT) {
      plain_soft s;
      float *out = stk_qsa_partial(a, row, from / STK_ATTN_SPLIT);
      plain_split(a, t, row % a->q_heads, ids, from,
                  n - from < STK_ATTN_SPLIT ? n : from + STK_ATTN_SPLIT, &s);
      memcpy(out, s.acc, (size_t)D * sizeof(float));
      out[D] = s.m;
      out[D + 1] = s.l;
    }
  }
}

STK_KERNEL(qsa_decode, oracle, "scalar", STK_QSA_DECODE_CONTRACT, stk_qsa_decode_args, STK_EXACT, run);
