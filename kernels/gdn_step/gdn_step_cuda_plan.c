/* gdn_step: how its GPU kernel is launched. */
#include <stdio.h>

#include "gdn_step/gdn_step.h"

static const char *plan(const void *args, stk_cuda_launch *launch) {
  const stk_gdn_step_args *a = args;
  if (a->k_dim > 256) return "gdn_step: k_dim: at most 256 expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)(a->v_heads * (a->v_dim / STK_GDN_TILE)), 1, 1}, .block = 32};
  snprintf(launch->options, sizeof launch->options, "-DGDN_DK=%d", a->k_dim);
  return NULL;
}

STK_CUDA_KERNEL(gdn_step, cuda, gdn_step_cuda, STK_GDN_STEP_CONTRACT, stk_gdn_step_args, STK_EXACT, plan);
