/* isa: cuda
 * gdn_pre -- a warp a head and run of RUN tokens: lane l holds channels l, l + 32, ...
 * of it, so that the lanes of the order tree32 are the warp's. The rows that the
 * convolution looks back at stay in registers.
 *
 * A run begins at an even absolute index, so the key before an odd token is in its own
 * run, but for the first. What reads the old history and tail, the first run of a head,
 * also writes the new ones; the last two keys are computed again for that. So all runs
 * of a window may go on at the same time.
 *
 * Grid: runs, and units (key heads, value heads, one for the gates) four at a time. */
#include "common/k_cuda.h"
#include "gdn_pre/gdn_pre.h"

enum { WARPS = 4, RUN = 16 };

#ifdef GDN_DK
#define K_DIM GDN_DK
#define V_DIM GDN_DV
#define TAPS GDN_TAPS
#define ELEMS_MAX ((GDN_DK > GDN_DV ? GDN_DK : GDN_DV) / 32)
#define TAPS_MAX GDN_TAPS
#else
#define K_DIM a->k_dim
#define V_DIM a->v_dim
#define TAPS a->n_taps
#define ELEMS_MAX 8
#define TAPS_MAX STK_CONV_TAPS_MAX
#endif

/* A lane's n channels, 32 apart, and the rows before the next token, oldest first. */
typedef struct conv {
  const float *x;  /* the window's rows at the lane's first channel */
  float *history;
  int64_t stride;
  float w[TAPS_MAX][ELEMS_MAX], row[TAPS_MAX][ELEMS_MAX];
} conv;

KC_INLINE float raw(const conv *v, int n_taps, int64_t t, int i) {
  const float *row = t < 0 ? v->history + (n_taps - 1 + t) * v->stride : v->x + t * v->stride;
  return row[32 * i];
}

/* Channels c0 on, about to do token t. */
KC_INLINE void conv_begin(conv *v, const stk_gdn_pre_args *a, int64_t c0, int dim, int n_taps, int64_t t) {
  const int64_t c = c0 + kc_lane;
  v->stride = 2 * (int64_t)a->k_heads * a->k_dim + (int64_t)a->v_heads * a->v_dim;
  v->x = a->qkv + c;
  v->history = a->history + c;
  KC_UNROLL for (int i = 0; i < dim / 32; ++i)
    KC_UNROLL for (int j = 0; j < n_taps; ++j) v->w[j][i] = a->conv_w[(c + 32 * i) * n_taps + j];
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < dim / 32; ++i) v->row[j][i] = raw(v, n_taps, t - (n_taps - 1) + j, i);
}

/* y = silu(conv) of token t, and on to the next. */
KC_INLINE void conv_token(conv *v, int64_t t, int n, int n_taps, float y[ELEMS_MAX]) {
  const int last = n_taps - 1;
  KC_UNROLL for (int i = 0; i < n; ++i) v->row[last][i] = v->x[t * v->stride + 32 * i];
  KC_UNROLL for (int i = 0; i < n; ++i) {
    float sum = v->w[0][i] * v->row[0][i];
    KC_UNROLL for (int j = 1; j <= last; ++j) sum = ks_fma(v->w[j][i], v->row[j][i], sum);
    y[i] = ks_silu(sum);
    KC_UNROLL for (int j = 0; j < last; ++j) v->row[j][i] = v->row[j + 1][i];
  }
}

/* Ascending rows: each is read from where it was before anything is written there. */
KC_INLINE void conv_advance(const conv *v, int64_t T, int n, int n_taps) {
  for (int j = 0; j < n_taps - 1; ++j)
    for (int i = 0; i < n; ++i) v->history[j * v->stride + 32 * i] = raw(v, n_taps, T - (n_taps - 1) + j, i);
}

/* The lane's part of tree32 of a * b. */
KC_INLINE float tree_lane(const float *x, const float *y, int n) {
  float sum = 0.0f;
  KC_UNROLL for (int i = 0; i < n; i += 4) {
    float s[4];
    KC_UNROLL for (int j = 0; j < 4; ++j) s[j] = i + j < n ? x[i + j] * y[i + j] : 0.0f;
    float group = (s[0] + s[1]) + (s[2] + s[3]);
    sum = i ? sum + group : group;
  }
  return sum;
}

KC_INLINE void scale(float *x, float factor, int n) {
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = x[i] * factor;
}

KC_INLINE void store_row(float *to, const float *x, int n) {
  KC_UNROLL for (int i = 0; i < n; ++i) to[32 * i + kc_lane] = x[i];
}

KC_INLINE void load_row(const float *from, float *x, int n) {
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = from[32 * i + kc_lane];
}

KC_INLINE void normed_key(conv *v, int64_t t, int n, int n_taps, float *k) {
  conv_token(v, t, n, n_taps, k);
  scale(k, ks_rsqrt(kc_lanes_sum(tree_lane(k, k, n)) + 1e-6f), n);
}

/* The tail: keys of the last two tokens, of which one may be the old tail's younger. */
KC_INLINE void advance_tail(const stk_gdn_pre_args *a, int64_t h, int n_taps, float *tail) {
  const int64_t T = a->n_tokens, stride = (int64_t)a->k_heads * K_DIM;
  const int n = K_DIM / 32;
  float older[ELEMS_MAX], younger[ELEMS_MAX];
  conv v;
  conv_begin(&v, a, (a->k_heads + h) * K_DIM, K_DIM, n_taps, T > 1 ? T - 2 : 0);
  if (T > 1) normed_key(&v, T - 2, n, n_taps, older);
  else load_row(tail + stride, older, n);
  normed_key(&v, T - 1, n, n_taps, younger);
  store_row(tail, older, n);
  store_row(tail + stride, younger, n);
}

KC_INLINE void key_head(const stk_gdn_pre_args *a, int64_t h, int64_t t0, int64_t t1, int n_taps) {
  const int64_t T = a->n_tokens;
  const int dim = K_DIM, n = dim / 32;
  float *qn = a->qn + h * T * dim, *kn = a->kn + (h * (T + 2) + 2) * dim, *tail = a->k_tail + h * dim;
  float q[ELEMS_MAX], k[ELEMS_MAX], before[ELEMS_MAX];
  const float dim_scale = kc_inverse_sqrt(dim);
  conv vq, vk;
  conv_begin(&vq, a, h * dim, dim, n_taps, t0);
  conv_begin(&vk, a, (a->k_heads + h) * dim, dim, n_taps, t0);
  KC_UNROLL for (int i = 0; i < n; ++i) before[i] = 0.0f;
  if (t0 == 0) {
    load_row(tail, before, n);
    store_row(kn - 2 * dim, before, n);
    load_row(tail + (int64_t)a->k_heads * dim, before, n);
    store_row(kn - dim, before, n);
  }
  for (int64_t t = t0; t < t1; ++t) {
    conv_token(&vq, t, n, n_taps, q);
    normed_key(&vk, t, n, n_taps, k);
    scale(q, ks_rsqrt(kc_lanes_sum(tree_lane(q, q, n)) + 1e-6f) * dim_scale, n);
    store_row(qn + t * dim, q, n);
    store_row(kn + t * dim, k, n);
    const int odd = (int)((a->pos0 + t) & 1);
    float kq = kc_lanes_sum(tree_lane(k, q, n)), kk = 0.0f, kkq = 0.0f;
    if (odd) {
      kk = kc_lanes_sum(tree_lane(before, k, n));
      kkq = kc_lanes_sum(tree_lane(before, q, n));
    }
    if (kc_lane < 3) a->kq[(h * T + t) * 3 + kc_lane] = kc_lane == 0 ? kq : kc_lane == 1 ? kk : kkq;
    KC_UNROLL for (int i = 0; i < n; ++i) before[i] = k[i];
  }
  if (t0) return;
  advance_tail(a, h, n_taps, tail);
  conv_advance(&vq, T, n, n_taps);
  conv_advance(&vk, T, n, n_taps);
}

KC_INLINE void value_head(const stk_gdn_pre_args *a, int64_t h, int64_t t0, int64_t t1, int n_taps) {
  const int dim = V_DIM;
  float *vc = a->vc + h * a->n_tokens * dim, y[ELEMS_MAX];
  conv v;
  conv_begin(&v, a, 2 * (int64_t)a->k_heads * a->k_dim + h * dim, dim, n_taps, t0);
  for (int64_t t = t0; t < t1; ++t) {
    conv_token(&v, t, dim / 32, n_taps, y);
    store_row(vc + t * dim, y, dim / 32);
  }
  if (t0 == 0) conv_advance(&v, a->n_tokens, dim / 32, n_taps);
}

/* Sixteen tokens of two heads at a time. */
KC_INLINE void gates(const stk_gdn_pre_args *a, int64_t t0, int64_t t1) {
  const int64_t t = t0 + kc_lane % 16;
  if (t >= t1) return;
  const float *ab = a->ab + t * 2 * a->v_heads;
  for (int64_t h = kc_lane / 16; h < a->v_heads; h += 2) {
    const float rate = -ks_exp(a->a_log[h]);
    float *gb = a->gb + (h * a->n_tokens + t) * 2;
    gb[0] = ks_exp(rate * ks_softplus(ab[h] + a->dt_bias[h]));
    gb[1] = ks_sigmoid(ab[a->v_heads + h]);
  }
}

KC_KERNEL(gdn_pre_cuda, stk_gdn_pre_args, 32 * WARPS) {
  const int unit = kc_block_y * WARPS + kc_warp, odd = a->pos0 & 1, n_taps = TAPS;
  const int64_t t0 = kc_block ? (int64_t)kc_block * RUN - odd : 0, end = ((int64_t)kc_block + 1) * RUN - odd;
  const int64_t t1 = end < a->n_tokens ? end : a->n_tokens;
  if (t0 >= t1) return;
  if (unit < a->k_heads) {
    if (a->kinds & STK_GDN_KEYS) key_head(a, unit, t0, t1, n_taps);
  } else if (unit < a->k_heads + a->v_heads) {
    if (a->kinds & STK_GDN_VALUES) value_head(a, unit - a->k_heads, t0, t1, n_taps);
  } else if (unit == a->k_heads + a->v_heads && a->kinds & STK_GDN_GATES) {
    gates(a, t0, t1);
  }
}
