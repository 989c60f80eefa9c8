/* qsa_attn: how its GPU kernel is launched. */
#include "qsa_attn/qsa_attn_cuda.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  (void)chip;
  const stk_qsa_attn_args *a = args;
  return qsa_cuda_plan(a, qsa_cuda_token_blocks(a->n_tokens), launch);
}

STK_CUDA_KERNEL(qsa_attn, cuda, qsa_attn_cuda, STK_QSA_ATTN_CONTRACT, stk_qsa_attn_args, STK_EXACT, plan);
