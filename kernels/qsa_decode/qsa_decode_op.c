/* qsa_decode: its tensors and test cases; the rest is qsa_attn's. */
#include "qsa_decode/qsa_decode.h"

static const char *check(const void *args) { return stk_qsa_attn_check(args); }

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_qsa_decode_args *a = args;
  int32_t n = stk_qsa_attn_inputs(a, tensors, 0);
  const size_t splits = (size_t)stk_qsa_splits_max(a->budget, a->ratio);
  tensors[n++] = STK_TENSOR("partial", a->partial,
                            (size_t)a->n_tokens * (size_t)a->q_heads * splits * ((size_t)a->head_dim + 2),
                            STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return n;
}

static void prepare(void *args, uint64_t seed) {
  stk_qsa_attn_lists(args, seed, 0);
  stk_qsa_attn_cache(args, seed);
}

static void work(const void *args, stk_work *w) { stk_qsa_attn_work(args, w); }

static const stk_qsa_decode_args cases[] = {
    STK_QSA_CASE(1, 0, 12, 1, 256, 4, 4, STK_KV_F32, STK_ATTN_F32),
    STK_QSA_CASE(1, 30, 12, 1, 256, 36, 4, STK_KV_F16, STK_ATTN_F32),
    STK_QSA_CASE(1, 2051, 24, 2, 256, 2048, 4, STK_KV_Q8, STK_ATTN_F32),
    STK_QSA_CASE(3, 254, 5, 1, 96, 513, 3, STK_KV_Q8, STK_ATTN_F32),
    STK_QSA_CASE(2, 600, 28, 2, 160, 512, 2, STK_KV_F32, STK_ATTN_F32),
    STK_QSA_CASE(3, 40, 13, 1, 512, 16, 4, STK_KV_F16, STK_ATTN_F32),
    STK_QSA_CASE(2, 14, 3, 3, 32, 16, 4, STK_KV_Q8, STK_ATTN_F32), /* one scale a row */
    /* enough tokens for a GPU's blocks of more than two heads */
    STK_QSA_CASE(96, 20, 5, 1, 32, 16, 4, STK_KV_F16, STK_ATTN_F32),
    STK_QSA_CASE(49, 20, 12, 2, 64, 16, 4, STK_KV_Q8, STK_ATTN_F32),
};

static const stk_qsa_decode_args released =
    STK_QSA_CASE(1, 32767, 24, 2, 256, 2048, 4, STK_KV_F32, STK_ATTN_F32);

STK_OP(qsa_decode, STK_QSA_DECODE_CONTRACT, stk_qsa_decode_args, prepare,
       .params = stk_qsa_attn_params, .derive = stk_qsa_attn_derive, .released = &released, .shape = stk_qsa_attn_shape,
       .link = stk_qsa_attn_link, .piece = stk_qsa_attn_piece);
