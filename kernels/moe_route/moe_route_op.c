/* moe_route: shapes, operation counts and test cases. */
#include "moe_route/moe_route.h"

#include <math.h>

static const char *check(const void *args) {
  const stk_moe_route_args *a = args;
  if (a->n_tokens < 1) return "moe_route: n_tokens: at least 1 expected";
  if (a->n_used < 1 || a->n_used > a->n_experts || a->n_used > STK_EXPERTS_USED_MAX)
    return "moe_route: n_used: 1 to min(n_experts, 64) expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_moe_route_args *a = args;
  size_t T = (size_t)a->n_tokens, E = (size_t)a->n_experts, k = (size_t)a->n_used;
  int32_t n = 0;
  tensors[n++] = STK_TENSOR("logits", a->logits, T * E, STK_F32, STK_IN, STK_FILL_UNIFORM, -6, 6);
  tensors[n++] =
      STK_TENSOR("shared_logit", a->shared_logit, T, STK_F32, STK_IN, STK_FILL_UNIFORM, -6, 6);
  tensors[n++] = STK_TENSOR("expert", a->expert, T * k, STK_I32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("weight", a->weight, T * k, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("shared", a->shared, T, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("all", a->all, T * E, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return n;
}

/* Exact ties in every second row, a NaN in every third. */
static void prepare(void *args, uint64_t seed) {
  stk_moe_route_args *a = args;
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    float *row = (float *)(uintptr_t)a->logits + t * a->n_experts;
    for (int64_t e = 0; e < a->n_experts && t % 2; ++e) row[e] = floorf(row[e]);
    if (t % 3 == 2) row[(uint64_t)t * seed % (uint64_t)a->n_experts] = NAN;
  }
}

static void work(const void *args, stk_work *w) {
  const stk_moe_route_args *a = args;
  w->flops += a->n_tokens * (a->n_experts + 40.0 * a->n_used);
  w->io_bytes += 4.0 * a->n_tokens * (a->n_experts + 2.0 * a->n_used);
}

static const stk_moe_route_args cases[] = {
    {.n_tokens = 13, .n_experts = 16, .n_used = 4, .norm_topk = 1},
    {.n_tokens = 5, .n_experts = 512, .n_used = 10, .norm_topk = 1},
    {.n_tokens = 7, .n_experts = 5, .n_used = 5, .norm_topk = 0},
    {.n_tokens = 4, .n_experts = 100, .n_used = 1, .norm_topk = 0},
};

static int32_t params(void *args, stk_param *params) {
  stk_moe_route_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("E", a->n_experts);
  params[n++] = STK_PARAM("k", a->n_used);
  return n;
}

static const stk_moe_route_args released = {
    .n_tokens = 512, .n_experts = 512, .n_used = 10, .norm_topk = 1};

STK_OP(moe_route, STK_MOE_ROUTE_CONTRACT, stk_moe_route_args, prepare,
       .params = params, .released = &released);
