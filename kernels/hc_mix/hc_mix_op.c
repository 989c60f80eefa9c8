/* hc_mix: shapes, operation counts and test cases. */
#include "hc_mix/hc_mix.h"

static const char *check(const void *args) {
  const stk_hc_mix_args *a = args;
  if (a->n_tokens < 1 || a->n_streams < 1 || a->hidden < 1)
    return "hc_mix: n_tokens, n_streams, hidden: at least 1 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_hc_mix_args *a = args;
  size_t rows = (size_t)a->n_tokens * (size_t)a->hidden, all = rows * (size_t)a->n_streams;
  tensors[0] = STK_TENSOR("u", a->u, all, STK_F32, STK_IN, STK_FILL_UNIFORM, -8, 8);
  tensors[1] = STK_TENSOR("n", a->n, all, STK_F32, STK_IN, STK_FILL_UNIFORM, -3, 3);
  tensors[2] = STK_TENSOR("x", a->x, rows, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return 3;
}

static void work(const void *args, stk_work *w) {
  const stk_hc_mix_args *a = args;
  double elems = (double)a->n_tokens * a->n_streams * a->hidden;
  w->flops += 34.0 * elems; /* a sigmoid is about 32 operations */
  w->io_bytes += 8.0 * elems + 4.0 * a->n_tokens * a->hidden;
}

static const stk_hc_mix_args cases[] = {
    {.n_tokens = 5, .n_streams = 4, .hidden = 256},
    {.n_tokens = 1, .n_streams = 4, .hidden = 2560},
    {.n_tokens = 3, .n_streams = 3, .hidden = 100},
    {.n_tokens = 2, .n_streams = 1, .hidden = 7},
};

static int32_t params(void *args, stk_param *params) {
  stk_hc_mix_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("S", a->n_streams);
  params[n++] = STK_PARAM("H", a->hidden);
  return n;
}

static const stk_hc_mix_args released = {.n_tokens = 512, .n_streams = 4, .hidden = 2560};

STK_OP(hc_mix, STK_HC_MIX_CONTRACT, stk_hc_mix_args, NULL, .params = params, .released = &released);
