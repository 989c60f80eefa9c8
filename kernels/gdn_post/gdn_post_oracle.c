/* gdn_post, the oracle. */
#include "common/k_oracle.h"
#include "common/k_rows.h"
#include "gdn_post/gdn_post.h"

/* Of the elements of o from `at` on. */
static float mean_square(const stk_gdn_post_args *a, int64_t at) {
  const void *o = k_rows_at(a->o, at, a->rows);
  return ko_tree32_rows(o, o, a->rows, a->v_dim) * (1.0f / (float)a->v_dim);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_post_args *a = args;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->v_heads, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    int64_t t = i / a->v_heads, h = i % a->v_heads;
    const int64_t head = (h * a->n_tokens + t) * a->v_dim;
    float inv = ks_rsqrt(mean_square(a, head) + a->eps);
    for (int64_t j = 0; j < a->v_dim; ++j) {
      int64_t at = i * a->v_dim + j;
      float o = k_rows_get(a->o, head + j, a->rows), z = k_rows_get(a->z, at, a->rows);
      float gate = a->gate == STK_GATE_SILU ? ks_silu(z) : ks_sigmoid(z);
      float y = ((o * inv) * a->gain[j]) * gate;
      if (a->outputs & STK_POST_F32) a->y[at] = y;
      if (a->outputs & STK_POST_F16) a->yh[at] = (uint16_t)ks_to_half(y);
    }
  }
}

STK_KERNEL(gdn_post, oracle, "scalar", STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, run);
