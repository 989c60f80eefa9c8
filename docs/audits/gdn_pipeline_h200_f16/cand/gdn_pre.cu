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
/* gdn_pre_cuda_grid.h -- how the GPU kernel of gdn_pre is laid over a window: what the
 * kernel and its plan must agree about.
 *
 * A warp has a run of tokens of a key head, or of a value head with its gates. There are
 * about as many warps as the chip holds at a time, and keys' runs are so much shorter than
 * values' that all take equally long: no processor waits for others, and what a run begins
 * with (taps, rows before it) is paid as seldom as can be. */
#ifndef GDN_PRE_CUDA_GRID_H
#define GDN_PRE_CUDA_GRID_H

#include "gdn_pre/gdn_pre.h"

enum {
  GDN_PRE_WARPS = 4,
  GDN_PRE_BLOCKS = 4, /* that a processor holds */
  GDN_PRE_SLOTS = 8,  /* rows of raw channels that are on their way to a warp */
  GDN_PRE_VALUE_CHUNK = 4,
  /* What a token of a key head, and one of a value head, take a warp. */
  GDN_PRE_KEY_COST = 13,
  GDN_PRE_VALUE_COST = 4
};

/* Tokens of a run, and runs of a head, or none. Key runs begin at an even absolute index,
 * so the first one has a token less if the window begins at an odd one; the last one has
 * two tokens at least, whose keys are the new tail. key_ends: 0 if the runs are one; else the
 * first so many warps, whole blocks, have the first and the last runs: an even warp the first
 * of head warp / 2, an odd one the last. */
typedef struct gdn_pre_layout {
  int key_run, key_runs, key_ends, value_run, value_runs;
} gdn_pre_layout;

/* Of numbers that are not negative. */
static inline int gdn_pre_up(int n, int unit) { return (int)(((unsigned)n + (unsigned)unit - 1) / (unsigned)unit); }

/* Tokens of a run if a head has so many runs; a multiple of unit (a power of two). Only
 * the first run may look back into the history, which it also writes. */
static inline int gdn_pre_run(int n_tokens, int n_runs, int unit, int n_taps) {
  const int least = n_taps < 4 ? 4 : (n_taps + unit - 1) & -unit;
  if (n_tokens <= (int64_t)least * n_runs) return least;
  return (gdn_pre_up(n_tokens, n_runs < 1 ? 1 : n_runs) + unit - 1) & -unit;
}

/* Warps that have keys. */
static inline int gdn_pre_key_warps(const gdn_pre_layout *l, int k_heads) {
  return l->key_ends ? l->key_ends + (l->key_runs - 2) * k_heads : l->key_runs * k_heads;
}

static inline gdn_pre_layout gdn_pre_layout_of(const stk_gdn_pre_args *a, int k_heads, int v_heads, int n_taps,
                                               int n_processors) {
  const int n_key = a->kinds & STK_GDN_KEYS ? k_heads : 0, T = a->n_tokens, odd = a->pos0 & 1;
  const int n_value = a->kinds & (STK_GDN_VALUES | STK_GDN_GATES) ? v_heads : 0;
  const int cost = GDN_PRE_KEY_COST * n_key + GDN_PRE_VALUE_COST * n_value;
  gdn_pre_layout l;
  int warps = n_processors * (GDN_PRE_BLOCKS * GDN_PRE_WARPS);
  l.key_run = l.value_run = 1;
  l.key_runs = l.key_ends = l.value_runs = 0;
  if (n_key) {
    l.key_run = gdn_pre_run(T + odd, warps * GDN_PRE_KEY_COST / cost, 2, n_taps + odd);
    l.key_runs = T + odd <= l.key_run ? 1 : gdn_pre_up(T + odd - 1, l.key_run);
    if (l.key_runs > 1) l.key_ends = gdn_pre_up(2 * n_key, GDN_PRE_WARPS) * GDN_PRE_WARPS;
    warps -= gdn_pre_key_warps(&l, n_key);
  }
  if (n_value) {
    l.value_run = gdn_pre_run(T, warps < n_value ? 1 : warps / n_value, GDN_PRE_VALUE_CHUNK, n_taps);
    l.value_runs = gdn_pre_up(T, l.value_run);
  }
  return l;
}

/* Bytes of a warp in shared memory. */
static inline int gdn_pre_warp_bytes(int k_dim, int v_dim, int row_bytes) {
  return GDN_PRE_SLOTS * (k_dim < v_dim ? v_dim : k_dim) * row_bytes;
}

#endif
/* gdn_pre_warp.h -- what the GPU kernels of gdn_pre share: a warp's convolution of a
 * head's channels and the norms. Lane l holds channels l, l + 32, ..., so that the lanes
 * of the order tree32 are the warp's; or, where nothing is summed, groups of 4
 * neighbours, 128 apart. */
#ifndef GDN_PRE_WARP_H
#define GDN_PRE_WARP_H

#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
#include "common/k_cuda_rows.h"
#include "gdn_pre/gdn_pre.h"

#ifdef GDN_HK
#define K_HEADS GDN_HK
#define V_HEADS GDN_HV
#else
#define K_HEADS a->k_heads
#define V_HEADS a->v_heads
#endif
#ifdef GDN_DK
#define K_DIM GDN_DK
#define V_DIM GDN_DV
#define TAPS GDN_TAPS
#define ROW_TYPE GDN_ROWS
#define ELEMS_MAX ((GDN_DK > GDN_DV ? GDN_DK : GDN_DV) / 32)
#define TAPS_MAX GDN_TAPS
#else
#define K_DIM a->k_dim
#define V_DIM a->v_dim
#define TAPS a->n_taps
#define ROW_TYPE a->rows
#define ELEMS_MAX 8
#define TAPS_MAX STK_CONV_TAPS_MAX
#endif

/* A lane's channels: their taps, and the rows before the next token, oldest first. n
 * (channels a lane), n_taps, group (neighbours) and type (of the rows) are constants where
 * these are inlined. */
typedef struct conv {
  const void *x; /* the window's rows at the lane's first channel */
  void *history;
  const float *taps;
  int64_t stride;
  float w[TAPS_MAX][ELEMS_MAX], row[TAPS_MAX][ELEMS_MAX];
} conv;

/* Channels of a raw row. */
KC_INLINE int64_t raw_channels(const stk_gdn_pre_args *a) {
  (void)a;
  return 2 * (int64_t)K_HEADS * K_DIM + (int64_t)V_HEADS * V_DIM;
}

/* Channel i of a lane, from its first one on: kc_element without the lane. */
KC_INLINE int channel(int i, int group) { return i / group * 32 * group + i % group; }

/* The raw row of token t, which may be in the history. */
KC_INLINE const void *raw_row(const conv *v, int n_taps, int64_t t, int type) {
  return t < 0 ? kc_row_at(v->history, (n_taps - 1 + t) * v->stride, type) : kc_row_at(v->x, t * v->stride, type);
}

KC_INLINE int taps_of(const stk_gdn_pre_args *a) {
  (void)a;
  return TAPS;
}

KC_INLINE int type_of(const stk_gdn_pre_args *a) {
  (void)a;
  return ROW_TYPE;
}

/* Channels of a lane in a key head and in a value head. */
KC_INLINE int key_elems(const stk_gdn_pre_args *a) {
  (void)a;
  return K_DIM / 32;
}
KC_INLINE int value_elems(const stk_gdn_pre_args *a) {
  (void)a;
  return V_DIM / 32;
}

/* A lane's elements of a row as they are. */
typedef struct row_bits {
  unsigned bits[ELEMS_MAX];
} row_bits;

/* The channels c0 on; nothing is read yet. */
KC_INLINE conv conv_at(const stk_gdn_pre_args *a, int64_t c0, int n_taps, int group, int type) {
  const int64_t c = c0 + kc_lane * group;
  conv v;
  v.stride = raw_channels(a);
  v.x = kc_row_at(a->qkv, c, type);
  v.history = kc_row_into(a->history, c, type);
  v.taps = a->conv_w + c * n_taps;
  return v;
}

/* Asks for what token t needs: taps, and the rows before it. */
KC_INLINE void conv_ask(conv *v, row_bits before[], int n, int n_taps, int group, int64_t t, int type) {
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j) {
    const void *row = raw_row(v, n_taps, t - (n_taps - 1) + j, type);
    KC_UNROLL for (int i = 0; i < n; ++i) before[j].bits[i] = kc_row_bits(row, channel(i, group), type);
  }
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const float *w = v->taps + channel(i, group) * n_taps;
    if (n_taps == 4) {
      const kc4 taps = kc_load4(w);
      KC_UNROLL for (int j = 0; j < 4; ++j) v->w[j][i] = taps.v[j];
    } else {
      KC_UNROLL for (int j = 0; j < n_taps; ++j) v->w[j][i] = w[j];
    }
  }
}

/* Waits for the rows: those of f16 are widened. */
KC_INLINE void conv_begin(conv *v, const row_bits before[], int n, int n_taps, int type) {
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) v->row[j][i] = kc_row_of_bits(before[j].bits[i], type);
}

/* The convolution of the token whose row is x, and on to the next. */
KC_INLINE void conv_token(conv *v, const float *x, int n, int n_taps, float *sum) {
  const int last = n_taps - 1;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    sum[i] = v->w[0][i] * v->row[0][i];
    KC_UNROLL for (int j = 1; j < last; ++j) sum[i] = ks_fma(v->w[j][i], v->row[j][i], sum[i]);
    sum[i] = ks_fma(v->w[last][i], x[i], sum[i]);
    KC_UNROLL for (int j = 0; j < last - 1; ++j) v->row[j][i] = v->row[j + 1][i];
    v->row[last - 1][i] = x[i];
  }
}

/* y[i] = silu(sum[i]), i < n. */
KC_INLINE void conv_silu(const float *sum, float *y, int n, int type) {
  if (type == STK_F16) kc_silu_half(sum, y, n);
  else kc_silu(sum, y, n);
}

/* The window's last rows are the new history: all are read before one is written. */
KC_INLINE void conv_advance(const conv *v, int64_t T, int n, int n_taps, int group, int type) {
  row_bits row[TAPS_MAX];
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i)
      row[j].bits[i] = kc_row_bits(raw_row(v, n_taps, T - (n_taps - 1) + j, type), channel(i, group), type);
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i)
      kc_row_put_bits(v->history, j * v->stride + channel(i, group), type, row[j].bits[i]);
}

/* The lane's part of tree32 of x * y. */
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

KC_INLINE void store_row(void *to, const float *x, int n, int type) { kc_row_store_elements(to, x, n, 1, type); }
KC_INLINE void load_row(const void *from, float *x, int n, int type) { kc_row_load_elements(from, x, n, 1, type); }

KC_INLINE void load_bits(const void *from, row_bits *x, int n, int type) {
  KC_UNROLL for (int i = 0; i < n; ++i) x->bits[i] = kc_row_bits(from, 32 * i + kc_lane, type);
}
KC_INLINE void store_bits(void *to, const row_bits *x, int n, int type) {
  KC_UNROLL for (int i = 0; i < n; ++i) kc_row_put_bits(to, 32 * i + kc_lane, type, x->bits[i]);
}

/* x as a row of the type reads. */
KC_INLINE void round_row(float *x, int n, int type) {
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = kc_row_round(x[i], type);
}

KC_INLINE void copy_row(const float *from, float *to, int n) {
  KC_UNROLL for (int i = 0; i < n; ++i) to[i] = from[i];
}

/* What a token's gates of head h are made from, and they: decay and write strength. */
typedef struct gate_inputs {
  float a, b;
} gate_inputs;

KC_INLINE gate_inputs gate_at(const stk_gdn_pre_args *a, int64_t t, int h) {
  const float *ab = a->ab + t * 2 * a->v_heads + h;
  const gate_inputs g = {ab[0], ab[a->v_heads]};
  return g;
}
KC_INLINE kc2 gate_open(const stk_gdn_pre_args *a, int h, gate_inputs g) {
  const float rate = -ks_exp(a->a_log[h]);
  const kc2 decay_beta = {{ks_exp(rate * ks_softplus(g.a + a->dt_bias[h])), ks_sigmoid(g.b)}};
  return decay_beta;
}

#endif

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
  const char *next; /* the lane's first piece of the row to be asked for */
  char *slots;
  int64_t stride;       /* bytes from row to row */
  int left, chunk, own; /* rows not yet asked for; where in the ring, and the lane's first piece of a chunk, in bytes */
} feed;

/* Bytes of a head's part of a row. */
KC_INLINE int part_bytes(int n, int type) { return 32 * n * kc_row_bytes(type); }

/* Row of a chunk in which a lane's piece number i is, and where in it; a piece is 16 bytes. */
KC_INLINE int piece_row(int i, int n, int type) { return (32 * i + kc_lane) / (part_bytes(n, type) / 16); }
KC_INLINE int piece_at(int i, int n, int type) { return (32 * i + kc_lane) % (part_bytes(n, type) / 16) * 16; }

/* Asks for the rows that come after those asked for, into the chunk's place. */
KC_INLINE void feed_ask(feed *f, int n_rows, int n, int type) {
  const int row_pieces = part_bytes(n, type) / 16, n_pieces = n_rows * row_pieces, chunk_bytes = n_rows * part_bytes(n, type);
  KC_UNROLL for (int i = 0; 32 * i < n_pieces; ++i) {
    /* From the lane's first piece on; constants where its pieces are the same of every row. */
    const int even = 32 % row_pieces == 0, row = piece_row(i, n, type);
    const int rows_on = even ? i * (32 / row_pieces) : row - piece_row(0, n, type);
    const int64_t on = rows_on * f->stride + (even ? 0 : piece_at(i, n, type) - piece_at(0, n, type));
    if (row < f->left && (n_pieces % 32 == 0 || row < n_rows)) kc_copy16(f->slots + f->chunk + f->own + 512 * i, f->next + on);
  }
  f->next += n_rows * f->stride;
  f->left -= n_rows;
  f->chunk += chunk_bytes;
  if (f->chunk == CHUNKS * chunk_bytes) f->chunk = 0;
}

KC_INLINE void feed_begin(feed *f, const stk_gdn_pre_args *a, int64_t c0, int64_t t0, int64_t t1, char *slots, int n, int type) {
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
