/* gdn_pre: how its GPU kernel is launched. */
#include <stdio.h>

#include "gdn_pre/gdn_pre_cuda_grid.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  (void)chip;
  const stk_gdn_pre_args *a = args;
  const int run = gdn_pre_run(a->n_tokens, a->n_taps);
  const int64_t runs = ((int64_t)a->n_tokens + (a->pos0 & 1) + run - 1) / run;
  const int units = a->k_heads + a->v_heads + (a->v_heads + GDN_PRE_GATE_HEADS - 1) / GDN_PRE_GATE_HEADS;
  if (a->k_dim > 256 || a->v_dim > 256) return "gdn_pre: k_dim, v_dim: at most 256 expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)runs, (uint32_t)((units + GDN_PRE_WARPS - 1) / GDN_PRE_WARPS), 1},
                              .block = 32 * GDN_PRE_WARPS};
  launch->shared_bytes = (uint32_t)(GDN_PRE_WARPS * gdn_pre_warp_floats(a->k_dim, a->v_dim)) * sizeof(float);
  snprintf(launch->options, sizeof launch->options, "-DGDN_DK=%d -DGDN_DV=%d -DGDN_TAPS=%d", a->k_dim, a->v_dim, a->n_taps);
  return NULL;
}

STK_CUDA_KERNEL(gdn_pre, cuda, gdn_pre_cuda, STK_GDN_PRE_CONTRACT, stk_gdn_pre_args, STK_EXACT, plan);
