/* isa: scalar avx2 avx512 neon
 * flags: -fno-tree-vectorize
 * gdn_post -- norm, gain and gate of a head in one pass after the squares. */
#include "gdn_post/gdn_post.h"

#include "common/k_norm.h"
#include "common/k_vmath.h"

/* tree32 one lane at a time: what the vector forms do in registers. */
static float scalar_dot(const float *a, const float *b, int64_t n) {
  float lane[32] = {0};
  for (int64_t group = 0; group * 128 < n; ++group)
    for (int l = 0; l < 32; ++l) {
      float s[4];
      for (int step = 0; step < 4; ++step) {
        int64_t e = group * 128 + step * 32 + l;
        s[step] = e < n ? a[e] * b[e] : 0.0f;
      }
      float sum = (s[0] + s[1]) + (s[2] + s[3]);
      lane[l] = group ? lane[l] + sum : sum;
    }
  for (int half = 16; half; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  return lane[0];
}
#define k_mean_square(x, n) (scalar_dot(x, x, n) * (1.0f / (float)(n)))

/* One head of one token; at is its first element in y and yh. gate and outputs are
 * constants where this is inlined. */
K_INLINE void head(const stk_gdn_post_args *a, const float *o, int64_t at, stk_gate gate, int outputs) {
  const int64_t dim = a->v_dim;
  const float *z = a->z + at;
  float inv = ks_rsqrt(k_mean_square(o, dim) + a->eps);
  int64_t j = 0;
  for (; j + VW <= dim; j += VW) {
    vf normed = vf_mul(vf_mul(vf_load(o + j), vf_set1(inv)), vf_load(a->gain + j));
    vf zj = vf_load(z + j);
    vf y = vf_mul(normed, gate == STK_GATE_SILU ? kv_silu(zj) : kv_sigmoid(zj));
    if (outputs & STK_POST_F32) vf_store(a->y + at + j, y);
    if (outputs & STK_POST_F16) vf_store_half(a->yh + at + j, y);
  }
  for (; j < dim; ++j) {
    float y = ((o[j] * inv) * a->gain[j]) * (gate == STK_GATE_SILU ? ks_silu(z[j]) : ks_sigmoid(z[j]));
    if (outputs & STK_POST_F32) a->y[at + j] = y;
    if (outputs & STK_POST_F16) a->yh[at + j] = (uint16_t)ks_to_half(y);
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_post_args *a = args;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->v_heads, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    const float *o = a->o + (i % a->v_heads * a->n_tokens + i / a->v_heads) * a->v_dim;
    if (a->gate == STK_GATE_SIGMOID && a->outputs == STK_POST_F32)
      head(a, o, i * a->v_dim, STK_GATE_SIGMOID, STK_POST_F32);
    else if (a->gate == STK_GATE_SIGMOID && a->outputs == STK_POST_F16)
      head(a, o, i * a->v_dim, STK_GATE_SIGMOID, STK_POST_F16);
    else
      head(a, o, i * a->v_dim, a->gate, a->outputs);
  }
}

STK_KERNEL_LEVEL(gdn_post, STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, run);
