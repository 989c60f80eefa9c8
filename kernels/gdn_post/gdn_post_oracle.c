/* gdn_post, the oracle. */
#include "common/k_oracle.h"
#include "gdn_post/gdn_post.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_post_args *a = args;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->v_heads, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    int64_t t = i / a->v_heads, h = i % a->v_heads;
    float *y = a->y + i * a->v_dim;
    ko_rms_norm(a->o + (h * a->n_tokens + t) * a->v_dim, a->gain, a->eps, a->v_dim, y);
    for (int64_t j = 0; j < a->v_dim; ++j) y[j] = y[j] * ks_sigmoid(a->z[i * a->v_dim + j]);
  }
}

STK_KERNEL(gdn_post, oracle, "scalar", STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, run);
