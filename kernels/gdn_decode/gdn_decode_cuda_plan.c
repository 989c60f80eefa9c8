/* gdn_decode: how its GPU kernel is launched. */
#include <stdio.h>

#include "common/k_rows.h"
#include "gdn_decode/gdn_decode.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  (void)chip;
  const stk_gdn_decode_args *a = args;
  const stk_gdn_step_args *step = &a->step;
  const int ratio = step->v_heads / step->k_heads;
  if (a->pre.n_tokens != 1 || step->n_tokens != 1 || a->post.n_tokens != 1)
    return "gdn_decode: n_tokens: 1 expected";
  if (!k_rows_are_known(step->rows) || a->pre.rows != step->rows || a->post.rows != step->rows)
    return "gdn_decode: rows: all f32 or all f16 expected";
  if (a->pre.kinds != STK_GDN_ALL) return "gdn_decode: kinds: all expected";
  if (step->k_dim > 256 || step->v_dim < 64 || step->v_dim > 128)
    return "gdn_decode: k_dim, v_dim: at most 256, and 64 to 128, expected";
  if (ratio > 8) return "gdn_decode: v_heads: at most 8 times k_heads expected";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)step->v_heads, 1, 1}, .block = 2 * (uint32_t)step->v_dim,
                              .cluster = (uint32_t)ratio};
  launch->shared_bytes = (uint32_t)(2 * step->k_dim + 2 * step->v_dim + 8) * 4;
  snprintf(launch->options, sizeof launch->options, "-DGDN_DK=%d -DGDN_DV=%d -DGDN_TAPS=%d -DGDN_RATIO=%d -DGDN_ROWS=%d",
           step->k_dim, step->v_dim, a->pre.n_taps, ratio, step->rows);
  return NULL;
}

STK_CUDA_KERNEL(gdn_decode, cuda, gdn_decode_cuda, 4u, stk_gdn_decode_args, STK_EXACT, plan);
