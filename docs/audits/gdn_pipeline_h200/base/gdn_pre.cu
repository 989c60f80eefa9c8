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
 * A warp has a run of tokens of a key head, or of a value head with its gates. Runs are as
 * long as they can be with no more warps than the chip holds at a time, in the proportion
 * that all take equally long: no processor waits for the end of others, and what a run
 * begins with (taps, rows before it) is paid as seldom as can be. */
#ifndef GDN_PRE_CUDA_GRID_H
#define GDN_PRE_CUDA_GRID_H

#include "gdn_pre/gdn_pre.h"

enum {
  GDN_PRE_WARPS = 4,
  GDN_PRE_BLOCKS = 3, /* that a processor holds */
  GDN_PRE_SLOTS = 16, /* rows of raw channels that are on their way to a warp */
  GDN_PRE_VALUE_CHUNK = 4,
  /* What a token of a key head, and one of a value head, take a warp. */
  GDN_PRE_KEY_COST = 6,
  GDN_PRE_VALUE_COST = 2
};

/* Tokens of a run, and runs of a head, or none. Key runs begin at an even absolute index,
 * so the first one has a token less if the window begins at an odd one; the last one has
 * two tokens at least, whose keys are the new tail. key_ends: warps that have the first and
 * the last run of a head in turns, in blocks of their own; 0 if the runs are one. */
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

static inline gdn_pre_layout gdn_pre_layout_of(const stk_gdn_pre_args *a, int k_heads, int v_heads, int n_taps,
                                               int n_processors) {
  const int n_key = a->kinds & STK_GDN_KEYS ? k_heads : 0, T = a->n_tokens, odd = a->pos0 & 1;
  const int n_value = a->kinds & (STK_GDN_VALUES | STK_GDN_GATES) ? v_heads : 0;
  const int cost = GDN_PRE_KEY_COST * n_key + GDN_PRE_VALUE_COST * n_value;
  gdn_pre_layout l = {1, 0, 0, 1, 0};
  int warps = n_processors * (GDN_PRE_BLOCKS * GDN_PRE_WARPS);
  if (n_key) {
    l.key_run = gdn_pre_run(T + odd, warps * GDN_PRE_KEY_COST / cost, 2, n_taps + odd);
    l.key_runs = T + odd <= l.key_run ? 1 : gdn_pre_up(T + odd - 1, l.key_run);
    if (l.key_runs > 1) l.key_ends = gdn_pre_up(2 * n_key, GDN_PRE_WARPS) * GDN_PRE_WARPS;
    warps -= l.key_runs * n_key;
  }
  if (n_value) {
    l.value_run = gdn_pre_run(T, warps < n_value ? 1 : warps / n_value, GDN_PRE_VALUE_CHUNK, n_taps);
    l.value_runs = gdn_pre_up(T, l.value_run);
  }
  return l;
}

/* Warps that have keys. */
static inline int gdn_pre_key_warps(const gdn_pre_layout *l, int k_heads) {
  return l->key_ends ? l->key_ends + (l->key_runs - 2) * k_heads : l->key_runs * k_heads;
}

/* Floats of a warp in shared memory. */
static inline int gdn_pre_warp_floats(int k_dim, int v_dim) { return GDN_PRE_SLOTS * (k_dim < v_dim ? v_dim : k_dim); }

#endif
/* gdn_pre_warp.h -- what the GPU kernels of gdn_pre share: a warp's convolution of a
 * head's channels and the norms. Lane l holds channels l, l + 32, ..., so that the lanes
 * of the order tree32 are the warp's; or, where nothing is summed, groups of 4
 * neighbours, 128 apart. */
#ifndef GDN_PRE_WARP_H
#define GDN_PRE_WARP_H

#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
#include "gdn_pre/gdn_pre.h"

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

/* A lane's channels: their taps, and the rows before the next token, oldest first. n
 * (channels a lane), n_taps and group (neighbours) are constants where these are inlined. */
typedef struct conv {
  const float *x; /* the window's rows at the lane's first channel */
  float *history;
  int64_t stride;
  float w[TAPS_MAX][ELEMS_MAX], row[TAPS_MAX][ELEMS_MAX];
} conv;

/* Floats of a raw row. */
KC_INLINE int64_t raw_floats(const stk_gdn_pre_args *a) {
  return 2 * (int64_t)a->k_heads * a->k_dim + (int64_t)a->v_heads * a->v_dim;
}

/* Channel i of a lane, from its first one on: kc_element without the lane. */
KC_INLINE int channel(int i, int group) { return i / group * 32 * group + i % group; }

KC_INLINE float raw(const conv *v, int n_taps, int64_t t, int i, int group) {
  const float *row = t < 0 ? v->history + (n_taps - 1 + t) * v->stride : v->x + t * v->stride;
  return row[channel(i, group)];
}

KC_INLINE int taps_of(const stk_gdn_pre_args *a) {
  (void)a;
  return TAPS;
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

/* Channels c0 on, about to do token t. */
KC_INLINE void conv_begin(conv *v, const stk_gdn_pre_args *a, int64_t c0, int n, int n_taps, int group, int64_t t) {
  const int64_t c = c0 + kc_lane * group;
  v->stride = raw_floats(a);
  v->x = a->qkv + c;
  v->history = a->history + c;
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) v->row[j][i] = raw(v, n_taps, t - (n_taps - 1) + j, i, group);
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const float *w = a->conv_w + (c + channel(i, group)) * n_taps;
    if (n_taps == 4) {
      const kc4 taps = kc_load4(w);
      KC_UNROLL for (int j = 0; j < 4; ++j) v->w[j][i] = taps.v[j];
    } else {
      KC_UNROLL for (int j = 0; j < n_taps; ++j) v->w[j][i] = w[j];
    }
  }
}

/* The raw row of token t, of channels 32 apart. */
KC_INLINE void conv_row(const conv *v, int64_t t, int n, float *x) {
  const float *row = v->x + t * v->stride;
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = row[32 * i];
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

/* The window's last rows are the new history: all are read before one is written. */
KC_INLINE void conv_advance(const conv *v, int64_t T, int n, int n_taps, int group) {
  float row[TAPS_MAX][ELEMS_MAX];
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) row[j][i] = raw(v, n_taps, T - (n_taps - 1) + j, i, group);
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) v->history[j * v->stride + channel(i, group)] = row[j][i];
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

KC_INLINE void store_row(float *to, const float *x, int n) { kc_store_elements(to, x, n, 1); }
KC_INLINE void load_row(const float *from, float *x, int n) { kc_load_elements(from, x, n, 1); }

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

#ifdef GDN_HK
#define K_HEADS GDN_HK
#define V_HEADS GDN_HV
#else
#define K_HEADS a->k_heads
#define V_HEADS a->v_heads
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
 * and goes nowhere. Sizes (rows of a chunk, n: channels a lane) are constants. */
typedef struct feed {
  const float *next; /* row to be asked for */
  float *slots;
  int64_t stride;
  int left, chunk; /* rows not yet asked for; where in the ring, in floats */
} feed;

/* Asks for the rows that come after those asked for, into the chunk's place. */
KC_INLINE void feed_ask(feed *f, int n_rows, int n) {
  KC_UNROLL for (int k = 0; k < n_rows; ++k)
    KC_UNROLL for (int i = 0; i < 8 * n; i += 32) {
      const int at = 4 * (i + kc_lane);
      if (k < f->left && (8 * n % 32 == 0 || at < 32 * n))
        kc_copy16(f->slots + f->chunk + k * 32 * n + at, f->next + k * f->stride + at);
    }
  f->next += n_rows * f->stride;
  f->left -= n_rows;
  f->chunk += n_rows * 32 * n;
  if (f->chunk == CHUNKS * n_rows * 32 * n) f->chunk = 0;
}

KC_INLINE void feed_begin(feed *f, const stk_gdn_pre_args *a, int64_t c0, int64_t t0, int64_t t1, float *slots) {
  f->stride = raw_floats(a);
  f->next = a->qkv + t0 * f->stride + c0;
  f->slots = slots;
  f->left = (int)(t1 - t0);
  f->chunk = 0;
}

/* Row k of the oldest chunk, which is the one to be replaced. */
KC_INLINE const float *feed_row(const feed *f, int k, int n) { return f->slots + f->chunk + k * 32 * n; }

/* The chunk that was asked for CHUNKS chunks ago is there, for all lanes. */
KC_INLINE void await_chunk(void) {
  kc_copy_wait(CHUNKS - 1);
  kc_sync_warp();
}

/* ---- key heads --------------------------------------------------------------------------- */

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
  kc_rsqrt_sums(sum, 4, 1.0f, 1e-6f);
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
  /* Lane 3 j + i has number i of token j. */
  const int j = kc_lane / 3, what = kc_lane % 3, index = what == 0 ? j & 1 : 1 + what;
  const float dot = kc_shuffle(kc_lanes_each(sum, 4, KC_SUM), kc_each_lane(index, 4));
  if (kc_lane < (both ? 6 : 3)) a->kq[(h * T + t) * 3 + kc_lane] = what == 0 || j == !first_odd ? dot : 0.0f;
  if (both) {
    copy_row(k[0], old[0], n);
    copy_row(k[1], old[1], n);
  } else {
    copy_row(old[1], old[0], n);
    copy_row(k[0], old[1], n);
  }
}

/* ends: the block has the first and the last runs of its heads. */
KC_INLINE void key_head(const stk_gdn_pre_args *a, int h, int t0, int t1, int ends, int n_taps, float *slots) {
  const int64_t T = a->n_tokens, dim = K_DIM, cq = h * dim, ck = (a->k_heads + h) * dim;
  const int n = K_DIM / 32;
  float *kn = a->kn + h * (T + 2) * dim, *tail[2] = {a->k_tail + h * dim, a->k_tail + ck};
  float old[2][ELEMS_MAX];
  feed fq, fk;
  conv vq, vk;
  feed_begin(&fq, a, cq, t0, t1, slots);
  feed_begin(&fk, a, ck, t0, t1, slots + CHUNKS * KEY_CHUNK * dim);
  for (int c = 0; c < CHUNKS; ++c) {
    feed_ask(&fq, KEY_CHUNK, n);
    feed_ask(&fk, KEY_CHUNK, n);
    kc_copy_commit();
  }
  KC_UNROLL for (int j = 0; j < 2; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) old[j][i] = 0.0f;
  if (t0 == 0) KC_UNROLL for (int j = 0; j < 2; ++j) load_row(tail[j], old[j], n);
  if (ends) kc_sync(); /* before the new tail is written, the old one has been read */
  conv_begin(&vq, a, cq, n, n_taps, 1, t0);
  conv_begin(&vk, a, ck, n, n_taps, 1, t0);
  if (t0 == 0) {
    conv_advance(&vq, T, n, n_taps, 1);
    conv_advance(&vk, T, n, n_taps, 1);
    KC_UNROLL for (int j = 0; j < 2; ++j) store_row(kn + j * dim, old[j], n);
  }
  for (int t = t0; t < t1; t += KEY_CHUNK) {
    float xq[KEY_CHUNK][ELEMS_MAX], xk[KEY_CHUNK][ELEMS_MAX];
    await_chunk();
    KC_UNROLL for (int j = 0; j < KEY_CHUNK; ++j) {
      load_row(feed_row(&fq, j, n), xq[j], n);
      load_row(feed_row(&fk, j, n), xk[j], n);
    }
    kc_sync_warp();
    feed_ask(&fq, KEY_CHUNK, n);
    feed_ask(&fk, KEY_CHUNK, n);
    kc_copy_commit();
    key_tokens(a, h, t, t + 1 < t1, &vq, &vk, (const float(*)[ELEMS_MAX])xq, (const float(*)[ELEMS_MAX])xk, n, n_taps,
               old);
  }
  if (t1 == T)
    KC_UNROLL for (int j = 0; j < 2; ++j) store_row(tail[j], old[j], n);
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
    kc_store2(gb + 2 * t, gate_open(a, h, now));
  }
}

/* Its values and gates, as the call wants; gates are made while the first rows come. */
KC_INLINE void value_head(const stk_gdn_pre_args *a, int h, int t0, int t1, int n_taps, float *slots) {
  const int64_t dim = V_DIM, c0 = 2 * (int64_t)a->k_heads * a->k_dim + h * dim;
  const int n = V_DIM / 32, group = n % 4 == 0 ? 4 : 1, n_tokens = a->kinds & STK_GDN_VALUES ? t1 - t0 : 0;
  float *vc = a->vc + (h * (int64_t)a->n_tokens + t0) * dim;
  feed f;
  conv v;
  feed_begin(&f, a, c0, t0, t0 + n_tokens, slots);
  for (int c = 0; c < CHUNKS; ++c) {
    feed_ask(&f, VALUE_CHUNK, n);
    kc_copy_commit();
  }
  if (a->kinds & STK_GDN_GATES) gates(a, h, t0, t1);
  if (n_tokens) {
    conv_begin(&v, a, c0, n, n_taps, group, t0);
    if (t0 == 0) conv_advance(&v, a->n_tokens, n, n_taps, group);
  }
  for (int at = 0; at < n_tokens; at += VALUE_CHUNK) {
    float x[VALUE_CHUNK][ELEMS_MAX], raw[VALUE_CHUNK * ELEMS_MAX], y[VALUE_CHUNK * ELEMS_MAX];
    await_chunk();
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j) kc_load_elements(feed_row(&f, j, n), x[j], n, group);
    kc_sync_warp();
    feed_ask(&f, VALUE_CHUNK, n);
    kc_copy_commit();
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j) conv_token(&v, x[j], n, n_taps, raw + j * n);
    kc_silu(raw, y, VALUE_CHUNK * n);
    KC_UNROLL for (int j = 0; j < VALUE_CHUNK; ++j)
      if (at + j < n_tokens) kc_store_elements(vc + j * dim, y + j * n, n, group);
    vc += VALUE_CHUNK * dim;
  }
}

KC_KERNEL(gdn_pre_cuda, stk_gdn_pre_args, 32 * WARPS, GDN_PRE_BLOCKS) {
  const int T = a->n_tokens, odd = a->pos0 & 1, n_taps = TAPS;
  const gdn_pre_layout l = gdn_pre_layout_of(a, K_HEADS, V_HEADS, n_taps, kc_processors);
  const int unit = kc_block * WARPS + kc_warp, value = unit - gdn_pre_key_warps(&l, K_HEADS);
  KC_SHARED(float, shared);
  float *slots = shared + kc_warp * gdn_pre_warp_floats(K_DIM, V_DIM);
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
