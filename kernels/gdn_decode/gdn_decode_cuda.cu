/* isa: cuda
 * gdn_decode -- a block for each value head, a warp a tile of its columns.
 *
 * All that is read is asked for first. While the state is under way warp 0 convolves
 * and normalises the head's query and key, warp 1 its values, warp 2 makes its gates. The
 * value heads of a key head do the former again, each for itself; they are a cluster, and
 * its barrier keeps the first of them from writing the history and the keys' tail before
 * the others have read them. What would be a row between the three ops is f32 in shared
 * memory, rounded to the rows' type. */
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

/* What a warp asks for before the state, and keeps to its end: warp 0 the head's
 * query and key channels, warp 1 its values, warp 2 z and the gain. */
typedef struct own_part {
  conv first, second;
  float x[2][ELEMS_MAX];
  row_bits history[2][TAPS_MAX]; /* the rows of the convolutions; the last ones are the token's */
  row_bits before;               /* the key before the token's */
} own_part;

/* The rows of a convolution at the token, which a lane keeps as they are. */
KC_INLINE void conv_load(conv *v, row_bits *history, float *x, const stk_gdn_pre_args *a, int64_t c0, int n, int n_taps,
                         int type) {
  row_bits *token = &history[n_taps - 1];
  *v = conv_at(a, c0, n_taps, 1, type);
  conv_ask(v, history, n, n_taps, 1, 0, type);
  KC_UNROLL for (int i = 0; i < n; ++i) token->bits[i] = kc_row_bits(v->x, 32 * i, type);
  conv_begin(v, history, n, n_taps, type);
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = kc_row_of_bits(token->bits[i], type);
}

KC_INLINE void own_load(own_part *w, const stk_gdn_decode_args *a, int h, int kh, int n_taps) {
  const stk_gdn_pre_args *pre = &a->pre;
  const int nk = key_elems(pre), nv = value_elems(pre), type = type_of(pre);
  const int64_t dk = 32 * nk, dv = 32 * nv;
  if (kc_warp == 0) {
    conv_load(&w->first, w->history[0], w->x[0], pre, kh * dk, nk, n_taps, type);
    conv_load(&w->second, w->history[1], w->x[1], pre, (pre->k_heads + kh) * dk, nk, n_taps, type);
    load_bits(kc_row_at(pre->k_tail, (pre->k_heads + kh) * dk, type), &w->before, nk, type);
  }
  if (kc_warp == 1) {
    conv_load(&w->first, w->history[0], w->x[0], pre, 2 * pre->k_heads * dk + h * dv, nv, n_taps, type);
  }
  if (kc_warp == 2) {
    load_row(kc_row_at(a->post.z, h * dv, type), w->x[0], nv, type);
    load_row(a->post.gain, w->x[1], nv, STK_F32);
  }
}

/* Query and key of the head, and their dots with each other and the key before, which
 * then is this one. */
KC_INLINE void make_keys(own_part *w, int odd, const shared_parts *s, int n, int n_taps, int type) {
  float raw[2 * ELEMS_MAX], both[2 * ELEMS_MAX], before[ELEMS_MAX], *q = both, *k = both + n, sum[3];
  conv_token(&w->first, w->x[0], n, n_taps, raw);
  conv_token(&w->second, w->x[1], n, n_taps, raw + n);
  conv_silu(raw, both, 2 * n, type);
  sum[0] = tree_lane(q, q, n);
  sum[1] = tree_lane(k, k, n);
  kc_lanes_sums(sum, 2);
  scale(q, ks_rsqrt(sum[0] + 1e-6f) * kc_inverse_sqrt(32 * n), n);
  scale(k, ks_rsqrt(sum[1] + 1e-6f), n);
  round_row(both, 2 * n, type);
  store_row(s->q, q, n, STK_F32);
  store_row(s->k, k, n, STK_F32);
  sum[0] = tree_lane(k, q, n);
  KC_UNROLL for (int i = 0; i < n; ++i) before[i] = kc_row_of_bits(w->before.bits[i], type);
  sum[1] = tree_lane(before, k, n);
  sum[2] = tree_lane(before, q, n);
  kc_lanes_sums(sum, 3);
  if (kc_lane == 0) {
    s->dots[0] = sum[0];
    s->dots[1] = odd ? sum[1] : 0.0f;
    s->dots[2] = odd ? sum[2] : 0.0f;
  }
}

/* gdn_post of the head, by one warp. */
KC_INLINE void make_output(const own_part *w, const stk_gdn_post_args *a, int64_t h, const float *o, int n) {
  float x[ELEMS_MAX], gate[ELEMS_MAX];
  load_row(o, x, n, STK_F32);
  if (a->gate == STK_GATE_SILU) kc_silu(w->x[0], gate, n);
  else kc_sigmoid(w->x[0], gate, n);
  const float inv = ks_rsqrt(kc_lanes_sum(tree_lane(x, x, n)) * (1.0f / (float)(32 * n)) + a->eps);
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int64_t e = 32 * i + kc_lane;
    const float y = ((x[i] * inv) * w->x[1][i]) * gate[i];
    if (a->outputs & STK_POST_F32) a->y[h * 32 * n + e] = y;
    if (a->outputs & STK_POST_F16) a->yh[h * 32 * n + e] = kc_half(y);
  }
}

/* All rows but the oldest are the new history. */
KC_INLINE void keep_rows(const conv *v, const row_bits *history, int n, int n_taps, int type) {
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i)
      kc_row_put_bits(v->history, j * v->stride + 32 * i, type, history[j + 1].bits[i]);
}

/* After the cluster's barrier: history and tail. The first value head of a key head
 * has the key's. */
KC_INLINE void advance(const own_part *w, const stk_gdn_pre_args *a, int h, const shared_parts *s, int n_taps) {
  const int ratio = a->v_heads / a->k_heads, n = key_elems(a), type = type_of(a);
  const int64_t tail = (int64_t)(h / ratio) * 32 * n;
  float k[ELEMS_MAX];
  if (kc_warp == 0 && h % ratio == 0) {
    keep_rows(&w->first, w->history[0], n, n_taps, type);
    keep_rows(&w->second, w->history[1], n, n_taps, type);
    store_bits(kc_row_into(a->k_tail, tail, type), &w->before, n, type);
    load_row(s->k, k, n, STK_F32);
    store_row(kc_row_into(a->k_tail, tail + (int64_t)a->k_heads * 32 * n, type), k, n, type);
  }
  if (kc_warp == 1) keep_rows(&w->first, w->history[0], value_elems(a), n_taps, type);
}

/* Grid: value heads, a cluster for each key head. */
KC_CLUSTER_KERNEL(gdn_decode_cuda, stk_gdn_decode_args, 256, 1, GDN_RATIO) {
  const stk_gdn_pre_args *pre = &a->pre;
  const stk_gdn_step_args *step = &a->step;
  const int rows = STEP_ROWS(step), h = kc_block, n_taps = taps_of(pre), kh = h / (step->v_heads / step->k_heads);
  const int odd = step->pos0 & 1, dk = 4 * rows, dv = step->v_dim, type = STEP_TYPE(step);
  const step_place at = step_at(step, h * (dv / STK_GDN_TILE) + kc_warp, rows);
  KC_SHARED(float, shared);
  const shared_parts s = shared_at(shared, dk, dv);
  step_input in;
  own_part own = {0};
  own_load(&own, a, h, kh, n_taps);
  step_load_state(&in, &at, rows);
  if (!odd) {
    step_load_vector(in.k1, pre->k_tail, (int64_t)kh * dk, at.block, rows, type);
    step_load_vector(in.k2, pre->k_tail, (int64_t)(pre->k_heads + kh) * dk, at.block, rows, type);
  }
  if (kc_warp == 0) make_keys(&own, odd, &s, key_elems(pre), n_taps, type);
  if (kc_warp == 1) {
    float raw[ELEMS_MAX], y[ELEMS_MAX];
    conv_token(&own.first, own.x[0], value_elems(pre), n_taps, raw);
    conv_silu(raw, y, value_elems(pre), type);
    round_row(y, value_elems(pre), type);
    store_row(s.v, y, value_elems(pre), STK_F32);
  }
  if (kc_warp == 2 && kc_lane == 0) {
    const kc2 decay_beta = gate_open(pre, h, gate_at(pre, 0, h));
    KC_UNROLL for (int i = 0; i < 2; ++i) s.dots[3 + i] = decay_beta.v[i];
  }
  kc_cluster_arrive();
  kc_sync();
  step_load_vector(in.k, s.k, 0, at.block, rows, STK_F32);
  step_load_vector(in.q, s.q, 0, at.block, rows, STK_F32);
  in.v = kc_load2(s.v + kc_warp * STK_GDN_TILE + at.column);
  in.kq = s.dots[0];
  in.kk = s.dots[1];
  in.kkq = s.dots[2];
  in.a = s.dots[3];
  in.beta = s.dots[4];
  kc2 o = step_compute(&in, &at, !odd, rows);
  round_row(o.v, 2, type);
  if (at.block == 0) kc_store2(s.o + kc_warp * STK_GDN_TILE + at.column, o);
  step_store(&in, &at);
  kc_sync();
  if (kc_warp == 2) make_output(&own, &a->post, h, s.o, value_elems(pre));
  kc_cluster_wait();
  advance(&own, pre, h, &s, n_taps);
}
