/* isa: scalar
 * moe_route -- an insertion into a short sorted list a logit; few get past its
 * last entry. */
#include "moe_route/moe_route.h"

#include "common/k_math.h"

/* A NaN is below everything; between equals the earlier one stays first. */
static int above(float a, float b) { return a > b || (b != b && a == a); }

/* Fills expert with the ids of the k largest logits, the largest first. */
static void select_top(const float *logit, int32_t n, int32_t k, int32_t *expert) {
  int32_t count = 0;
  for (int32_t e = 0; e < n; ++e) {
    int32_t at = count < k ? count++ : k;
    for (; at > 0 && above(logit[e], logit[expert[at - 1]]); --at)
      if (at < k) expert[at] = expert[at - 1];
    if (at < k) expert[at] = e;
  }
}

static void sort_ascending(int32_t *expert, int32_t k) {
  for (int32_t i = 1; i < k; ++i) {
    int32_t id = expert[i], at = i;
    for (; at > 0 && expert[at - 1] > id; --at) expert[at] = expert[at - 1];
    expert[at] = id;
  }
}

/* tree32 of n values, without vectors: it is only needed without norm_topk. */
static float sum_all(const float *x, int64_t n) {
  float lane[32] = {0};
  for (int64_t group = 0; group < n; group += 128)
    for (int64_t l = 0; l < 32; ++l) {
      float s[4] = {0};
      for (int64_t step = 0; step < 4; ++step)
        if (group + step * 32 + l < n) s[step] = x[group + step * 32 + l];
      float sum = (s[0] + s[1]) + (s[2] + s[3]);
      lane[l] = group ? lane[l] + sum : sum;
    }
  for (int64_t half = 16; half; half /= 2)
    for (int64_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

static void route(const stk_moe_route_args *a, int64_t t) {
  const int32_t k = a->n_used;
  const float *logit = a->logits + t * a->n_experts;
  int32_t *expert = a->expert + t * k;
  float *weight = a->weight + t * k, sum;
  select_top(logit, a->n_experts, k, expert);
  float top = logit[expert[0]];
  for (int32_t e = 0; e < a->n_experts; ++e)
    if (logit[e] != logit[e]) top = logit[e];
  sort_ascending(expert, k);
  for (int32_t i = 0; i < k; ++i) weight[i] = ks_exp(logit[expert[i]] - top);
  if (a->norm_topk) {
    sum = weight[0];
    for (int32_t i = 1; i < k; ++i) sum += weight[i];
  } else {
    float *all = a->all + t * a->n_experts;
    for (int32_t e = 0; e < a->n_experts; ++e) all[e] = ks_exp(logit[e] - top);
    sum = sum_all(all, a->n_experts);
  }
  for (int32_t i = 0; i < k; ++i) weight[i] /= sum;
  a->shared[t] = ks_sigmoid(a->shared_logit[t]);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_moe_route_args *a = args;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) route(a, t);
}

STK_KERNEL_LEVEL(moe_route, STK_MOE_ROUTE_CONTRACT, stk_moe_route_args, STK_EXACT, run);
