/* isa: cuda
 * gdn_pre -- a warp a head and run of tokens. The rows that the convolution looks back at
 * stay in registers; those of the tokens to come are on their way to shared memory, so
 * that they take no registers and a processor holds enough warps.
 *
 * A run begins at an even absolute index, so the key before an odd token is in its own
 * run, but for the first. What reads the old history and tail, the first run of a head,
 * also writes the new ones; if it does not have the last two keys, it computes them
 * again. So all runs of a window may go on at the same time.
 *
 * Grid: runs, and units (key heads, value heads, eight heads' gates) four at a time. */
#include "gdn_pre/gdn_pre_cuda_grid.h"
#include "gdn_pre/gdn_pre_warp.h"

enum {
  WARPS = GDN_PRE_WARPS,
  GATE_HEADS = GDN_PRE_GATE_HEADS,
  CHUNKS = 4, /* on their way */
  KEY_CHUNK = GDN_PRE_SLOTS / 2 / CHUNKS,
  VALUE_CHUNK = GDN_PRE_SLOTS / CHUNKS
};

/* ---- raw rows on their way to shared memory ------------------------------------------ */

/* Rows of one convolution's channels, of tokens t0 to t1 - 1: token t has slot t - t0,
 * modulo the number of slots (a constant). */
typedef struct feed {
  const float *from; /* token t0's */
  float *slots;
  int64_t stride;
  int n_tokens;
} feed;

KC_INLINE void feed_begin(feed *f, const stk_gdn_pre_args *a, int64_t c0, int64_t t0, int64_t t1, float *slots) {
  f->stride = raw_floats(a);
  f->from = a->qkv + t0 * f->stride + c0;
  f->slots = slots;
  f->n_tokens = (int)(t1 - t0);
}

/* Asks for n_rows rows from number `first` on, of 32 n channels each. */
KC_INLINE void feed_ask(const feed *f, int first, int n_rows, int n, int n_slots) {
  KC_UNROLL for (int k = 0; k < n_rows; ++k)
    KC_UNROLL for (int i = 0; i < 8 * n; i += 32) {
      const int piece = i + kc_lane;
      if (first + k < f->n_tokens && (8 * n % 32 == 0 || piece < 8 * n))
        kc_copy16(f->slots + (first + k) % n_slots * 32 * n + 4 * piece, f->from + (first + k) * f->stride + 4 * piece);
    }
}

/* Row number `index`, or the last one: what lies beyond the end is worked on, too. */
KC_INLINE const float *feed_row(const feed *f, int index, int n, int n_slots) {
  const int last = f->n_tokens - 1;
  return f->slots + (index < last ? index : last) % n_slots * 32 * n;
}

/* The chunk that was asked for CHUNKS chunks ago is there, for all lanes. */
KC_INLINE void await_chunk(void) {
  kc_copy_wait(CHUNKS - 1);
  kc_sync_warp();
}

/* ---- key heads --------------------------------------------------------------------------- */

/* The keys of the window's last two tokens, for a warp that does not have them. */
KC_INLINE void last_keys(const stk_gdn_pre_args *a, int64_t h, int n, int n_taps, float k[2][ELEMS_MAX]) {
  const int64_t t = (int64_t)a->n_tokens - 2;
  float x[2][ELEMS_MAX], raw[ELEMS_MAX], sum[2];
  conv v;
  conv_begin(&v, a, (a->k_heads + h) * K_DIM, n, n_taps, 1, t);
  KC_UNROLL for (int j = 0; j < 2; ++j) conv_row(&v, t + j, n, x[j]);
  KC_UNROLL for (int j = 0; j < 2; ++j) {
    conv_token(&v, x[j], n, n_taps, raw);
    kc_silu(raw, k[j], n);
  }
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
  float raw[4 * ELEMS_MAX], made[4 * ELEMS_MAX], sum[4];
  float *q[2] = {made, made + n}, *k[2] = {made + 2 * n, made + 3 * n};
  KC_UNROLL for (int j = 0; j < 2; ++j) {
    conv_token(vq, xq[j], n, n_taps, raw + j * n);
    conv_token(vk, xk[j], n, n_taps, raw + (2 + j) * n);
  }
  kc_silu(raw, made, 4 * n);
  KC_UNROLL for (int j = 0; j < 2; ++j) {
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

KC_INLINE void key_head(const stk_gdn_pre_args *a, int64_t h, int64_t t0, int64_t t1, int n_taps, float *slots) {
  const int64_t T = a->n_tokens, dim = K_DIM;
  const int n = K_DIM / 32, n_slots = GDN_PRE_SLOTS / 2;
  float *kn = a->kn + h * (T + 2) * dim, *tail[2] = {a->k_tail + h * dim, a->k_tail + (a->k_heads + h) * dim};
  float old[2][ELEMS_MAX];
  feed fq, fk;
  conv vq, vk;
  feed_begin(&fq, a, h * dim, t0, t1, slots);
  feed_begin(&fk, a, (a->k_heads + h) * dim, t0, t1, slots + n_slots * dim);
  for (int c = 0; c < CHUNKS; ++c) {
    feed_ask(&fq, c * KEY_CHUNK, KEY_CHUNK, n, n_slots);
    feed_ask(&fk, c * KEY_CHUNK, KEY_CHUNK, n, n_slots);
    kc_copy_commit();
  }
  conv_begin(&vq, a, h * dim, n, n_taps, 1, t0);
  conv_begin(&vk, a, (a->k_heads + h) * dim, n, n_taps, 1, t0);
  KC_UNROLL for (int j = 0; j < 2; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) old[j][i] = 0.0f;
  if (t0 == 0)
    KC_UNROLL for (int j = 0; j < 2; ++j) {
      load_row(tail[j], old[j], n);
      store_row(kn + j * dim, old[j], n);
    }
  for (int at = 0; at < fq.n_tokens; at += KEY_CHUNK) {
    float xq[KEY_CHUNK][ELEMS_MAX], xk[KEY_CHUNK][ELEMS_MAX];
    await_chunk();
    KC_UNROLL for (int j = 0; j < KEY_CHUNK; ++j) {
      load_row(feed_row(&fq, at + j, n, n_slots), xq[j], n);
      load_row(feed_row(&fk, at + j, n, n_slots), xk[j], n);
    }
    kc_sync_warp();
    feed_ask(&fq, at + CHUNKS * KEY_CHUNK, KEY_CHUNK, n, n_slots);
    feed_ask(&fk, at + CHUNKS * KEY_CHUNK, KEY_CHUNK, n, n_slots);
    kc_copy_commit();
    key_tokens(a, h, t0 + at, at + 1 < fq.n_tokens, &vq, &vk, (const float(*)[ELEMS_MAX])xq,
               (const float(*)[ELEMS_MAX])xk, n, n_taps, old);
  }
  kc_copy_wait(0);
  if (t0) return;
  if (t1 < T) last_keys(a, h, n, n_taps, old);
  KC_UNROLL for (int j = 0; j < 2; ++j) store_row(tail[j], old[j], n);
  conv_advance(&vq, T, n, n_taps, 1);
  conv_advance(&vk, T, n, n_taps, 1);
}

/* ---- value heads ------------------------------------------------------------------------- */

KC_INLINE void value_head(const stk_gdn_pre_args *a, int64_t h, int64_t t0, int64_t t1, int n_taps, float *slots) {
  const int64_t dim = V_DIM, c0 = 2 * (int64_t)a->k_heads * a->k_dim + h * dim;
  const int n = V_DIM / 32, group = n % 4 == 0 ? 4 : 1, n_slots = GDN_PRE_SLOTS;
  float *vc = a->vc + (h * a->n_tokens + t0) * dim;
  feed f;
  conv v;
  feed_begin(&f, a, c0, t0, t1, slots);
  for (int c = 0; c < CHUNKS; ++c) {
    feed_ask(&f, c * VALUE_CHUNK, VALUE_CHUNK, n, n_slots);
    kc_copy_commit();
  }
  conv_begin(&v, a, c0, n, n_taps, group, t0);
  for (int at = 0; at < f.n_tokens; at += VALUE_CHUNK) {
    float raw[VALUE_CHUNK * ELEMS_MAX], y[VALUE_CHUNK * ELEMS_MAX];
    await_chunk();
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j) {
      float x[ELEMS_MAX];
      kc_load_elements(feed_row(&f, at + j, n, n_slots), x, n, group);
      conv_token(&v, x, n, n_taps, raw + j * n);
    }
    kc_silu(raw, y, VALUE_CHUNK * n);
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j)
      if (at + j < f.n_tokens) kc_store_elements(vc + j * dim, y + j * n, n, group);
    vc += VALUE_CHUNK * dim;
    kc_copy_commit(); /* of nothing: a run's rows all have a slot */
  }
  kc_copy_wait(0);
  if (t0 == 0) conv_advance(&v, a->n_tokens, n, n_taps, group);
}

/* ---- gates --------------------------------------------------------------------------------- */

/* Heads h0 on: a lane has one token of the run, and some of the heads. */
KC_INLINE void gates(const stk_gdn_pre_args *a, int h0, int64_t t0, int64_t t1, int run) {
  const int64_t t = t0 + kc_lane % run;
  const int h1 = h0 + GATE_HEADS < a->v_heads ? h0 + GATE_HEADS : a->v_heads;
  if (t >= t1) return;
  for (int h = h0 + kc_lane / run; h < h1; h += 32 / run) {
    float *gb = a->gb + (h * (int64_t)a->n_tokens + t) * 2, decay, beta;
    gate_of(a, t, h, &decay, &beta);
    gb[0] = decay;
    gb[1] = beta;
  }
}

KC_KERNEL(gdn_pre_cuda, stk_gdn_pre_args, 32 * WARPS, 4) {
  const int unit = kc_block_y * WARPS + kc_warp, odd = a->pos0 & 1, n_taps = TAPS, run = gdn_pre_run(a->n_tokens, n_taps);
  const int first_gate = a->k_heads + a->v_heads, h0 = (unit - first_gate) * GATE_HEADS;
  const int64_t t0 = kc_block ? (int64_t)kc_block * run - odd : 0, end = ((int64_t)kc_block + 1) * run - odd;
  const int64_t t1 = end < a->n_tokens ? end : a->n_tokens;
  KC_SHARED(float, shared);
  float *slots = shared + kc_warp * gdn_pre_warp_floats(K_DIM, V_DIM);
  if (t0 >= t1) return;
  if (unit < a->k_heads) {
    if (a->kinds & STK_GDN_KEYS) key_head(a, unit, t0, t1, n_taps, slots);
  } else if (unit < first_gate) {
    if (a->kinds & STK_GDN_VALUES) value_head(a, unit - a->k_heads, t0, t1, n_taps, slots);
  } else if (h0 < a->v_heads && a->kinds & STK_GDN_GATES) {
    gates(a, h0, t0, t1, run);
  }
}
