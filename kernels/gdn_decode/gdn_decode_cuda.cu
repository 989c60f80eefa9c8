/* isa: cuda
 * gdn_decode -- a block for each value head, a warp a tile of its columns.
 *
 * All warps ask for their tile of the state first. While that is under way warp 0
 * convolves and normalises the head's query and key, warp 1 its values, warp 2 makes
 * its gates. The value heads of a key head do the former again, each for itself; they
 * are a cluster, and its barrier keeps the first of them from writing the history and
 * the keys' tail before the others have read them. */
#include "gdn_decode/gdn_decode.h"
#include "gdn_pre/gdn_pre_warp.h"
#include "gdn_step/gdn_step_tile.h"

/* The block's shared memory, in floats. */
typedef struct shared_parts {
  float *q, *k, *v, *o, *dots; /* dots: kq, kk, kkq, decay, beta */
} shared_parts;

KC_INLINE shared_parts shared_at(float *shared, int dk, int dv) {
  shared_parts s = {shared, shared + dk, shared + 2 * dk, shared + 2 * dk + dv, shared + 2 * dk + 2 * dv};
  return s;
}

/* Query and key of the head, and their dots with each other and the key before. */
KC_INLINE void make_keys(const stk_gdn_pre_args *a, int kh, const shared_parts *s, int n_taps) {
  const int n = K_DIM / 32, odd = a->pos0 & 1;
  float xq[1][ELEMS_MAX], xk[1][ELEMS_MAX], q[ELEMS_MAX], k[ELEMS_MAX], before[ELEMS_MAX], sum[3];
  conv vq, vk;
  conv_begin(&vq, a, (int64_t)kh * K_DIM, n, n_taps, 0);
  conv_begin(&vk, a, (int64_t)(a->k_heads + kh) * K_DIM, n, n_taps, 0);
  conv_rows(&vq, 0, 1, 1, n, xq);
  conv_rows(&vk, 0, 1, 1, n, xk);
  load_row(a->k_tail + (int64_t)(a->k_heads + kh) * K_DIM, before, n);
  conv_token(&vq, xq[0], n, n_taps, q);
  conv_token(&vk, xk[0], n, n_taps, k);
  sum[0] = tree_lane(q, q, n);
  sum[1] = tree_lane(k, k, n);
  kc_lanes_sums(sum, 2);
  scale(q, ks_rsqrt(sum[0] + 1e-6f) * kc_inverse_sqrt(K_DIM), n);
  scale(k, ks_rsqrt(sum[1] + 1e-6f), n);
  store_row(s->q, q, n);
  store_row(s->k, k, n);
  sum[0] = tree_lane(k, q, n);
  sum[1] = tree_lane(before, k, n);
  sum[2] = tree_lane(before, q, n);
  kc_lanes_sums(sum, 3);
  if (kc_lane == 0) {
    s->dots[0] = sum[0];
    s->dots[1] = odd ? sum[1] : 0.0f;
    s->dots[2] = odd ? sum[2] : 0.0f;
  }
}

KC_INLINE void make_values(const stk_gdn_pre_args *a, int h, const shared_parts *s, int n_taps) {
  const int n = V_DIM / 32;
  conv v;
  float x[1][ELEMS_MAX], y[ELEMS_MAX];
  conv_begin(&v, a, 2 * (int64_t)a->k_heads * K_DIM + (int64_t)h * V_DIM, n, n_taps, 0);
  conv_rows(&v, 0, 1, 1, n, x);
  conv_token(&v, x[0], n, n_taps, y);
  store_row(s->v, y, n);
}

/* gdn_post of the head, by one warp. */
KC_INLINE void make_output(const stk_gdn_post_args *a, int h, const float *o) {
  const int n = V_DIM / 32;
  float x[ELEMS_MAX], z[ELEMS_MAX], gate[ELEMS_MAX];
  load_row(a->z + (int64_t)h * V_DIM, z, n);
  load_row(o, x, n);
  const float inv = ks_rsqrt(kc_lanes_sum(tree_lane(x, x, n)) * (1.0f / (float)V_DIM) + a->eps);
  if (a->gate == STK_GATE_SILU) kc_silu(z, gate, n);
  else kc_sigmoid(z, gate, n);
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int e = 32 * i + kc_lane;
    const float y = ((x[i] * inv) * a->gain[e]) * gate[i];
    if (a->outputs & STK_POST_F32) a->y[(int64_t)h * V_DIM + e] = y;
    if (a->outputs & STK_POST_F16) a->yh[(int64_t)h * V_DIM + e] = kc_half(y);
  }
}

/* After the cluster's barrier: history and tail. The first value head of a key head
 * has the key's. */
KC_INLINE void advance(const stk_gdn_pre_args *a, int h, const shared_parts *s, int n_taps) {
  const int ratio = a->v_heads / a->k_heads, kh = h / ratio, n = K_DIM / 32;
  float *tail = a->k_tail + (int64_t)kh * K_DIM, *younger = tail + (int64_t)a->k_heads * K_DIM, k[ELEMS_MAX];
  conv v;
  if (kc_warp == 0 && h % ratio == 0) {
    conv_place(&v, a, (int64_t)kh * K_DIM);
    conv_advance(&v, 1, n, n_taps);
    conv_place(&v, a, (int64_t)(a->k_heads + kh) * K_DIM);
    conv_advance(&v, 1, n, n_taps);
    load_row(younger, k, n);
    store_row(tail, k, n);
    load_row(s->k, k, n);
    store_row(younger, k, n);
  }
  if (kc_warp == 1) {
    conv_place(&v, a, 2 * (int64_t)a->k_heads * K_DIM + (int64_t)h * V_DIM);
    conv_advance(&v, 1, V_DIM / 32, n_taps);
  }
}

/* Grid: value heads, a cluster for each key head. */
KC_CLUSTER_KERNEL(gdn_decode_cuda, stk_gdn_decode_args, 256, 1, GDN_RATIO) {
  const stk_gdn_pre_args *pre = &a->pre;
  const stk_gdn_step_args *step = &a->step;
  const int rows = STEP_ROWS(step), h = kc_block, n_taps = taps_of(pre), kh = h / (step->v_heads / step->k_heads);
  const int even = !(step->pos0 & 1), dk = 4 * rows, dv = step->v_dim;
  const step_place at = step_at(step, h * (dv / STK_GDN_TILE) + kc_warp, rows);
  KC_SHARED(float, shared);
  const shared_parts s = shared_at(shared, dk, dv);
  step_input in;
  step_load_state(&in, &at, rows);
  if (even) {
    step_load_vector(in.k1, pre->k_tail + (int64_t)kh * dk, at.block, rows);
    step_load_vector(in.k2, pre->k_tail + (int64_t)(pre->k_heads + kh) * dk, at.block, rows);
  }
  if (kc_warp == 0) make_keys(pre, kh, &s, n_taps);
  if (kc_warp == 1) make_values(pre, h, &s, n_taps);
  if (kc_warp == 2 && kc_lane == 0) gate_of(pre, 0, h, s.dots + 3, s.dots + 4);
  kc_cluster_arrive();
  kc_sync();
  step_load_vector(in.k, s.k, at.block, rows);
  step_load_vector(in.q, s.q, at.block, rows);
  in.v = kc_load2(s.v + kc_warp * STK_GDN_TILE + at.column);
  in.kq = s.dots[0];
  in.kk = s.dots[1];
  in.kkq = s.dots[2];
  in.a = s.dots[3];
  in.beta = s.dots[4];
  const kc2 o = step_compute(&in, &at, even, rows);
  if (at.block == 0) kc_store2(s.o + kc_warp * STK_GDN_TILE + at.column, o);
  step_store(&in, &at);
  kc_sync();
  kc_cluster_wait();
  if (kc_warp == 2) make_output(&a->post, h, s.o);
  advance(pre, h, &s, n_taps);
}
