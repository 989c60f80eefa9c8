/* gdn_post: how its GPU kernel is launched. */
#include <stdio.h>

#include "gdn_post/gdn_post.h"

static const char *plan(const void *args, stk_cuda_launch *launch) {
  const stk_gdn_post_args *a = args;
  const int64_t units = (int64_t)a->n_tokens * a->v_heads;
  if (a->v_dim > 2048) return "gdn_post: v_dim: at most 2048 expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)((units + 7) / 8), 1, 1}, .block = 128};
  snprintf(launch->options, sizeof launch->options, "-DGDN_DV=%d -DGDN_GATE=%d -DGDN_OUTPUTS=%d", a->v_dim,
           (int)a->gate, a->outputs);
  return NULL;
}

STK_CUDA_KERNEL(gdn_post, cuda, gdn_post_cuda, STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, plan);
