/* gdn_scan: how its GPU kernels are launched (gdn_scan_warp.h). */
#include <stdio.h>

#include "gdn_scan/gdn_scan.h"

typedef struct shape {
  int cols, warps, pairs, prefetch;
} shape;

static const char *plan(const stk_gdn_scan_args *a, const shape *s, stk_cuda_launch *launch) {
  const int64_t columns = (int64_t)(a->v_heads / a->k_heads) * a->v_dim;
  const int64_t block_columns = 8 * (int64_t)s->cols * s->warps;
  const int rows = a->k_dim / 4, tokens = 2 * s->pairs;
  if (a->k_dim > 256) return "gdn_scan: k_dim: at most 256 expected on a GPU";
  *launch = (stk_cuda_launch){.block = 32 * (uint32_t)(s->warps + 1)};
  launch->grid[0] = (uint32_t)((columns + block_columns - 1) / block_columns);
  launch->grid[1] = (uint32_t)a->k_heads;
  launch->grid[2] = 1;
  /* A stage: k and q in padded rows, kq, and for each warp v, gb and the records. */
  int stage = (2 * tokens + 2) * 4 * (rows + 4) + tokens * (4 + s->warps * (8 * s->cols + 2)) + s->warps * s->pairs * 12;
  /* Behind the stages those on their way, if they are to be widened, and two pointers a warp. */
  const int raw = a->rows == STK_F16 ? s->prefetch * ((2 * tokens + 2) * 4 * rows + tokens * s->warps * 8 * s->cols) : 0;
  launch->shared_bytes = (uint32_t)((s->prefetch + 1) * stage * 4 + raw * 2 + s->warps * 16);
  snprintf(launch->options, sizeof launch->options, "-DGDN_DK=%d -DGDN_DV=%d -DGDN_ROWS=%d", a->k_dim, a->v_dim, a->rows);
  return NULL;
}

#define VARIANT(variant, entry, ...)                                             \
  static const char *plan_##entry(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) { \
    (void)chip;                                                                  \
    return plan(args, &(shape){__VA_ARGS__}, launch);                            \
  }                                                                              \
  STK_CUDA_KERNEL(gdn_scan, variant, entry, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, plan_##entry)

VARIANT(cuda, gdn_scan_cuda, .cols = 2, .warps = 3, .pairs = 16, .prefetch = 1);
VARIANT(cuda_p2, gdn_scan_cuda_p2, .cols = 2, .warps = 3, .pairs = 8, .prefetch = 2);
VARIANT(cuda_k0, gdn_scan_cuda_k0, .cols = 2, .warps = 3, .pairs = 16, .prefetch = 1);
VARIANT(cuda_c1, gdn_scan_cuda_c1, .cols = 1, .warps = 6, .pairs = 8, .prefetch = 1);
VARIANT(cuda_c4, gdn_scan_cuda_c4, .cols = 4, .warps = 1, .pairs = 8, .prefetch = 2);
