/* gdn_post: how its GPU kernel is launched. */
#include <stdio.h>

#include "common/k_rows.h"
#include "gdn_post/gdn_post_cuda_grid.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  const stk_gdn_post_args *a = args;
  const int row_bytes = (int)k_rows_bytes(1, a->rows), groups = gdn_post_groups(a->v_heads);
  const int run = gdn_post_run(a->n_tokens, a->v_heads, chip->n_processors, row_bytes);
  const int64_t runs = ((int64_t)a->n_tokens + run - 1) / run;
  if (a->v_dim > 512) return "gdn_post: v_dim: at most 512 expected on a GPU";
  if (runs * groups > INT32_MAX) return "gdn_post: n_tokens, v_heads: fewer expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)(runs * groups), 1, 1}, .block = 32 * GDN_POST_WARPS};
  launch->shared_bytes = (uint32_t)(GDN_POST_WARPS * gdn_post_warp_bytes(a->v_dim, row_bytes));
  snprintf(launch->options, sizeof launch->options,
           "-DKC_PROCESSORS=%d -DGDN_HV=%d -DGDN_DV=%d -DGDN_GATE=%d -DGDN_OUTPUTS=%d -DGDN_ROWS=%d",
           chip->n_processors, a->v_heads, a->v_dim, (int)a->gate, a->outputs, a->rows);
  return NULL;
}

STK_CUDA_KERNEL(gdn_post, cuda, gdn_post_cuda, STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, plan);
