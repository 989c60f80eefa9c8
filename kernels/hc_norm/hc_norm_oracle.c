/* hc_norm, the oracle. */
#include "common/k_oracle.h"
#include "hc_norm/hc_norm.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_hc_norm_args *a = args;
  const int64_t hidden = a->hidden;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->n_streams, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    int64_t t = i / a->n_streams, c = i % a->n_streams;
    float *r = a->r + i * hidden;
    if (a->y) {
      float s = 2.0f * ks_sigmoid(a->inject[t * a->inject_stride + c] * (1.0f / (float)a->n_streams));
      for (int64_t d = 0; d < hidden; ++d) r[d] = fmaf(s, a->y[t * hidden + d], r[d]);
    }
    a->mean_square[i] = ko_rms_norm(r, a->gain + c * hidden, a->eps, hidden, a->n + i * hidden);
  }
}

STK_KERNEL(hc_norm, oracle, "scalar", STK_HC_NORM_CONTRACT, stk_hc_norm_args, STK_EXACT, run);
