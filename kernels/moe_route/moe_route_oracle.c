/* moe_route, the oracle: an expert is selected if fewer than k come before it. */
#include "common/k_oracle.h"
#include "moe_route/moe_route.h"

/* Does expert x (logit lx) come before expert y (logit ly)? */
static int before(float lx, int64_t x, float ly, int64_t y) {
  int nan_x = lx != lx, nan_y = ly != ly;
  if (nan_x != nan_y) return nan_y;
  if (!nan_x && lx != ly) return lx > ly;
  return x < y;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_moe_route_args *a = args;
  const int64_t E = a->n_experts, k = a->n_used;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) {
    const float *logit = a->logits + t * E;
    int64_t count = 0, top = 0;
    for (int64_t e = 0; e < E; ++e) {
      int64_t rank = 0;
      for (int64_t other = 0; other < E; ++other) rank += before(logit[other], other, logit[e], e);
      if (rank == 0) top = e;
      if (rank < k) a->expert[t * k + count++] = (int32_t)e;
    }
    float sum = 0.0f, m = logit[top];
    for (int64_t e = 0; e < E; ++e)
      if (logit[e] != logit[e]) m = logit[e];
    for (int64_t i = 0; i < k; ++i) {
      float e = ks_exp(logit[a->expert[t * k + i]] - m);
      a->weight[t * k + i] = e;
      sum = i ? sum + e : e;
    }
    if (!a->norm_topk) {
      for (int64_t e = 0; e < E; ++e) a->all[t * E + e] = ks_exp(logit[e] - m);
      sum = ko_tree32(a->all + t * E, NULL, E);
    }
    for (int64_t i = 0; i < k; ++i) a->weight[t * k + i] = a->weight[t * k + i] / sum;
    a->shared[t] = ks_sigmoid(a->shared_logit[t]);
  }
}

STK_KERNEL(moe_route, oracle, "scalar", STK_MOE_ROUTE_CONTRACT, stk_moe_route_args, STK_EXACT, run);
