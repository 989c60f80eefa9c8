/* ple_conv, the oracle. */
#include "common/k_oracle.h"
#include "ple_conv/ple_conv.h"

static float row(const stk_ple_conv_args *a, int64_t t, int64_t i) {
  int64_t before = (int64_t)(a->n_taps - 1) * a->dilation;
  return t < 0 ? a->history[(before + t) * a->n_channels + i] : a->nv[t * a->n_channels + i];
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_ple_conv_args *a = args;
  const int64_t before = (int64_t)(a->n_taps - 1) * a->dilation;
  int64_t begin, end;
  stk_slice(a->n_channels, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    const float *w = a->conv_w + i * a->n_taps;
    for (int64_t t = 0; t < a->n_tokens; ++t) {
      float sum = w[0] * row(a, t - before, i);
      for (int64_t j = 1; j < a->n_taps; ++j)
        sum = fmaf(w[j], row(a, t - (a->n_taps - 1 - j) * a->dilation, i), sum);
      float *r = a->r + t * a->n_channels + i;
      *r = *r + (a->gv[t * a->n_channels + i] + ks_silu(sum));
    }
    for (int64_t j = 0; j < before; ++j)
      a->history[j * a->n_channels + i] = row(a, a->n_tokens - before + j, i);
  }
}

STK_KERNEL(ple_conv, oracle, "scalar", STK_PLE_CONV_CONTRACT, stk_ple_conv_args, STK_EXACT, run);
