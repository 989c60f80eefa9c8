/* qsa_flash: test cases; the rest is qsa_attn's. */
#include "qsa_flash/qsa_flash.h"

static const char *check(const void *args) { return stk_qsa_attn_check(args); }

static int32_t tensors(void *args, stk_tensor *tensors) {
  return stk_qsa_attn_outputs(args, tensors, stk_qsa_attn_inputs(args, tensors, 0));
}

static void prepare(void *args, uint64_t seed) {
  stk_qsa_attn_lists(args, seed, 0);
  stk_qsa_attn_cache(args, seed);
}

static void work(const void *args, stk_work *w) { stk_qsa_attn_work(args, w); }

static const stk_qsa_flash_args cases[] = {
    STK_QSA_CASE(1, 0, 12, 1, 256, 4, 4, STK_KV_F32, STK_ATTN_F32),
    STK_QSA_CASE(7, 30, 12, 1, 256, 36, 4, STK_KV_F16, STK_ATTN_F32 | STK_ATTN_F16),
    STK_QSA_CASE(9, 255, 24, 2, 256, 260, 4, STK_KV_Q8, STK_ATTN_F16),
    STK_QSA_CASE(5, 254, 5, 1, 96, 513, 3, STK_KV_Q8, STK_ATTN_F32),
    STK_QSA_CASE(3, 600, 7, 7, 32, 300, 1, STK_KV_F32, STK_ATTN_F32),
    STK_QSA_CASE(6, 509, 28, 2, 160, 512, 2, STK_KV_F16, STK_ATTN_F32),
    STK_QSA_CASE(3, 40, 26, 1, 512, 16, 4, STK_KV_Q8, STK_ATTN_F32 | STK_ATTN_F16),
    STK_QSA_CASE(7, 14, 3, 1, 160, 16, 4, STK_KV_Q8, STK_ATTN_F32), /* an odd number of scales */
};

static const stk_qsa_flash_args released =
    STK_QSA_CASE(512, 2048, 24, 2, 256, 2048, 4, STK_KV_F32, STK_ATTN_F32);

STK_OP(qsa_flash, STK_QSA_FLASH_CONTRACT, stk_qsa_flash_args, prepare,
       .params = stk_qsa_attn_params, .derive = stk_qsa_attn_derive, .released = &released, .shape = stk_qsa_attn_shape,
       .link = stk_qsa_attn_link, .piece = stk_qsa_attn_piece);
