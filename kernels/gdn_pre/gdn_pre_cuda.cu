/* isa: cuda
 * gdn_pre -- a warp a head and run of RUN tokens: lane l holds channels l, l + 32, ...
 * of it, so that the lanes of the order tree32 are the warp's. The rows that the
 * convolution looks back at stay in registers; those of the next few tokens are asked
 * for before the present ones are worked on.
 *
 * A run begins at an even absolute index, so the key before an odd token is in its own
 * run, but for the first. What reads the old history and tail, the first run of a head,
 * also writes the new ones; if it does not have the last two keys, it computes them
 * again. So all runs of a window may go on at the same time.
 *
 * Grid: runs, and units (key heads, value heads, eight heads' gates) four at a time. */
#include "gdn_pre/gdn_pre_warp.h"

enum { WARPS = 4, RUN = 16, KEY_CHUNK = 2, VALUE_CHUNK = 4, GATE_HEADS = 8 };

/* The keys of the window's last two tokens, for a warp that does not have them. */
KC_INLINE void last_keys(const stk_gdn_pre_args *a, int64_t h, int n, int n_taps, float k[2][ELEMS_MAX]) {
  const int64_t t = (int64_t)a->n_tokens - 2;
  float x[2][ELEMS_MAX], sum[2];
  conv v;
  conv_begin(&v, a, (a->k_heads + h) * K_DIM, n, n_taps, t);
  conv_rows(&v, t, t + 2, 2, n, x);
  KC_UNROLL for (int j = 0; j < 2; ++j) conv_token(&v, x[j], n, n_taps, k[j]);
  KC_UNROLL for (int j = 0; j < 2; ++j) sum[j] = tree_lane(k[j], k[j], n);
  kc_lanes_sums(sum, 2);
  KC_UNROLL for (int j = 0; j < 2; ++j) scale(k[j], ks_rsqrt(sum[j] + 1e-6f), n);
}

/* Two tokens of a key head, of which the second may not be. old[0], old[1]: the keys
 * before them, and after the call of them. */
KC_INLINE void key_tokens(const stk_gdn_pre_args *a, int64_t h, int64_t t, int both, conv *vq, conv *vk,
                          const float xq[][ELEMS_MAX], const float xk[][ELEMS_MAX], int n, int n_taps,
                          float old[2][ELEMS_MAX]) {
  const int64_t T = a->n_tokens, dim = 32 * n;
  const float dim_scale = kc_inverse_sqrt(32 * n);
  const int first_odd = (int)((a->pos0 + t) & 1);
  float q[2][ELEMS_MAX], k[2][ELEMS_MAX], sum[4];
  KC_UNROLL for (int j = 0; j < 2; ++j) {
    conv_token(vq, xq[j], n, n_taps, q[j]);
    conv_token(vk, xk[j], n, n_taps, k[j]);
    sum[j] = tree_lane(q[j], q[j], n);
    sum[2 + j] = tree_lane(k[j], k[j], n);
  }
  kc_lanes_sums(sum, 4);
  KC_UNROLL for (int j = 0; j < 4; ++j) sum[j] = sum[j] + 1e-6f;
  kc_rsqrt4(sum);
  KC_UNROLL for (int j = 0; j < 2; ++j) {
    scale(q[j], sum[j] * dim_scale, n);
    scale(k[j], sum[2 + j], n);
    if (j == 0 || both) {
      store_row(a->qn + (h * T + t + j) * dim, q[j], n);
      store_row(a->kn + (h * (T + 2) + 2 + t + j) * dim, k[j], n);
    }
  }
  /* One of the two is odd. */
  const float *odd_q = q[1], *odd_k = k[1], *even_k = k[0];
  float before[ELEMS_MAX], key[ELEMS_MAX], query[ELEMS_MAX];
  KC_UNROLL for (int i = 0; i < n; ++i) {
    before[i] = first_odd ? old[1][i] : even_k[i];
    key[i] = first_odd ? k[0][i] : odd_k[i];
    query[i] = first_odd ? q[0][i] : odd_q[i];
  }
  sum[0] = tree_lane(k[0], q[0], n);
  sum[1] = tree_lane(k[1], q[1], n);
  sum[2] = tree_lane(before, key, n);
  sum[3] = tree_lane(before, query, n);
  kc_lanes_sums(sum, 4);
  if (kc_lane < (both ? 6 : 3)) {
    const int j = kc_lane / 3, what = kc_lane % 3, odd = j == !first_odd;
    float dot = what == 0 ? (j ? sum[1] : sum[0]) : what == 1 ? sum[2] : sum[3];
    a->kq[(h * T + t) * 3 + kc_lane] = what == 0 || odd ? dot : 0.0f;
  }
  if (both) {
    copy_row(k[0], old[0], n);
    copy_row(k[1], old[1], n);
  } else {
    copy_row(old[1], old[0], n);
    copy_row(k[0], old[1], n);
  }
}

KC_INLINE void key_head(const stk_gdn_pre_args *a, int64_t h, int64_t t0, int64_t t1, int n_taps) {
  const int64_t T = a->n_tokens, dim = K_DIM;
  const int n = K_DIM / 32;
  float *kn = a->kn + h * (T + 2) * dim, *tail[2] = {a->k_tail + h * dim, a->k_tail + (a->k_heads + h) * dim};
  float old[2][ELEMS_MAX], xq[KEY_CHUNK][ELEMS_MAX], xk[KEY_CHUNK][ELEMS_MAX];
  conv vq, vk;
  conv_begin(&vq, a, h * dim, n, n_taps, t0);
  conv_begin(&vk, a, (a->k_heads + h) * dim, n, n_taps, t0);
  conv_rows(&vq, t0, t1, KEY_CHUNK, n, xq);
  conv_rows(&vk, t0, t1, KEY_CHUNK, n, xk);
  KC_UNROLL for (int j = 0; j < 2; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) old[j][i] = 0.0f;
  if (t0 == 0)
    KC_UNROLL for (int j = 0; j < 2; ++j) {
      load_row(tail[j], old[j], n);
      store_row(kn + j * dim, old[j], n);
    }
  for (int64_t t = t0; t < t1; t += KEY_CHUNK) {
    const int64_t next = t + KEY_CHUNK < t1 ? t + KEY_CHUNK : t;
    float next_q[KEY_CHUNK][ELEMS_MAX], next_k[KEY_CHUNK][ELEMS_MAX];
    conv_rows(&vq, next, t1, KEY_CHUNK, n, next_q);
    conv_rows(&vk, next, t1, KEY_CHUNK, n, next_k);
    key_tokens(a, h, t, t + 1 < t1, &vq, &vk, (const float(*)[ELEMS_MAX])xq, (const float(*)[ELEMS_MAX])xk, n, n_taps, old);
    KC_UNROLL for (int j = 0; j < KEY_CHUNK; ++j) {
      copy_row(next_q[j], xq[j], n);
      copy_row(next_k[j], xk[j], n);
    }
  }
  if (t0) return;
  if (t1 < T) last_keys(a, h, n, n_taps, old);
  KC_UNROLL for (int j = 0; j < 2; ++j) store_row(tail[j], old[j], n);
  conv_advance(&vq, T, n, n_taps);
  conv_advance(&vk, T, n, n_taps);
}

KC_INLINE void value_head(const stk_gdn_pre_args *a, int64_t h, int64_t t0, int64_t t1, int n_taps) {
  const int64_t dim = V_DIM;
  const int n = V_DIM / 32;
  float *vc = a->vc + (h * a->n_tokens + t0) * dim, x[VALUE_CHUNK][ELEMS_MAX];
  conv v;
  conv_begin(&v, a, 2 * (int64_t)a->k_heads * a->k_dim + h * dim, n, n_taps, t0);
  conv_rows(&v, t0, t1, VALUE_CHUNK, n, x);
  for (int64_t t = t0; t < t1; t += VALUE_CHUNK) {
    const int64_t next = t + VALUE_CHUNK < t1 ? t + VALUE_CHUNK : t;
    const int left = (int)(t1 - t);
    float next_x[VALUE_CHUNK][ELEMS_MAX];
    conv_rows(&v, next, t1, VALUE_CHUNK, n, next_x);
    /* No branch around a token's work: what lies beyond the end is worked on, too. */
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j) {
      float y[ELEMS_MAX];
      conv_token(&v, x[j], n, n_taps, y);
      if (j < left) store_row(vc + j * dim, y, n);
    }
    vc += VALUE_CHUNK * dim;
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j) copy_row(next_x[j], x[j], n);
  }
  if (t0 == 0) conv_advance(&v, a->n_tokens, n, n_taps);
}

/* Heads h0 on, sixteen tokens of two heads at a time. */
KC_INLINE void gates(const stk_gdn_pre_args *a, int h0, int64_t t0, int64_t t1) {
  const int64_t t = t0 + kc_lane % RUN;
  const int h1 = h0 + GATE_HEADS < a->v_heads ? h0 + GATE_HEADS : a->v_heads;
  if (t >= t1) return;
  for (int h = h0 + kc_lane / RUN; h < h1; h += 2) {
    float *gb = a->gb + (h * (int64_t)a->n_tokens + t) * 2, decay, beta;
    gate_of(a, t, h, &decay, &beta);
    gb[0] = decay;
    gb[1] = beta;
  }
}

KC_KERNEL(gdn_pre_cuda, stk_gdn_pre_args, 32 * WARPS, 3) {
  const int unit = kc_block_y * WARPS + kc_warp, odd = a->pos0 & 1, n_taps = TAPS;
  const int first_gate = a->k_heads + a->v_heads, h0 = (unit - first_gate) * GATE_HEADS;
  const int64_t t0 = kc_block ? (int64_t)kc_block * RUN - odd : 0, end = ((int64_t)kc_block + 1) * RUN - odd;
  const int64_t t1 = end < a->n_tokens ? end : a->n_tokens;
  if (t0 >= t1) return;
  if (unit < a->k_heads) {
    if (a->kinds & STK_GDN_KEYS) key_head(a, unit, t0, t1, n_taps);
  } else if (unit < first_gate) {
    if (a->kinds & STK_GDN_VALUES) value_head(a, unit - a->k_heads, t0, t1, n_taps);
  } else if (h0 < a->v_heads && a->kinds & STK_GDN_GATES) {
    gates(a, h0, t0, t1);
  }
}
