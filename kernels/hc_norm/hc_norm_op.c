/* hc_norm: shapes, operation counts and test cases. In the cases, a stride of 0
 * means that there is no y. */
#include "hc_norm/hc_norm.h"

static const char *check(const void *args) {
  const stk_hc_norm_args *a = args;
  if (a->n_tokens < 1) return "hc_norm: n_tokens: at least 1 expected";
  if (a->n_streams < 1 || a->hidden < 1) return "hc_norm: n_streams, hidden: at least 1 expected";
  if (a->y && a->inject_stride < a->n_streams)
    return "hc_norm: inject_stride: at least n_streams expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_hc_norm_args *a = args;
  size_t pairs = (size_t)a->n_tokens * (size_t)a->n_streams, hidden = (size_t)a->hidden;
  int32_t n = 0;
  tensors[n++] = STK_TENSOR("r", a->r, pairs * hidden, STK_F32, STK_INOUT, STK_FILL_UNIFORM, -3, 3);
  tensors[n++] = STK_TENSOR("gain", a->gain, (size_t)a->n_streams * hidden, STK_F32, STK_IN,
                            STK_FILL_UNIFORM, 0, 2);
  tensors[n++] = STK_TENSOR("n", a->n, pairs * hidden, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] =
      STK_TENSOR("mean_square", a->mean_square, pairs, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  if (a->inject_stride) {
    tensors[n++] = STK_TENSOR("y", a->y, (size_t)a->n_tokens * hidden, STK_F32, STK_IN,
                              STK_FILL_UNIFORM, -1, 1);
    tensors[n++] = STK_TENSOR("inject", a->inject, (size_t)a->n_tokens * (size_t)a->inject_stride,
                              STK_F32, STK_IN, STK_FILL_UNIFORM, -9, 9);
  }
  return n;
}

static void work(const void *args, stk_work *w) {
  const stk_hc_norm_args *a = args;
  double elems = (double)a->n_tokens * a->n_streams * a->hidden;
  w->flops += elems * (a->y ? 6.0 : 4.0);
  w->io_bytes += elems * (a->y ? 13.0 : 8.0);
}

static const stk_hc_norm_args cases[] = {
    {.n_tokens = 5, .n_streams = 4, .hidden = 256, .eps = 1e-6f},
    {.n_tokens = 3, .n_streams = 4, .hidden = 2560, .eps = 1e-6f, .inject_stride = 6},
    {.n_tokens = 1, .n_streams = 3, .hidden = 100, .eps = 1e-6f, .inject_stride = 3},
    {.n_tokens = 7, .n_streams = 1, .hidden = 33, .eps = 1e-5f, .inject_stride = 1},
};

static int32_t params(void *args, stk_param *params) {
  stk_hc_norm_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("S", a->n_streams);
  params[n++] = STK_PARAM("H", a->hidden);
  return n;
}

/* A row of inject is dense; without y there is none. */
static void derive(void *args) {
  stk_hc_norm_args *a = args;
  if (a->inject_stride) a->inject_stride = a->n_streams;
}

static const stk_hc_norm_args released = {
    .n_tokens = 512, .n_streams = 4, .hidden = 2560, .eps = 1e-6f, .inject_stride = 4};

STK_OP(hc_norm, STK_HC_NORM_CONTRACT, stk_hc_norm_args, NULL,
       .params = params, .derive = derive, .released = &released);
