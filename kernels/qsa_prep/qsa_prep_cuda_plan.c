/* qsa_prep: how its GPU kernel is launched. */
#include <stdio.h>

#include "qsa_prep/qsa_prep_cuda_grid.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  (void)chip;
  const stk_qsa_prep_args *a = args;
  if (a->idx_dim > STK_QSA_HEAD_MAX) return "qsa_prep: idx_dim: at most 512 expected on a GPU";
  const int rows = qsa_prep_head_rows(a) + (a->kinds & STK_QSA_BLOCKS ? 1 : 0);
  *launch = (stk_cuda_launch){.grid = {(uint32_t)a->n_tokens, (uint32_t)rows, 1}, .block = 32 * QSA_PREP_WARPS};
  launch->shared_bytes = (uint32_t)(QSA_PREP_WARPS * 2 * a->n_pairs) * sizeof(float);
  snprintf(launch->options, sizeof launch->options, "-DQSA_D=%d -DQSA_DI=%d", a->head_dim, a->idx_dim);
  return NULL;
}

STK_CUDA_KERNEL(qsa_prep, cuda, qsa_prep_cuda, STK_QSA_PREP_CONTRACT, stk_qsa_prep_args, STK_EXACT, plan);
