/* ple_conv: shapes, operation counts and test cases. */
#include "ple_conv/ple_conv.h"

static const char *check(const void *args) {
  const stk_ple_conv_args *a = args;
  if (a->n_tokens < 1) return "ple_conv: n_tokens: at least 1 expected";
  if (a->n_channels < 1) return "ple_conv: n_channels: at least 1 expected";
  if (a->n_taps < 2 || a->n_taps > 16) return "ple_conv: n_taps: 2 to 16 expected";
  if (a->dilation < 1) return "ple_conv: dilation: at least 1 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_ple_conv_args *a = args;
  size_t T = (size_t)a->n_tokens, C = (size_t)a->n_channels, K = (size_t)a->n_taps;
  size_t before = (K - 1) * (size_t)a->dilation;
  tensors[0] = STK_TENSOR("gv", a->gv, T * C, STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[1] = STK_TENSOR("nv", a->nv, T * C, STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[2] = STK_TENSOR("conv_w", a->conv_w, C * K, STK_F32, STK_IN, STK_FILL_UNIFORM, -1, 1);
  tensors[3] =
      STK_TENSOR("history", a->history, before * C, STK_F32, STK_INOUT, STK_FILL_UNIFORM, -2, 2);
  tensors[4] = STK_TENSOR("r", a->r, T * C, STK_F32, STK_INOUT, STK_FILL_UNIFORM, -3, 3);
  return 5;
}

static void work(const void *args, stk_work *w) {
  const stk_ple_conv_args *a = args;
  double elems = (double)a->n_tokens * a->n_channels;
  w->flops += elems * (2.0 * a->n_taps + 38.0);
  w->state_bytes += 8.0 * a->n_channels * (a->n_taps - 1.0) * a->dilation;
  w->weight_bytes += 4.0 * a->n_channels * a->n_taps;
  w->io_bytes += 16.0 * elems;
}

static const stk_ple_conv_args cases[] = {
    {.n_tokens = 1, .n_channels = 1024, .n_taps = 4, .dilation = 3},
    {.n_tokens = 5, .n_channels = 80, .n_taps = 4, .dilation = 3},
    {.n_tokens = 37, .n_channels = 203, .n_taps = 3, .dilation = 2},
};

static int32_t params(void *args, stk_param *params) {
  stk_ple_conv_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("C", a->n_channels);
  params[n++] = STK_PARAM("taps", a->n_taps);
  params[n++] = STK_PARAM("dilation", a->dilation);
  return n;
}

static const stk_ple_conv_args released = {
    .n_tokens = 512, .n_channels = 10240, .n_taps = 4, .dilation = 3};

STK_OP(ple_conv, STK_PLE_CONV_CONTRACT, stk_ple_conv_args, NULL,
       .params = params, .released = &released);
