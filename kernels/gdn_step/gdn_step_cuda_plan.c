/* gdn_step: how its GPU kernels are launched. */
#include <stdio.h>

#include "gdn_step/gdn_step_batch.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  (void)chip;
  const stk_gdn_step_args *a = args;
  if (a->k_dim > 256) return "gdn_step: k_dim: at most 256 expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)(a->v_heads * (a->v_dim / STK_GDN_TILE)), 1, 1}, .block = 32};
  snprintf(launch->options, sizeof launch->options, "-DGDN_DK=%d -DGDN_ROWS=%d", a->k_dim, a->rows);
  return NULL;
}

/* args: as the host has them, steps in its own memory. */
static const char *plan_batch(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  const stk_gdn_step_batch_args *a = args;
  if (a->n_steps < 1) return "gdn_step_batch: n_steps: at least 1 expected";
  const char *refused = plan(a->steps, chip, launch);
  if (!refused) launch->grid[1] = (uint32_t)a->n_steps;
  return refused;
}

STK_CUDA_KERNEL(gdn_step, cuda, gdn_step_cuda, STK_GDN_STEP_CONTRACT, stk_gdn_step_args, STK_EXACT, plan);
STK_CUDA_KERNEL(gdn_step, batch, gdn_step_batch_cuda, STK_GDN_STEP_CONTRACT, stk_gdn_step_batch_args, STK_EXACT, plan_batch);
