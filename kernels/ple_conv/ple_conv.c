/* isa: scalar avx2 avx512 neon
 * ple_conv -- a run of channels at a time goes through all tokens. */
#include "ple_conv/ple_conv.h"

#include "common/k_conv.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_ple_conv_args *a = args;
  const int64_t C = a->n_channels;
  k_conv v = {a->nv, a->conv_w, a->history, C, a->n_tokens, a->n_taps, a->dilation};
  float taps[K_CONV_TAPS][K_CONV_RUN], y[K_CONV_RUN];
  int64_t begin, end;
  stk_slice(C, 16, part, n_parts, &begin, &end);
  for (int64_t c = begin; c < end; c += K_CONV_RUN) {
    int n = (int)(end - c < K_CONV_RUN ? end - c : K_CONV_RUN);
    k_conv_taps(&v, c, n, taps);
    for (int64_t t = 0; t < a->n_tokens; ++t) {
      k_conv_token(&v, t, c, n, taps, 0, STK_F32, y, STK_F32);
      const float *gv = a->gv + t * C + c;
      float *r = a->r + t * C + c;
      int i = 0;
      for (; i + VW <= n; i += VW)
        vf_store(r + i, vf_add(vf_load(r + i), vf_add(vf_load(gv + i), vf_load(y + i))));
      for (; i < n; ++i) r[i] = r[i] + (gv[i] + y[i]);
    }
    k_conv_advance(&v, c, n, STK_F32);
  }
}

STK_KERNEL_LEVEL(ple_conv, STK_PLE_CONV_CONTRACT, stk_ple_conv_args, STK_EXACT, run);
