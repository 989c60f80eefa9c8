/* moe_down: shapes, operation counts and test cases. */
#include "common/k_routes.h"
#include "moe_down/moe_down.h"

#include <stdbool.h>

static const char *check(const void *args) {
  const stk_moe_down_args *a = args;
  if (a->n_tokens < 1 || a->hidden < 1 || a->expert_ff < 1 || a->shared_ff < 1)
    return "moe_down: n_tokens, hidden, expert_ff, shared_ff: at least 1 expected";
  if (a->n_used < 1 || a->n_used > a->n_experts) return "moe_down: n_used: 1 to n_experts expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_moe_down_args *a = args;
  size_t T = (size_t)a->n_tokens, E = (size_t)a->n_experts, k = (size_t)a->n_used;
  size_t H = (size_t)a->hidden, F = (size_t)a->expert_ff, Fs = (size_t)a->shared_ff;
  size_t distinct = (size_t)k_routes_distinct(a->n_experts, a->test_experts);
  int32_t n = 0;
  tensors[n++] = STK_TENSOR("h", a->h, T * k * F, STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[n++] = STK_TENSOR("h_shared", a->h_shared, T * Fs, STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[n++] = STK_TENSOR("weight", a->weight, T * k, STK_F32, STK_IN, STK_FILL_UNIFORM, 0, 1);
  tensors[n++] = STK_TENSOR("shared", a->shared, T, STK_F32, STK_IN, STK_FILL_UNIFORM, 0, 1);
  tensors[n++] = STK_TENSOR("weights", a->test_data, (distinct * F + Fs) * H, a->dtype, STK_IN,
                            STK_FILL_UNIFORM, -1, 1);
  tensors[n++] = STK_TENSOR("down", a->down, (E + 1) * sizeof *a->down, STK_U8, STK_IN,
                            STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("expert", a->expert, T * k, STK_I32, STK_IN, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("y", a->y, T * H, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return n;
}

static void link(void *args) {
  stk_moe_down_args *a = args;
  const int32_t distinct = k_routes_distinct(a->n_experts, a->test_experts);
  const size_t one = (size_t)a->expert_ff * (size_t)a->hidden * stk_dtype_bytes(a->dtype);
  for (int32_t e = 0; e <= a->n_experts; ++e) {
    bool shared = e == a->n_experts;
    uintptr_t data = (uintptr_t)a->test_data + one * (size_t)(shared ? distinct : e % distinct);
    ((stk_matrix *)(uintptr_t)a->down)[e] =
        (stk_matrix){(const void *)data, a->dtype, a->hidden, shared ? a->shared_ff : a->expert_ff};
  }
}

/* One block of memory holds all experts, so they are of one type. */
static const char *shape(const void *args, void *out) {
  stk_moe_down_args *s = out;
  const stk_moe_down_args *a = args;
  *s = *a;
  s->dtype = a->down->dtype;
  s->test_experts = 0;
  for (int32_t e = 0; e <= a->n_experts; ++e)
    if (a->down[e].dtype != s->dtype)
      return "moe_down: weights of several types: one for all experts expected";
  return NULL;
}

static size_t piece(const void *args, int32_t i, void **data) {
  const stk_moe_down_args *a = args;
  if (i > a->n_experts) return 0;
  const stk_matrix *m = &a->down[i];
  *data = (void *)(uintptr_t)m->data;
  return (size_t)m->n_rows * (size_t)m->n_cols * stk_dtype_bytes(m->dtype);
}

static void prepare(void *args, uint64_t seed) {
  stk_moe_down_args *a = args;
  link(a);
  k_routes_fill((int32_t *)(uintptr_t)a->expert, a->n_tokens, a->n_used, a->n_experts, seed);
}

static void work(const void *args, stk_work *w) {
  const stk_moe_down_args *a = args;
  double one = (double)a->expert_ff * a->hidden, shared = (double)a->shared_ff * a->hidden;
  w->flops += 2.0 * a->n_tokens * (a->n_used * (one + a->hidden) + shared + a->hidden);
  w->weight_bytes += (k_routes_touched(a->n_tokens, a->n_used, a->n_experts) * one + shared) *
                     (double)stk_dtype_bytes(a->down ? a->down->dtype : a->dtype);
  w->io_bytes += 4.0 * a->n_tokens * (a->hidden + (double)a->n_used * a->expert_ff + a->shared_ff);
}

#define CASE(T, E, k, h, f, fs, type)                                                      \
  {.n_tokens = T, .n_experts = E, .n_used = k, .hidden = h, .expert_ff = f, .shared_ff = fs, \
   .dtype = type}

static const stk_moe_down_args cases[] = {
    CASE(1, 16, 4, 256, 32, 64, STK_BF16), CASE(40, 6, 2, 256, 32, 64, STK_BF16),
    CASE(150, 3, 1, 75, 300, 5, STK_F16),  CASE(3, 5, 5, 33, 7, 70, STK_F32),
    CASE(1, 4, 2, 130, 600, 33, STK_F32),
};

static int32_t params(void *args, stk_param *params) {
  stk_moe_down_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("E", a->n_experts);
  params[n++] = STK_PARAM("k", a->n_used);
  params[n++] = STK_PARAM("H", a->hidden);
  params[n++] = STK_PARAM("F", a->expert_ff);
  params[n++] = STK_PARAM("Fs", a->shared_ff);
  return n;
}

/* Weights of 64 experts, 210 MB of them, each serving eight. */
static const stk_moe_down_args released = {
    .n_tokens = 512, .n_experts = 512, .n_used = 10, .hidden = 2560, .expert_ff = 640,
    .shared_ff = 640, .dtype = STK_BF16, .test_experts = 64};

STK_OP(moe_down, STK_MOE_DOWN_CONTRACT, stk_moe_down_args, prepare,
       .params = params, .released = &released, .shape = shape, .link = link, .piece = piece);
