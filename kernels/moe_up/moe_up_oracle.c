/* moe_up, the oracle. */
#include "common/k_oracle.h"
#include "moe_up/moe_up.h"

static void expert(const stk_moe_up_args *a, int64_t e, int64_t t, float *h) {
  const float *x = a->x + t * a->hidden;
  for (int64_t f = 0; f < a->gate[e].n_rows; ++f)
    h[f] = ks_silu(ko_seg256(&a->gate[e], f, x)) * ko_seg256(&a->up[e], f, x);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_moe_up_args *a = args;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t i = 0; i < a->n_used; ++i) {
      int64_t slot = t * a->n_used + i;
      expert(a, a->expert[slot], t, a->h + slot * a->expert_ff);
    }
    expert(a, a->n_experts, t, a->h_shared + t * a->shared_ff);
  }
}

STK_KERNEL(moe_up, oracle, "scalar", STK_MOE_UP_CONTRACT, stk_moe_up_args, STK_EXACT, run);
