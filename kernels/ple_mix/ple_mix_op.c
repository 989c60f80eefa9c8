/* ple_mix: shapes, operation counts and test cases. */
#include "ple_mix/ple_mix.h"

static const char *check(const void *args) {
  const stk_ple_mix_args *a = args;
  if (a->n_tokens < 1 || a->n_streams < 1 || a->hidden < 1)
    return "ple_mix: n_tokens, n_streams, hidden: at least 1 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_ple_mix_args *a = args;
  size_t T = (size_t)a->n_tokens, S = (size_t)a->n_streams, H = (size_t)a->hidden;
  int32_t n = 0;
#define IN(field, n_, low, high) \
  tensors[n++] = STK_TENSOR(#field, a->field, n_, STK_F32, STK_IN, STK_FILL_UNIFORM, low, high)
  IN(key_raw, T * S * H, -2, 2);
  IN(val, T * H, -2, 2);
  IN(r, T * S * H, -3, 3);
  IN(key_gain, S * H, 0, 2);
  IN(query_gain, S * H, 0, 2);
  IN(conv_gain, S * H, 0, 2);
#undef IN
  tensors[n++] = STK_TENSOR("gv", a->gv, T * S * H, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("nv", a->nv, T * S * H, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return n;
}

static void work(const void *args, stk_work *w) {
  const stk_ple_mix_args *a = args;
  double elems = (double)a->n_tokens * a->n_streams * a->hidden;
  w->flops += 15.0 * elems;
  w->io_bytes += 16.0 * elems + 4.0 * a->n_tokens * a->hidden;
}

static const stk_ple_mix_args cases[] = {
    {.n_tokens = 5, .n_streams = 4, .hidden = 256, .eps = 1e-6f},
    {.n_tokens = 1, .n_streams = 3, .hidden = 100, .eps = 1e-6f},
};

static int32_t params(void *args, stk_param *params) {
  stk_ple_mix_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("S", a->n_streams);
  params[n++] = STK_PARAM("H", a->hidden);
  return n;
}

static const stk_ple_mix_args released = {
    .n_tokens = 512, .n_streams = 4, .hidden = 2560, .eps = 1e-6f};

STK_OP(ple_mix, STK_PLE_MIX_CONTRACT, stk_ple_mix_args, NULL,
       .params = params, .released = &released);
