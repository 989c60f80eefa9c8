/* moe_down, the oracle. */
#include "common/k_oracle.h"
#include "moe_down/moe_down.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_moe_down_args *a = args;
  const int64_t k = a->n_used;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t)
    for (int64_t d = 0; d < a->hidden; ++d) {
      float y = 0.0f;
      for (int64_t i = 0; i < k; ++i) {
        int64_t slot = t * k + i;
        float out = ko_seg256(&a->down[a->expert[slot]], d, a->h + slot * a->expert_ff);
        y = i ? fmaf(a->weight[slot], out, y) : a->weight[slot] * out;
      }
      float out = ko_seg256(&a->down[a->n_experts], d, a->h_shared + t * a->shared_ff);
      a->y[t * a->hidden + d] = fmaf(a->shared[t], out, y);
    }
}

STK_KERNEL(moe_down, oracle, "scalar", STK_MOE_DOWN_CONTRACT, stk_moe_down_args, STK_EXACT, run);
