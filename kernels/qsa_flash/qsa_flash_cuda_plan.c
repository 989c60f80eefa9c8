/* qsa_flash: how its GPU kernel is launched. */
#include "qsa_attn/qsa_attn_cuda.h"
#include "qsa_flash/qsa_flash.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  (void)chip;
  const stk_qsa_flash_args *a = args;
  const int64_t n_dense = stk_qsa_attn_n_dense(a);
  return qsa_cuda_plan(a, qsa_cuda_token_blocks(n_dense) + qsa_cuda_token_blocks(a->n_tokens - n_dense), launch);
}

STK_CUDA_KERNEL(qsa_flash, cuda, qsa_flash_cuda, STK_QSA_FLASH_CONTRACT, stk_qsa_flash_args, STK_EXACT, plan);
