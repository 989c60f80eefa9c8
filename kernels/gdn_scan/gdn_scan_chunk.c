/* isa: scalar
 * gdn_scan, chunk: the chunked (WY) form, class fast. What it computes is gdn_scan.h's;
 * how is free, and this is the reference of the form for machines with matrix units.
 *
 * A chunk is up to 64 tokens from the window's start on, S the state before it. With
 * r[t][s] = a[s+1] ... a[t] and g[t] = a[0] ... a[t] (products, so an a of 0 is no
 * special case; none exceeds 1 and none is divided by),
 *
 *   M[t][s] = r[t][s] (k_t . k_s)  for s < t     P[t][s] = r[t][s] (q_t . k_s)  for s <= t
 *   delta_t = beta_t (v_t - g[t] S^T k_t - sum_{s<t} M[t][s] delta_s)
 *   o_t     = g[t] S^T q_t + sum_{s<=t} P[t][s] delta_s
 *   S       = g[last] S + sum_s k_s (r[last][s] delta_s)^T
 *
 * which are products of matrices but for the solve of a unit triangle. What waits in
 * the stored state is added to it first, the dots of gdn_pre are not read, and nothing
 * waits afterwards, so a window of any kernel may follow at any position.
 *
 * Rounding  f32, each product and each sum rounded. A sum is one chain in ascending
 *           order; a dot of keys and queries is 16, over i mod 16, added in ascending
 *           order. Later tokens take part in no sum, not even times zero, so what a
 *           NaN reaches does not differ from the recurrence.
 * Threads   parts cut value heads: all columns of a head share M and P, and the heads
 *           of a part that share a key share its dots.
 * Source    Yang, Wang, Zhang, Shen, Kim, arXiv:2406.06484 (the form), and
 *           arXiv:2412.06464 (with decay). */
#include "common/k_vrows.h"
#include "gdn_scan/gdn_scan.h"

enum { CHUNK = 64, ROWS = 4, COLS = STK_GDN_TILE };

#define INLINE static inline __attribute__((always_inline))

/* A chunk of a key head: its rows, in place or widened, and the dots of its tokens. */
typedef struct key_chunk {
  const float *k, *q; /* [n][dk] */
  int64_t n, dk;
  float wide_k[CHUNK * STK_GDN_SCAN_K_DIM_MAX], wide_q[CHUNK * STK_GDN_SCAN_K_DIM_MAX];
  float kk[CHUNK][CHUNK], qk[CHUNK][CHUNK]; /* [t][s], s <= t */
} key_chunk;

/* A chunk of a value head. */
typedef struct value_chunk {
  const key_chunk *key;
  const float *gb;
  const void *v;
  void *o;
  int64_t first, v_stride; /* element of v and o where the chunk begins */
  int32_t type;
  float g[CHUNK], to_end[CHUNK]; /* to_end[s] is r[last][s] */
  float m[CHUNK][CHUNK], p[CHUNK][CHUNK];
} value_chunk;

static float dot(const float *x, const float *y, int64_t n) {
  float lane[16] = {0}, sum = 0.0f;
  for (int64_t i = 0; i < n; i += 16)
    for (int l = 0; l < 16; ++l) lane[l] += x[i + l] * y[i + l];
  for (int l = 0; l < 16; ++l) sum += lane[l];
  return sum;
}

static void start_key_chunk(key_chunk *c) {
  for (int64_t t = 0; t < c->n; ++t)
    for (int64_t s = 0; s <= t; ++s) {
      c->kk[t][s] = dot(c->k + t * c->dk, c->k + s * c->dk, c->dk);
      c->qk[t][s] = dot(c->q + t * c->dk, c->k + s * c->dk, c->dk);
    }
}

static void start_value_chunk(value_chunk *c) {
  const key_chunk *key = c->key;
  float *r = c->to_end, g = 1.0f;
  for (int64_t t = 0; t < key->n; ++t) {
    const float a = c->gb[2 * t];
    c->g[t] = g *= a;
    for (int64_t s = 0; s < t; ++s) {
      r[s] *= a;
      c->m[t][s] = r[s] * key->kk[t][s];
      c->p[t][s] = r[s] * key->qk[t][s];
    }
    r[t] = 1.0f;
    c->p[t][t] = key->qk[t][t];
  }
}

/* sum[r] += sum over i < n of w[r * row + i * step] * x[i]; rows is a constant where
 * this is inlined. */
INLINE void multiply(int rows, const float *w, int64_t row, int64_t step, int64_t n,
                     const float x[][COLS], float sum[][COLS]) {
  for (int64_t i = 0; i < n; ++i)
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < COLS; ++j)
        sum[r][j] += w[r * row + i * step] * x[i][j];
}

/* Tokens t0 .. t0 + rows - 1 in 16 columns: what they add, and their outputs. */
INLINE void solve(const value_chunk *c, int rows, int64_t t0, int64_t column,
                  const float state[][COLS], float delta[][COLS]) {
  const int64_t dk = c->key->dk;
  float sk[ROWS][COLS] = {{0}}, sq[ROWS][COLS] = {{0}};
  float md[ROWS][COLS] = {{0}}, pd[ROWS][COLS] = {{0}};
  multiply(rows, c->key->k + t0 * dk, dk, 1, dk, state, sk);
  multiply(rows, c->key->q + t0 * dk, dk, 1, dk, state, sq);
  multiply(rows, c->m[t0], CHUNK, 1, t0, delta, md);
  multiply(rows, c->p[t0], CHUNK, 1, t0, delta, pd);
  for (int r = 0; r < rows; ++r) {
    const int64_t t = t0 + r;
    const int64_t cell = c->first + t * c->v_stride + column;
    const float beta = c->gb[2 * t + 1];
    multiply(1, c->m[t] + t0, 0, 1, r, delta + t0, md + r);
    for (int j = 0; j < COLS; ++j)
      delta[t][j] = beta * (k_rows_get(c->v, cell + j, c->type) - (c->g[t] * sk[r][j] + md[r][j]));
    multiply(1, c->p[t] + t0, 0, 1, r + 1, delta + t0, pd + r);
    for (int j = 0; j < COLS; ++j) k_rows_put(c->o, cell + j, c->type, c->g[t] * sq[r][j] + pd[r][j]);
  }
}

/* A chunk of a value head, 16 columns of it. */
static void run_tile(const value_chunk *c, int64_t column, float state[][COLS]) {
  const int64_t n = c->key->n, dk = c->key->dk;
  float delta[CHUNK][COLS];
  int64_t t = 0;
  for (; t + ROWS <= n; t += ROWS) solve(c, ROWS, t, column, state, delta);
  for (; t < n; ++t) solve(c, 1, t, column, state, delta);
  for (t = 0; t < n; ++t)
    for (int j = 0; j < COLS; ++j) delta[t][j] *= c->to_end[t];
  for (int64_t i = 0; i < dk; i += ROWS) {
    float sum[ROWS][COLS] = {{0}};
    multiply(ROWS, c->key->k + i, 1, dk, n, delta, sum);
    for (int r = 0; r < ROWS; ++r)
      for (int j = 0; j < COLS; ++j)
        state[i + r][j] = c->g[n - 1] * state[i + r][j] + sum[r][j];
  }
}

/* Value heads begin .. end - 1, which share a key head. */
static void run_heads(const stk_gdn_scan_args *a, int64_t begin, int64_t end) {
  const int64_t dk = a->k_dim, dv = a->v_dim, T = a->n_tokens, tiles = dv / COLS;
  const int64_t tile_floats = (dk + STK_GDN_TILE_ROWS) * COLS;
  const int64_t kh = begin / (a->v_heads / a->k_heads);
  key_chunk key;
  value_chunk value = {.key = &key, .v = a->vc, .o = a->o, .v_stride = dv, .type = a->rows};
  key.dk = dk;
  const float *before = kv_rows_in_f32(a->kn, kh * (T + 2) * dk, a->rows, 2 * dk, key.wide_k);
  for (int64_t tile = begin * tiles; tile < end * tiles; ++tile)
    stk_gdn_settle_tile(a->state + tile * tile_floats, before, before + dk, a->pos0, a->k_dim);
  for (int64_t t = 0; t < T; t += CHUNK) {
    key.n = T - t < CHUNK ? T - t : CHUNK;
    key.k = kv_rows_in_f32(a->kn, (kh * (T + 2) + 2 + t) * dk, a->rows, key.n * dk, key.wide_k);
    key.q = kv_rows_in_f32(a->qn, (kh * T + t) * dk, a->rows, key.n * dk, key.wide_q);
    start_key_chunk(&key);
    for (int64_t h = begin; h < end; ++h) {
      value.first = (h * T + t) * dv;
      value.gb = a->gb + (h * T + t) * 2;
      start_value_chunk(&value);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        float *state = a->state + (h * tiles + tile) * tile_floats;
        run_tile(&value, tile * COLS, (float(*)[COLS])state);
      }
    }
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_scan_args *a = args;
  const int64_t group = a->v_heads / a->k_heads;
  int64_t begin, end;
  stk_slice(a->v_heads, 1, part, n_parts, &begin, &end);
  while (begin < end) {
    int64_t stop = (begin / group + 1) * group;
    run_heads(a, begin, stop < end ? stop : end);
    begin = stop;
  }
}

STK_KERNEL_TAGGED(gdn_scan, chunk, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_FAST, run);
