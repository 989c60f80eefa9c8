/* qsa_merge: how its GPU kernel is launched. */
#include "qsa_merge/qsa_merge.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  (void)chip;
  const stk_qsa_merge_args *a = args;
  const int64_t rows = (int64_t)a->n_tokens * a->q_heads;
  if (rows > INT32_MAX) return "qsa_merge: n_tokens, q_heads: fewer than 2^31 rows expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)rows, 1, 1}, .block = (uint32_t)a->head_dim};
  return NULL;
}

STK_CUDA_KERNEL(qsa_merge, cuda, qsa_merge_cuda, STK_QSA_MERGE_CONTRACT, stk_qsa_merge_args, STK_EXACT, plan);
