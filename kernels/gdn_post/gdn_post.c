/* isa: scalar avx2 avx512 neon
 * gdn_post -- norm, gain and gate of a head in one pass after the squares. */
#include "gdn_post/gdn_post.h"

#include "common/k_norm.h"
#include "common/k_vmath.h"
#include "common/k_vrows.h"

/* One head of one token; at is its first element in y and yh. gate and outputs are
 * constants where this is inlined. */
K_INLINE void head(const stk_gdn_post_args *a, const float *o, const float *z, int64_t at, stk_gate gate, int outputs) {
  const int64_t dim = a->v_dim;
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
    const int64_t at = i * a->v_dim, head_at = (i % a->v_heads * a->n_tokens + i / a->v_heads) * a->v_dim;
    float o_wide[STK_POST_F16_DIM_MAX], z_wide[STK_POST_F16_DIM_MAX];
    const float *o = kv_rows_in_f32(a->o, head_at, a->rows, a->v_dim, o_wide);
    const float *z = kv_rows_in_f32(a->z, at, a->rows, a->v_dim, z_wide);
    if (a->gate == STK_GATE_SIGMOID && a->outputs == STK_POST_F32)
      head(a, o, z, at, STK_GATE_SIGMOID, STK_POST_F32);
    else if (a->gate == STK_GATE_SIGMOID && a->outputs == STK_POST_F16)
      head(a, o, z, at, STK_GATE_SIGMOID, STK_POST_F16);
    else
      head(a, o, z, at, a->gate, a->outputs);
  }
}

STK_KERNEL_LEVEL(gdn_post, STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, run);
