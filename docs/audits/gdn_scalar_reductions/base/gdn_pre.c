/* isa: scalar avx2 avx512 neon
 * gdn_pre -- a unit is a key head (its q and k channels) or a value head; a part's
 * heads of one kind go through the tokens together. Token by token over their
 * channels, not channel by channel over the tokens: rows of the projection are 40
 * KiB apart, and a head's 512 bytes of each are a page walk apiece. */
#include "gdn_pre/gdn_pre.h"

#include <math.h>

#include "common/k_conv.h"
#include "common/k_tree.h"

/* Convolves n_heads heads of dim channels from c0 on, for all tokens:
 * out[h * head_stride + t * dim + i]. */
static void conv_heads(const k_conv *v, int64_t c0, int64_t n_heads, int64_t dim, float *out,
                       int64_t head_stride) {
  float taps[K_CONV_TAPS][K_CONV_RUN];
  /* As many channels at a time as there is room for taps. */
  for (int64_t c = 0; c < n_heads * dim; c += K_CONV_RUN) {
    int64_t end = c + K_CONV_RUN < n_heads * dim ? c + K_CONV_RUN : n_heads * dim;
    k_conv_taps(v, c0 + c, (int)(end - c), taps);
    for (int64_t t = 0; t < v->n_tokens; ++t)
      for (int64_t at = c; at < end;) {
        int64_t h = at / dim, i = at % dim, n = dim - i < end - at ? dim - i : end - at;
        k_conv_token(v, t, c0 + at, (int)n, taps, (int)(at - c), out + h * head_stride + t * dim + i);
        at += n;
      }
  }
  k_conv_advance(v, c0, n_heads * dim);
}

static void scale(float *x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += VW) vf_store(x + i, vf_mul(vf_load(x + i), vf_set1(factor)));
}

/* Key heads h0 .. h1 - 1. */
static void key_heads(const stk_gdn_pre_args *a, const k_conv *v, int64_t h0, int64_t h1) {
  const int64_t dim = a->k_dim, T = a->n_tokens, tail_stride = a->k_heads * dim;
  const size_t row_bytes = (size_t)dim * sizeof(float);
  const float dim_scale = (float)(1.0 / sqrt((double)dim));
  float *qn = a->qn + h0 * T * dim, *kn = a->kn + h0 * (T + 2) * dim;
  conv_heads(v, h0 * dim, h1 - h0, dim, qn, T * dim);
  conv_heads(v, (a->k_heads + h0) * dim, h1 - h0, dim, kn + 2 * dim, (T + 2) * dim);
  for (int64_t h = h0; h < h1; ++h, qn += T * dim, kn += (T + 2) * dim) {
    float *tail = a->k_tail + h * dim;
    memcpy(kn, tail, row_bytes);
    memcpy(kn + dim, tail + tail_stride, row_bytes);
    for (int64_t t = 0; t < T; ++t) {
      float *q = qn + t * dim, *k = kn + (t + 2) * dim, *dots = a->kq + (h * T + t) * 3;
      scale(q, ks_rsqrt(k_dot(q, q, dim) + 1e-6f) * dim_scale, dim);
      scale(k, ks_rsqrt(k_dot(k, k, dim) + 1e-6f), dim);
      const int odd = (a->pos0 + t) & 1;
      dots[0] = k_dot(k, q, dim);
      dots[1] = odd ? k_dot(k - dim, k, dim) : 0.0f;
      dots[2] = odd ? k_dot(k - dim, q, dim) : 0.0f;
    }
    memcpy(tail, kn + T * dim, row_bytes);
    memcpy(tail + tail_stride, kn + (T + 1) * dim, row_bytes);
  }
}

static void gates(const stk_gdn_pre_args *a, int64_t h) {
  const float rate = -ks_exp(a->a_log[h]);
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    const float *ab = a->ab + t * 2 * a->v_heads;
    float *gb = a->gb + (h * a->n_tokens + t) * 2;
    gb[0] = ks_exp(rate * ks_softplus(ab[h] + a->dt_bias[h]));
    gb[1] = ks_sigmoid(ab[a->v_heads + h]);
  }
}

static void value_heads(const stk_gdn_pre_args *a, const k_conv *v, int64_t h0, int64_t h1) {
  const int64_t dim = a->v_dim, T = a->n_tokens;
  if (a->kinds & STK_GDN_VALUES)
    conv_heads(v, 2 * (int64_t)a->k_heads * a->k_dim + h0 * dim, h1 - h0, dim, a->vc + h0 * T * dim, T * dim);
  for (int64_t h = h0; h < h1 && a->kinds & STK_GDN_GATES; ++h) gates(a, h);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_pre_args *a = args;
  const int64_t hk = a->k_heads;
  int64_t channels = 2 * hk * a->k_dim + (int64_t)a->v_heads * a->v_dim;
  k_conv v = {a->qkv, a->conv_w, a->history, channels, a->n_tokens, a->n_taps, 1};
  /* A key head has two heads' channels and the norms: it counts twice. */
  int64_t begin, end;
  stk_slice(2 * hk + a->v_heads, 1, part, n_parts, &begin, &end);
  int64_t k0 = (begin + 1) / 2 < hk ? (begin + 1) / 2 : hk, k1 = (end + 1) / 2 < hk ? (end + 1) / 2 : hk;
  int64_t v0 = begin > 2 * hk ? begin - 2 * hk : 0, v1 = end > 2 * hk ? end - 2 * hk : 0;
  if (k0 < k1 && a->kinds & STK_GDN_KEYS) key_heads(a, &v, k0, k1);
  if (v0 < v1) value_heads(a, &v, v0, v1);
}

STK_KERNEL_LEVEL(gdn_pre, STK_GDN_PRE_CONTRACT, stk_gdn_pre_args, STK_EXACT, run);
