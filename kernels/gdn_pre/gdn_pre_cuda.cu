/* isa: cuda
 * gdn_pre -- a warp a head and run of tokens. The rows that the convolution looks back at
 * stay in registers; those of the tokens to come are on their way to shared memory, so
 * that they take no registers and a processor holds enough warps.
 *
 * A run of keys begins at an even absolute index, so the key before an odd token is in its
 * own run, but for the first. The first run of a head reads the old history, and writes the
 * new one from the raw rows. It also reads the old tail; the last run writes the new one,
 * and is in the same block, where it waits for that. Runs know nothing else of each other.
 *
 * Grid: the runs of key heads, then those of value heads with their gates, four warps at a
 * time (gdn_pre_cuda_grid.h). */
#include "gdn_pre/gdn_pre_cuda_grid.h"
#include "gdn_pre/gdn_pre_warp.h"

enum {
  WARPS = GDN_PRE_WARPS,
  VALUE_CHUNK = GDN_PRE_VALUE_CHUNK,
  CHUNKS = GDN_PRE_SLOTS / VALUE_CHUNK, /* on their way */
  KEY_CHUNK = VALUE_CHUNK / 2
};

/* ---- raw rows on their way to shared memory ------------------------------------------ */

/* Rows of one convolution's channels of a run's tokens, chunk by chunk in a ring of CHUNKS
 * chunks. What lies behind the last row is whatever was there before: it is worked on, too,
 * and goes nowhere. Sizes (rows of a chunk, n: channels a lane) and the rows' type are
 * constants. */
typedef struct feed {
  const char *next; /* row to be asked for, at the lane's first piece of a chunk */
  char *slots;
  int64_t stride;       /* bytes from row to row */
  int left, chunk, own; /* rows not yet asked for; in bytes, where in the ring, and the lane's first piece */
} feed;

/* Bytes of a head's part of a row. */
KC_INLINE int part_bytes(int n, int type) { return 32 * n * kc_row_bytes(type); }

/* Row of a chunk in which a lane's piece number i is, and where in it; a piece is 16 bytes. */
KC_INLINE int piece_row(int i, int n, int type) { return (32 * i + kc_lane) / (part_bytes(n, type) / 16); }
KC_INLINE int piece_at(int i, int n, int type) { return (32 * i + kc_lane) % (part_bytes(n, type) / 16) * 16; }

/* Asks for the rows that come after those asked for, into the chunk's place. */
KC_INLINE void feed_ask(feed *f, int n_rows, int n, int type) {
  const int row_pieces = part_bytes(n, type) / 16, n_pieces = n_rows * row_pieces, chunk_bytes = 16 * n_pieces;
  KC_UNROLL for (int i = 0; 32 * i < n_pieces; ++i) {
    /* The distance from the lane's first piece. Where even, a lane has the same piece of each
     * of its rows, and the distances are whole strides. */
    const int even = 32 % row_pieces == 0, row = piece_row(i, n, type);
    const int rows_on = even ? i * (32 / row_pieces) : row - piece_row(0, n, type);
    const int64_t on = rows_on * f->stride + (even ? 0 : piece_at(i, n, type) - piece_at(0, n, type));
    if (row < f->left && (n_pieces % 32 == 0 || row < n_rows))
      kc_copy16(f->slots + f->chunk + f->own + 512 * i, f->next + on);
  }
  f->next += n_rows * f->stride;
  f->left -= n_rows;
  f->chunk += chunk_bytes;
  if (f->chunk == CHUNKS * chunk_bytes) f->chunk = 0;
}

KC_INLINE void feed_begin(feed *f, const stk_gdn_pre_args *a, int64_t c0, int64_t t0, int64_t t1, char *slots, int n,
                          int type) {
  f->stride = raw_channels(a) * kc_row_bytes(type);
  f->next = (const char *)kc_row_at(a->qkv, c0, type) + (t0 + piece_row(0, n, type)) * f->stride + piece_at(0, n, type);
  f->slots = slots;
  f->left = (int)(t1 - t0);
  f->chunk = 0;
  f->own = 16 * kc_lane;
}

/* Row k of the oldest chunk, which is the one to be replaced. */
KC_INLINE const void *feed_row(const feed *f, int k, int n, int type) {
  return f->slots + f->chunk + k * part_bytes(n, type);
}

/* The chunk that was asked for CHUNKS chunks ago is there, for all lanes. */
KC_INLINE void await_chunk(void) {
  kc_copy_wait(CHUNKS - 1);
  kc_sync_warp();
}

/* ---- key heads --------------------------------------------------------------------------- */

/* Where the next token's query, key and dots go. */
typedef struct key_out {
  void *q, *k;
  float *dots;
} key_out;

/* Two tokens of a key head, of which the second may not be. first_odd, a constant: the
 * first one's absolute index is odd. old[0], old[1]: the keys before them, and after the
 * call of them. */
KC_INLINE void key_tokens(key_out *out, int first_odd, int both, conv *vq, conv *vk, const float xq[][ELEMS_MAX],
                          const float xk[][ELEMS_MAX], int n, int n_taps, int type, float old[2][ELEMS_MAX]) {
  const int dim = 32 * n;
  const float dim_scale = kc_inverse_sqrt(32 * n);
  float raw[4 * ELEMS_MAX], made[4 * ELEMS_MAX], sum[4];
  float *q[2] = {made, made + n}, *k[2] = {made + 2 * n, made + 3 * n};
  KC_UNROLL for (int j = 0; j < 2; ++j) {
    conv_token(vq, xq[j], n, n_taps, raw + j * n);
    conv_token(vk, xk[j], n, n_taps, raw + (2 + j) * n);
  }
  conv_silu(raw, made, 4 * n, type);
  KC_UNROLL for (int j = 0; j < 2; ++j) {
    sum[j] = tree_lane(q[j], q[j], n);
    sum[2 + j] = tree_lane(k[j], k[j], n);
  }
  kc_rsqrt_sums(sum, 4, 1.0f, 1e-6f);
  KC_UNROLL for (int j = 0; j < 2; ++j) {
    scale(q[j], sum[j] * dim_scale, n);
    scale(k[j], sum[2 + j], n);
    if (j == 0 || both) {
      store_row(kc_row_into(out->q, j * dim, type), q[j], n, type);
      store_row(kc_row_into(out->k, j * dim, type), k[j], n, type);
    }
    round_row(q[j], n, type);
    round_row(k[j], n, type);
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
  /* Lane 3 j + i has number i of token j. */
  const int j = kc_lane / 3, what = kc_lane % 3, index = what == 0 ? j & 1 : 1 + what;
  const float dot = kc_shuffle(kc_lanes_each(sum, 4, KC_SUM), kc_each_lane(index, 4));
  if (kc_lane < (both ? 6 : 3)) out->dots[kc_lane] = what == 0 || j == !first_odd ? dot : 0.0f;
  out->q = kc_row_into(out->q, 2 * dim, type);
  out->k = kc_row_into(out->k, 2 * dim, type);
  out->dots += 6;
  if (both) {
    copy_row(k[0], old[0], n);
    copy_row(k[1], old[1], n);
  } else {
    copy_row(old[1], old[0], n);
    copy_row(k[0], old[1], n);
  }
}

/* What a run of a key head goes on with, from token to token. */
typedef struct key_run {
  feed fq, fk;
  conv vq, vk;
  key_out out;
  float old[2][ELEMS_MAX];
} key_run;

KC_INLINE void key_pairs(key_run *r, int n_tokens, int first_odd, int n, int n_taps, int type) {
  for (int left = n_tokens; left > 0; left -= KEY_CHUNK) {
    float xq[KEY_CHUNK][ELEMS_MAX], xk[KEY_CHUNK][ELEMS_MAX];
    await_chunk();
    KC_UNROLL for (int j = 0; j < KEY_CHUNK; ++j) {
      load_row(feed_row(&r->fq, j, n, type), xq[j], n, type);
      load_row(feed_row(&r->fk, j, n, type), xk[j], n, type);
    }
    kc_sync_warp();
    feed_ask(&r->fq, KEY_CHUNK, n, type);
    feed_ask(&r->fk, KEY_CHUNK, n, type);
    kc_copy_commit();
    key_tokens(&r->out, first_odd, left > 1, &r->vq, &r->vk, (const float(*)[ELEMS_MAX])xq,
               (const float(*)[ELEMS_MAX])xk, n, n_taps, type, r->old);
  }
}

/* ends: the block has the first and the last runs of its heads. */
KC_INLINE void key_head(const stk_gdn_pre_args *a, int h, int t0, int t1, int ends, int n_taps, char *slots) {
  const int64_t T = a->n_tokens, dim = K_DIM, cq = h * dim, ck = (a->k_heads + h) * dim;
  const int n = K_DIM / 32, type = ROW_TYPE;
  void *kn = kc_row_into(a->kn, h * (T + 2) * dim, type);
  void *tail[2] = {kc_row_into(a->k_tail, cq, type), kc_row_into(a->k_tail, ck, type)};
  key_run r;
  row_bits before[2], before_q[TAPS_MAX], before_k[TAPS_MAX];
  KC_UNROLL for (int j = 0; j < 2; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) before[j].bits[i] = 0;
  if (t0 == 0) KC_UNROLL for (int j = 0; j < 2; ++j) load_bits(tail[j], &before[j], n, type);
  r.vq = conv_at(a, cq, n_taps, 1, type);
  r.vk = conv_at(a, ck, n_taps, 1, type);
  feed_begin(&r.fq, a, cq, t0, t1, slots, n, type);
  feed_begin(&r.fk, a, ck, t0, t1, slots + CHUNKS * KEY_CHUNK * part_bytes(n, type), n, type);
  for (int c = 0; c < CHUNKS; ++c) {
    feed_ask(&r.fq, KEY_CHUNK, n, type);
    feed_ask(&r.fk, KEY_CHUNK, n, type);
    kc_copy_commit();
  }
  conv_ask(&r.vq, before_q, n, n_taps, 1, t0, type);
  conv_ask(&r.vk, before_k, n, n_taps, 1, t0, type);
  KC_UNROLL for (int j = 0; j < 2; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) r.old[j][i] = kc_row_of_bits(before[j].bits[i], type);
  conv_begin(&r.vq, before_q, n, n_taps, type);
  conv_begin(&r.vk, before_k, n, n_taps, type);
  if (ends) kc_sync(); /* before the new tail is written, the old one has been read */
  if (t0 == 0) {
    conv_advance(&r.vq, T, n, n_taps, 1, type);
    conv_advance(&r.vk, T, n, n_taps, 1, type);
    KC_UNROLL for (int j = 0; j < 2; ++j) store_bits(kc_row_into(kn, j * dim, type), &before[j], n, type);
    if (T == 1) store_bits(tail[0], &before[1], n, type);
  }
  r.out.q = kc_row_into(a->qn, (h * T + t0) * dim, type);
  r.out.k = kc_row_into(kn, (2 + t0) * dim, type);
  r.out.dots = a->kq + (h * T + t0) * 3;
  /* Only the first run of a window can begin at an odd index. */
  if ((a->pos0 + t0) & 1) key_pairs(&r, t1 - t0, 1, n, n_taps, type);
  else key_pairs(&r, t1 - t0, 0, n, n_taps, type);
  if (t1 == T) {
    if (T > 1) store_row(tail[0], r.old[0], n, type);
    store_row(tail[1], r.old[1], n, type);
  }
}

/* ---- value heads ------------------------------------------------------------------------- */

/* A head's gates, a lane a token; the next one's numbers are asked for first. */
KC_INLINE void gates(const stk_gdn_pre_args *a, int h, int t0, int t1) {
  float *gb = a->gb + h * (int64_t)a->n_tokens * 2;
  int t = t0 + kc_lane;
  gate_inputs next = gate_at(a, t < t1 ? t : t0, h);
  for (; t < t1; t += 32) {
    const gate_inputs now = next;
    next = gate_at(a, t + 32 < t1 ? t + 32 : t, h);
    kc_store2(gb + 2 * (int64_t)t, gate_open(a, h, now));
  }
}

/* Its values and gates, as the call wants; gates are made while the first rows come. */
KC_INLINE void value_head(const stk_gdn_pre_args *a, int h, int t0, int t1, int n_taps, char *slots) {
  const int64_t dim = V_DIM, c0 = 2 * (int64_t)a->k_heads * a->k_dim + h * dim;
  const int type = ROW_TYPE, n = V_DIM / 32, group = n % 4 == 0 ? 4 : 1, n_tokens = t1 - t0;
  void *vc = kc_row_into(a->vc, (h * (int64_t)a->n_tokens + t0) * dim, type);
  row_bits before[TAPS_MAX];
  feed f;
  conv v;
  if (!(a->kinds & STK_GDN_VALUES)) {
    gates(a, h, t0, t1);
    return;
  }
  v = conv_at(a, c0, n_taps, group, type);
  feed_begin(&f, a, c0, t0, t1, slots, n, type);
  for (int c = 0; c < CHUNKS; ++c) {
    feed_ask(&f, VALUE_CHUNK, n, type);
    kc_copy_commit();
  }
  if (a->kinds & STK_GDN_GATES) gates(a, h, t0, t1);
  conv_ask(&v, before, n, n_taps, group, t0, type);
  conv_begin(&v, before, n, n_taps, type);
  if (t0 == 0) conv_advance(&v, a->n_tokens, n, n_taps, group, type);
  for (int at = 0; at < n_tokens; at += VALUE_CHUNK) {
    float x[VALUE_CHUNK][ELEMS_MAX], raw[VALUE_CHUNK * ELEMS_MAX], y[VALUE_CHUNK * ELEMS_MAX];
    await_chunk();
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j) kc_row_load_elements(feed_row(&f, j, n, type), x[j], n, group, type);
    kc_sync_warp();
    feed_ask(&f, VALUE_CHUNK, n, type);
    kc_copy_commit();
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j) conv_token(&v, x[j], n, n_taps, raw + j * n);
    conv_silu(raw, y, VALUE_CHUNK * n, type);
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j)
      if (at + j < n_tokens) kc_row_store_elements(kc_row_into(vc, j * dim, type), y + j * n, n, group, type);
    vc = kc_row_into(vc, VALUE_CHUNK * dim, type);
  }
}

KC_KERNEL(gdn_pre_cuda, stk_gdn_pre_args, 32 * WARPS, GDN_PRE_BLOCKS) {
  const int T = a->n_tokens, odd = a->pos0 & 1, n_taps = TAPS;
  const gdn_pre_layout l = gdn_pre_layout_of(a, K_HEADS, V_HEADS, n_taps, kc_processors);
  const int unit = kc_block * WARPS + kc_warp, value = unit - gdn_pre_key_warps(&l, K_HEADS);
  KC_SHARED(char, shared);
  char *slots = shared + kc_warp * gdn_pre_warp_bytes(K_DIM, V_DIM, kc_row_bytes(ROW_TYPE));
  if (value < 0) {
    const int ends = unit < l.key_ends, inner = unit - l.key_ends, last = l.key_runs - 1;
    const int h = ends ? unit / 2 : inner % K_HEADS;
    const int run = ends ? unit % 2 * last : l.key_ends ? 1 + inner / K_HEADS : 0;
    const int t0 = run ? run * l.key_run - odd : 0, t1 = run == last ? T : (run + 1) * l.key_run - odd;
    if (h < K_HEADS) key_head(a, h, t0, t1, ends, n_taps, slots);
    else kc_sync();
  } else if (value < l.value_runs * V_HEADS) {
    const int run = value / V_HEADS, t0 = run * l.value_run, end = t0 + l.value_run;
    value_head(a, value % V_HEADS, t0, end < T ? end : T, n_taps, slots);
  }
}
