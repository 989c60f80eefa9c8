/* qsa_topk: shapes, operation counts and test cases. */
#include "qsa_topk/qsa_topk.h"

#include <math.h>

static const char *check(const void *args) {
  const stk_qsa_topk_args *a = args;
  if (a->n_tokens < 1 || a->pos0 < 0 || a->pos0 > INT32_MAX - a->n_tokens)
    return "qsa_topk: n_tokens, pos0: a window below 2^31 expected";
  if (a->ratio < 1 || a->budget < a->ratio || a->budget % a->ratio)
    return "qsa_topk: budget: a multiple of ratio expected";
  if (a->score_stride < (a->pos0 + a->n_tokens) / a->ratio)
    return "qsa_topk: score_stride: at least the number of blocks expected";
  if (a->ids_stride < (int64_t)a->budget + a->ratio - 1)
    return "qsa_topk: ids_stride: at least budget + ratio - 1 expected";
  if (a->list_all < 0 || a->list_all > 1) return "qsa_topk: list_all: 0 or 1 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_qsa_topk_args *a = args;
  size_t T = (size_t)a->n_tokens;
  tensors[0] = STK_TENSOR("score", a->score, T * (size_t)a->score_stride, STK_F32, STK_IN,
                          STK_FILL_UNIFORM, 0, 4);
  tensors[1] =
      STK_TENSOR("ids", a->ids, T * (size_t)a->ids_stride, STK_I32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[2] = STK_TENSOR("n_ids", a->n_ids, T, STK_I32, STK_OUT, STK_FILL_NONE, 0, 0);
  return 3;
}

/* Real scores have many exact ties, zeros above all: round them coarsely, and
 * give one row each of signed zeros, NaNs and infinities, and equal values. */
static void prepare(void *args, uint64_t seed) {
  stk_qsa_topk_args *a = args;
  (void)seed;
  for (int64_t t = 0; t < a->n_tokens; ++t)
    for (int64_t b = 0; b < a->score_stride; ++b) {
      float *x = (float *)(uintptr_t)a->score + t * a->score_stride + b;
      switch (t % 5) {
        case 0: *x = *x < 1.0f ? 0.0f : *x; break;
        case 1: *x = floorf(*x * 4.0f); break;
        case 2: *x = b % 2 ? 0.0f : -0.0f; break;
        case 3: *x = b % 3 == 0 ? NAN : b % 7 == 0 ? INFINITY : b % 11 == 0 ? -INFINITY : *x; break;
        default: *x = 1.0f; break;
      }
    }
}

static void work(const void *args, stk_work *w) {
  const stk_qsa_topk_args *a = args;
  w->io_bytes += 4.0 * a->n_tokens * ((double)(a->pos0 + a->n_tokens) / a->ratio + a->budget);
}

#define CASE(T, pos, r, b, stride, all)                                      \
  {.n_tokens = T, .pos0 = pos, .ratio = r, .budget = b, .score_stride = stride, \
   .ids_stride = b + r + 2, .list_all = all}

static const stk_qsa_topk_args cases[] = {
    CASE(7, 255, 4, 256, 66, 0),   CASE(12, 1000, 4, 256, 300, 0), CASE(5, 2050, 4, 2048, 513, 0),
    CASE(10, 40, 3, 6, 20, 0),     CASE(5, 30000, 4, 2048, 7501, 0), CASE(5, 9, 1, 4, 14, 0),
    CASE(7, 255, 4, 256, 66, 1),   CASE(9, 0, 2, 8, 4, 1),
};

static int32_t params(void *args, stk_param *params) {
  stk_qsa_topk_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("pos0", a->pos0);
  params[n++] = STK_PARAM("r", a->ratio);
  params[n++] = STK_PARAM("B", a->budget);
  params[n++] = STK_PARAM("list_all", a->list_all);
  return n;
}

static void derive(void *args) {
  stk_qsa_topk_args *a = args;
  a->score_stride = ((int64_t)a->pos0 + a->n_tokens) / (a->ratio > 0 ? a->ratio : 1);
  a->ids_stride = (int64_t)a->budget + a->ratio - 1;
}

static const stk_qsa_topk_args released =
    {.n_tokens = 512, .pos0 = 32256, .ratio = 4, .budget = 2048, .score_stride = 8192, .ids_stride = 2051};

STK_OP(qsa_topk, STK_QSA_TOPK_CONTRACT, stk_qsa_topk_args, prepare, .params = params,
       .derive = derive, .released = &released);
