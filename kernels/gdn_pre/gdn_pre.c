/* isa: scalar avx2 avx512
 * gdn_pre -- a unit is a key head (its q and k channels) or a value head. A unit
 * runs through all tokens with its taps held tap-major, 64 channels at a time. */
#include "gdn_pre/gdn_pre.h"

#include <math.h>

#include "common/k_conv.h"
#include "common/k_tree.h"

/* out[t * out_stride + i] = convolved channel c0 + i, for all tokens. */
static void conv_channels(const k_conv *v, int64_t c0, int64_t n, float *out, int64_t out_stride) {
  float taps[K_CONV_TAPS][K_CONV_RUN];
  for (int64_t c = 0; c < n; c += K_CONV_RUN) {
    int run = (int)(n - c < K_CONV_RUN ? n - c : K_CONV_RUN);
    k_conv_taps(v, c0 + c, run, taps);
    for (int64_t t = 0; t < v->n_tokens; ++t)
      k_conv_token(v, t, c0 + c, run, taps, out + t * out_stride + c);
  }
  k_conv_advance(v, c0, n);
}

static void scale(float *x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += VW) vf_store(x + i, vf_mul(vf_load(x + i), vf_set1(factor)));
}

static void key_head(const stk_gdn_pre_args *a, const k_conv *v, int64_t h) {
  const int64_t dim = a->k_dim, stride = a->k_heads * dim;
  const float dim_scale = (float)(1.0 / sqrt((double)dim));
  conv_channels(v, h * dim, dim, a->qn + h * dim, stride);
  conv_channels(v, stride + h * dim, dim, a->kn + h * dim, stride);
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    float *q = a->qn + t * stride + h * dim, *k = a->kn + t * stride + h * dim;
    scale(q, ks_rsqrt(k_dot(q, q, dim) + 1e-6f) * dim_scale, dim);
    scale(k, ks_rsqrt(k_dot(k, k, dim) + 1e-6f), dim);
    a->kq[t * a->k_heads + h] = k_dot(k, q, dim);
  }
}

static void value_head(const stk_gdn_pre_args *a, const k_conv *v, int64_t h) {
  const int64_t dim = a->v_dim, heads = a->v_heads;
  conv_channels(v, 2 * (int64_t)a->k_heads * a->k_dim + h * dim, dim, a->vc + h * dim, heads * dim);
  const float rate = -ks_exp(a->a_log[h]);
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    const float *ab = a->ab + t * 2 * heads;
    float *gb = a->gb + (t * heads + h) * 2;
    gb[0] = ks_exp(rate * ks_softplus(ab[h] + a->dt_bias[h]));
    gb[1] = ks_sigmoid(ab[heads + h]);
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_pre_args *a = args;
  int64_t channels = 2 * (int64_t)a->k_heads * a->k_dim + (int64_t)a->v_heads * a->v_dim;
  k_conv v = {a->qkv, a->conv_w, a->history, channels, a->n_tokens, a->n_taps, 1};
  int64_t begin, end;
  stk_slice(a->k_heads + a->v_heads, 1, part, n_parts, &begin, &end);
  for (int64_t unit = begin; unit < end; ++unit)
    if (unit < a->k_heads) key_head(a, &v, unit);
    else value_head(a, &v, unit - a->k_heads);
}

STK_KERNEL_LEVEL(gdn_pre, STK_GDN_PRE_CONTRACT, stk_gdn_pre_args, STK_EXACT, run);
