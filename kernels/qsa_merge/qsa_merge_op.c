/* qsa_merge: its tensors, operation counts and test cases; the rest is qsa_attn's. */
#include "qsa_merge/qsa_merge.h"

static const char *check(const void *args) { return stk_qsa_attn_check(args); }

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_qsa_merge_args *a = args;
  const size_t splits = (size_t)stk_qsa_splits_max(a->budget, a->ratio);
  int32_t n = stk_qsa_attn_outputs(a, tensors, 0);
  tensors[n++] = STK_TENSOR("ids", a->ids, (size_t)a->n_tokens * (size_t)a->ids_stride, STK_I32,
                            STK_IN, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("n_ids", a->n_ids, a->n_tokens, STK_I32, STK_IN, STK_FILL_NONE, 0, 0);
  /* Sums of weights are positive; a maximum may be anything. */
  tensors[n++] = STK_TENSOR("partial", a->partial,
                            (size_t)a->n_tokens * (size_t)a->q_heads * splits * ((size_t)a->head_dim + 2),
                            STK_F32, STK_IN, STK_FILL_UNIFORM, 0.5, 9);
  return n;
}

static void prepare(void *args, uint64_t seed) { stk_qsa_attn_lists(args, seed, 0); }

static void work(const void *args, stk_work *w) {
  const stk_qsa_merge_args *a = args;
  double rows = (double)a->n_tokens * a->q_heads, splits = (double)stk_qsa_splits_max(a->budget, a->ratio);
  w->flops += rows * splits * (3.0 * a->head_dim + 80.0);
  w->io_bytes += rows * 4.0 * a->head_dim * (splits + 2.0);
}

static const stk_qsa_merge_args cases[] = {
    STK_QSA_CASE(1, 0, 12, 1, 256, 4, 4, STK_KV_F32, STK_ATTN_F32),
    STK_QSA_CASE(1, 2051, 24, 2, 256, 2048, 4, STK_KV_Q8, STK_ATTN_F32 | STK_ATTN_F16),
    STK_QSA_CASE(9, 254, 5, 1, 96, 513, 3, STK_KV_Q8, STK_ATTN_F16),
    STK_QSA_CASE(7, 600, 28, 2, 160, 512, 2, STK_KV_F32, STK_ATTN_F32),
};

static const stk_qsa_merge_args released =
    STK_QSA_CASE(1, 32767, 24, 2, 256, 2048, 4, STK_KV_F32, STK_ATTN_F32);

STK_OP(qsa_merge, STK_QSA_MERGE_CONTRACT, stk_qsa_merge_args, prepare,
       .params = stk_qsa_attn_params, .derive = stk_qsa_attn_derive, .released = &released, .shape = stk_qsa_attn_shape);
