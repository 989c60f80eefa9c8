/* hc_mix, the oracle. */
#include "common/k_oracle.h"
#include "hc_mix/hc_mix.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_hc_mix_args *a = args;
  const int64_t hidden = a->hidden, row = hidden * a->n_streams;
  int64_t begin, end;
  stk_slice(a->n_tokens * hidden, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    int64_t t = i / hidden, d = i % hidden;
    float sum = 0.0f;
    for (int64_t c = 0; c < a->n_streams; ++c) {
      int64_t at = t * row + c * hidden + d;
      float gate = ks_sigmoid(a->u[at]);
      sum = c ? fmaf(gate, a->n[at], sum) : gate * a->n[at];
    }
    a->x[i] = sum * (1.0f / (float)a->n_streams);
  }
}

STK_KERNEL(hc_mix, oracle, "scalar", STK_HC_MIX_CONTRACT, stk_hc_mix_args, STK_EXACT, run);
