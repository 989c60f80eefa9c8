/* isa: scalar avx2 avx512 neon
 * gdn_pre -- a unit is a key head (its q and k channels) or a value head; a part's
 * heads of one kind go through the tokens together. Token by token over their
 * channels, not channel by channel over the tokens: rows of the projection are 40
 * KiB apart, and a head's 512 bytes of each are a page walk apiece. */
#include "gdn_pre/gdn_pre.h"

#include <math.h>

#include "common/k_conv.h"
#include "common/k_tree.h"

typedef float tap_columns[K_CONV_TAPS][K_CONV_RUN];
_Static_assert((int)STK_GDN_PRE_K_DIM_MAX <= (int)K_CONV_RUN, "a key head's taps must have room");

/* type, the type of the rows, is a constant where these are inlined. */

/* Convolves n_heads value heads of dim channels from c0 on, for all tokens:
 * out[h * head_stride + t * dim + i]. */
K_INLINE void conv_heads(const k_conv *v, int64_t c0, int64_t n_heads, int64_t dim, void *out, int64_t head_stride,
                         int32_t type) {
  tap_columns taps;
  /* As many channels at a time as there is room for taps. */
  for (int64_t c = 0; c < n_heads * dim; c += K_CONV_RUN) {
    int64_t end = c + K_CONV_RUN < n_heads * dim ? c + K_CONV_RUN : n_heads * dim;
    k_conv_taps(v, c0 + c, (int)(end - c), taps);
    for (int64_t t = 0; t < v->n_tokens; ++t)
      for (int64_t at = c; at < end;) {
        int64_t h = at / dim, i = at % dim, n = dim - i < end - at ? dim - i : end - at;
        void *y = k_rows_into(out, h * head_stride + t * dim + i, type);
        k_conv_token(v, t, c0 + at, (int)n, taps, (int)(at - c), type, y, type);
        at += n;
      }
  }
  k_conv_advance(v, c0, n_heads * dim, type);
}

/* Stores x * factor in a row from element `at` on. */
K_INLINE void store_scaled(const float *x, float factor, int64_t n, void *rows, int64_t at, int32_t type) {
  for (int64_t i = 0; i < n; i += VW) kv_rows_store(rows, at + i, type, vf_mul(vf_load(x + i), vf_set1(factor)));
}

/* Token t of key head h, from its convolved channels q and k. */
K_INLINE void key_token(const stk_gdn_pre_args *a, int64_t h, int64_t t, float *q, float *k, int32_t type) {
  const int64_t dim = a->k_dim, T = a->n_tokens, q_at = (h * T + t) * dim, k_at = (h * (T + 2) + 2 + t) * dim;
  const float dim_scale = (float)(1.0 / sqrt((double)dim));
  float *dots = a->kq + (h * T + t) * 3;
  store_scaled(q, ks_rsqrt(k_dot(q, q, dim) + 1e-6f) * dim_scale, dim, a->qn, q_at, type);
  store_scaled(k, ks_rsqrt(k_dot(k, k, dim) + 1e-6f), dim, a->kn, k_at, type);
  /* The dots are of the rows as they were stored. */
  float wide[STK_GDN_PRE_K_DIM_MAX];
  const float *qn = kv_rows_in_f32(a->qn, q_at, type, dim, q), *kn = kv_rows_in_f32(a->kn, k_at, type, dim, k);
  dots[0] = k_dot(kn, qn, dim);
  dots[1] = dots[2] = 0.0f;
  if (((a->pos0 + t) & 1) == 0) return;
  const float *before = kv_rows_in_f32(a->kn, k_at - dim, type, dim, wide);
  dots[1] = k_dot(before, kn, dim);
  dots[2] = k_dot(before, qn, dim);
}

/* Row 0 or 1 of key head h's tail, and a row of its keys in kn. */
K_INLINE void *tail_row(const stk_gdn_pre_args *a, int64_t h, int64_t row, int32_t type) {
  return k_rows_into(a->k_tail, (row * a->k_heads + h) * a->k_dim, type);
}
K_INLINE void *key_row(const stk_gdn_pre_args *a, int64_t h, int64_t row, int32_t type) {
  return k_rows_into(a->kn, (h * (a->n_tokens + 2) + row) * a->k_dim, type);
}

/* Key heads h0 .. h1 - 1: as many at a time as there is room for taps. */
K_INLINE void key_heads(const stk_gdn_pre_args *a, const k_conv *v, int64_t h0, int64_t h1, int32_t type) {
  const int64_t dim = a->k_dim, T = a->n_tokens, at_a_time = K_CONV_RUN / dim;
  const size_t row_bytes = k_rows_bytes(dim, type);
  tap_columns q_taps, k_taps;
  float q[K_CONV_RUN], k[K_CONV_RUN];
  for (int64_t first = h0; first < h1; first += at_a_time) {
    const int64_t end = first + at_a_time < h1 ? first + at_a_time : h1, cq = first * dim, ck = (a->k_heads + first) * dim;
    const int n = (int)((end - first) * dim);
    k_conv_taps(v, cq, n, q_taps);
    k_conv_taps(v, ck, n, k_taps);
    for (int64_t h = first; h < end; ++h)
      for (int64_t row = 0; row < 2; ++row) memcpy(key_row(a, h, row, type), tail_row(a, h, row, type), row_bytes);
    for (int64_t t = 0; t < T; ++t) {
      k_conv_token(v, t, cq, n, q_taps, 0, type, q, STK_F32);
      k_conv_token(v, t, ck, n, k_taps, 0, type, k, STK_F32);
      for (int64_t h = first; h < end; ++h) key_token(a, h, t, q + (h - first) * dim, k + (h - first) * dim, type);
    }
    for (int64_t h = first; h < end; ++h)
      for (int64_t row = 0; row < 2; ++row) memcpy(tail_row(a, h, row, type), key_row(a, h, T + row, type), row_bytes);
    k_conv_advance(v, cq, n, type);
    k_conv_advance(v, ck, n, type);
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

K_INLINE void value_heads(const stk_gdn_pre_args *a, const k_conv *v, int64_t h0, int64_t h1, int32_t type) {
  const int64_t dim = a->v_dim, T = a->n_tokens;
  if (a->kinds & STK_GDN_VALUES)
    conv_heads(v, 2 * (int64_t)a->k_heads * a->k_dim + h0 * dim, h1 - h0, dim, k_rows_into(a->vc, h0 * T * dim, type),
               T * dim, type);
  for (int64_t h = h0; h < h1 && a->kinds & STK_GDN_GATES; ++h) gates(a, h);
}

K_INLINE void run_rows(const stk_gdn_pre_args *a, int32_t part, int32_t n_parts, int32_t type) {
  const int64_t hk = a->k_heads;
  int64_t channels = 2 * hk * a->k_dim + (int64_t)a->v_heads * a->v_dim;
  k_conv v = {a->qkv, a->conv_w, a->history, channels, a->n_tokens, a->n_taps, 1};
  /* A key head has two heads' channels and the norms: it counts twice. */
  int64_t begin, end;
  stk_slice(2 * hk + a->v_heads, 1, part, n_parts, &begin, &end);
  int64_t k0 = (begin + 1) / 2 < hk ? (begin + 1) / 2 : hk, k1 = (end + 1) / 2 < hk ? (end + 1) / 2 : hk;
  int64_t v0 = begin > 2 * hk ? begin - 2 * hk : 0, v1 = end > 2 * hk ? end - 2 * hk : 0;
  if (k0 < k1 && a->kinds & STK_GDN_KEYS) key_heads(a, &v, k0, k1, type);
  if (v0 < v1) value_heads(a, &v, v0, v1, type);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_pre_args *a = args;
  if (a->rows == STK_F16) run_rows(a, part, n_parts, STK_F16);
  else run_rows(a, part, n_parts, STK_F32);
}

STK_KERNEL_LEVEL(gdn_pre, STK_GDN_PRE_CONTRACT, stk_gdn_pre_args, STK_EXACT, run);
