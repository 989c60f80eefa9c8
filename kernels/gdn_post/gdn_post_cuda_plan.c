/* gdn_post: how its GPU kernel is launched. */
#include <stdio.h>

#include "gdn_post/gdn_post.h"

enum { BLOCK_HEADS = 16, BLOCK_THREADS = 128 }; /* four warps, each four heads */

static const char *plan(const void *args, stk_cuda_launch *launch) {
  const stk_gdn_post_args *a = args;
  const int64_t groups = ((int64_t)a->v_heads + BLOCK_HEADS - 1) / BLOCK_HEADS;
  if (a->v_dim > 2048) return "gdn_post: v_dim: at most 2048 expected on a GPU";
  if (groups > 65535) return "gdn_post: v_heads: at most 1048560 expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)a->n_tokens, (uint32_t)groups, 1}, .block = BLOCK_THREADS};
  snprintf(launch->options, sizeof launch->options, "-DGDN_DV=%d -DGDN_GATE=%d -DGDN_OUTPUTS=%d", a->v_dim,
           (int)a->gate, a->outputs);
  return NULL;
}

STK_CUDA_KERNEL(gdn_post, cuda, gdn_post_cuda, STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, plan);
