/* isa: scalar avx2 avx512
 * gdn_post -- norm, gain and gate of a head in one pass after the squares. */
#include "gdn_post/gdn_post.h"

#include "common/k_norm.h"
#include "common/k_vmath.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_post_args *a = args;
  const int64_t dim = a->v_dim;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->v_heads, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t t = i / a->v_heads, h = i % a->v_heads;
    const float *o = a->o + (h * a->n_tokens + t) * dim, *z = a->z + i * dim;
    float *y = a->y + i * dim;
    float inv = ks_rsqrt(k_mean_square(o, dim) + a->eps);
    int64_t j = 0;
    for (; j + VW <= dim; j += VW) {
      vf normed = vf_mul(vf_mul(vf_load(o + j), vf_set1(inv)), vf_load(a->gain + j));
      vf_store(y + j, vf_mul(normed, kv_sigmoid(vf_load(z + j))));
    }
    for (; j < dim; ++j) y[j] = ((o[j] * inv) * a->gain[j]) * ks_sigmoid(z[j]);
  }
}

STK_KERNEL_LEVEL(gdn_post, STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, run);
