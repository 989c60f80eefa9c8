/* gdn_pre: how its GPU kernel is launched. */
#include <stdio.h>

#include "common/k_rows.h"
#include "gdn_pre/gdn_pre_cuda_grid.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  const stk_gdn_pre_args *a = args;
  if (a->n_tokens > INT32_MAX - 1024) return "gdn_pre: n_tokens: fewer expected on a GPU";
  const gdn_pre_layout l = gdn_pre_layout_of(a, a->k_heads, a->v_heads, a->n_taps, chip->n_processors);
  const int warps = gdn_pre_key_warps(&l, a->k_heads) + l.value_runs * a->v_heads;
  if (a->k_dim > 256 || a->v_dim > 256) return "gdn_pre: k_dim, v_dim: at most 256 expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)gdn_pre_up(warps, GDN_PRE_WARPS), 1, 1}, .block = 32 * GDN_PRE_WARPS};
  launch->shared_bytes = (uint32_t)(GDN_PRE_WARPS * gdn_pre_warp_bytes(a->k_dim, a->v_dim, (int)k_rows_bytes(1, a->rows)));
  snprintf(launch->options, sizeof launch->options,
           "-DKC_PROCESSORS=%d -DGDN_DK=%d -DGDN_DV=%d -DGDN_TAPS=%d -DGDN_HK=%d -DGDN_HV=%d -DGDN_ROWS=%d",
           chip->n_processors, a->k_dim, a->v_dim, a->n_taps, a->k_heads, a->v_heads, a->rows);
  return NULL;
}

STK_CUDA_KERNEL(gdn_pre, cuda, gdn_pre_cuda, STK_GDN_PRE_CONTRACT, stk_gdn_pre_args, STK_EXACT, plan);
