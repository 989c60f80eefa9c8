/* qsa_decode: how its GPU kernel is launched. */
#include <stdio.h>

#include "qsa_decode/qsa_decode_cuda.h"

static const char *plan(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch) {
  (void)chip;
  const stk_qsa_decode_args *a = args;
  const int heads = qsa_decode_heads(a);
  const int64_t splits = a->n_tokens * stk_qsa_splits_max(a->budget, a->ratio);
  const int64_t groups = (int64_t)a->kv_heads * qsa_decode_groups(a, heads);
  if (splits > INT32_MAX || groups > 65535) return "qsa_decode: n_tokens, q_heads: fewer expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)splits, (uint32_t)groups, 1}, .block = 32 * QSA_DECODE_WARPS};
  launch->shared_bytes = (uint32_t)qsa_decode_shared_bytes(heads, a->head_dim, a->kv_kind);
  snprintf(launch->options, sizeof launch->options, "-DQSA_DIM=%d -DQSA_HEADS=%d -DQSA_KIND=%d", a->head_dim, heads,
           a->kv_kind);
  return NULL;
}

STK_CUDA_KERNEL(qsa_decode, cuda, qsa_decode_cuda, STK_QSA_DECODE_CONTRACT, stk_qsa_decode_args, STK_EXACT, plan);
