/* qsa_topk: how its GPU kernel is launched. */
#include <stdio.h>

#include "qsa_topk/qsa_topk_cuda_grid.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  (void)chip;
  const stk_qsa_topk_args *a = args;
  const int32_t held = qsa_topk_held(a, qsa_topk_blocks(a));
  *launch = (stk_cuda_launch){.grid = {(uint32_t)a->n_tokens, 1, 1}, .block = (uint32_t)qsa_topk_threads(a)};
  launch->shared_bytes = (uint32_t)sizeof(qsa_topk_shared) + 4 * (uint32_t)held;
  snprintf(launch->options, sizeof launch->options, "-DQSA_THREADS=%d -DQSA_RATIO=%d", qsa_topk_threads(a), a->ratio);
  return NULL;
}

STK_CUDA_KERNEL(qsa_topk, cuda, qsa_topk_cuda, STK_QSA_TOPK_CONTRACT, stk_qsa_topk_args, STK_EXACT, plan);
