/* isa: cuda
 * qsa_decode -- a block is a split for a few heads of a kv head, its eight warps the
 * eight tiles. Nothing waits for the tile before it: each warp scores its own cells,
 * lane l making chain l of fma32; the tiles' maxima meet in shared memory and every
 * warp follows the running one by itself; then a thread owns a dimension and goes
 * through all cells. Keys and values come from memory once a block, straight to the
 * registers that use them, a few rows ahead.
 *
 * Grid: splits of tokens, and groups of heads. */
#include "qsa_attn/qsa_attn_lanes.h"
#include "qsa_decode/qsa_decode_cuda.h"

#ifdef QSA_DIM
#define DIM QSA_DIM
#define HEADS QSA_HEADS
#define KIND QSA_KIND
#define ELEMS_MAX (QSA_DIM / 32)
#define HEADS_MAX QSA_HEADS
#else
#define DIM a->head_dim
#define HEADS qsa_decode_heads(a)
#define KIND a->kv_kind
#define ELEMS_MAX 16
#define HEADS_MAX 6
#endif

enum {
  TILE = STK_ATTN_TILE,
  TILES = QSA_DECODE_WARPS,
  THREADS = 32 * QSA_DECODE_WARPS,
  BATCH = 4, /* keys that are asked for together */
  ROWS = 16  /* the same of values */
};

/* A block's split: places from .. from + n_cells - 1 of the list. */
typedef struct split {
  const int32_t *ids; /* NULL: all cells */
  int64_t row;        /* token and first head, of the rows of q and partial */
  int kv, number, n_heads, from, n_cells;
  qsa_cuda_place *place; /* [256] */
  float *weights;        /* [256][QSA_DECODE_WEIGHTS] */
  float *score;          /* [HEADS][256] */
  float *largest, *factor, *sum; /* [HEADS][TILES] */
} split;

KC_INLINE int cells_of_tile(const split *s, int tile) {
  const int left = s->n_cells - tile * TILE;
  return left < 0 ? 0 : left < TILE ? left : TILE;
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Elements l, l + 32, ... of BATCH keys; those beyond the last are the last. */
KC_INLINE void load_keys(const stk_qsa_attn_args *a, const qsa_cuda_place *place, int cell, int n,
                         float k[BATCH][ELEMS_MAX]) {
  KC_UNROLL for (int c = 0; c < BATCH; ++c) {
    const qsa_cuda_place p = place[cell + c < n ? cell + c : n - 1];
    KC_UNROLL for (int s = 0; s < DIM / 32; ++s) load_numbers(p.data, p.scales, KIND, 32 * s + kc_lane, 1, &k[c][s]);
  }
}

KC_INLINE void score_keys(const stk_qsa_attn_args *a, const split *s, float q[HEADS_MAX][ELEMS_MAX],
                          float k[BATCH][ELEMS_MAX], int cell) {
  const int n_heads = HEADS, index = sum_index(BATCH * n_heads);
  float sum[BATCH * HEADS_MAX];
  (void)a;
  KC_UNROLL for (int c = 0; c < BATCH; ++c)
    KC_UNROLL for (int h = 0; h < n_heads; ++h) {
      float chain = q[h][0] * k[c][0];
      KC_UNROLL for (int e = 1; e < DIM / 32; ++e) chain = ks_fma(q[h][e], k[c][e], chain);
      sum[c * n_heads + h] = chain;
    }
  const float mine = sum_each(sum, BATCH * n_heads) * kc_inverse_sqrt(DIM);
  s->score[index % n_heads * STK_ATTN_SPLIT + cell + index / n_heads] = mine;
}

/* A warp's tile. */
KC_INLINE void score_tile(const stk_qsa_attn_args *a, const split *s, int tile, int n) {
  const qsa_cuda_place *place = s->place + tile * TILE;
  float q[HEADS_MAX][ELEMS_MAX], k[BATCH][ELEMS_MAX], next[BATCH][ELEMS_MAX];
  KC_UNROLL for (int h = 0; h < HEADS; ++h)
    KC_UNROLL for (int e = 0; e < DIM / 32; ++e)
      q[h][e] = a->q[(s->row + (h < s->n_heads ? h : 0)) * DIM + 32 * e + kc_lane];
  load_keys(a, place, 0, n, k);
  for (int cell = 0; cell < n; cell += BATCH) {
    load_keys(a, place, cell + BATCH, n, next);
    score_keys(a, s, q, k, tile * TILE + cell);
    KC_UNROLL for (int c = 0; c < BATCH; ++c)
      KC_UNROLL for (int e = 0; e < DIM / 32; ++e) k[c][e] = next[c][e];
  }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The lane's scores of a warp's tile, and the tile's maxima. */
KC_INLINE void find_largest(const stk_qsa_attn_args *a, const split *s, int tile, int n, float score[HEADS_MAX]) {
  const int cell = tile * TILE + (kc_lane < n ? kc_lane : 0), n_heads = HEADS;
  float m[HEADS_MAX];
  (void)a;
  KC_UNROLL for (int h = 0; h < n_heads; ++h) m[h] = score[h] = s->score[h * STK_ATTN_SPLIT + cell];
  KC_UNROLL for (int half = 16; half; half /= 2)
    KC_UNROLL for (int h = 0; h < n_heads; ++h) m[h] = larger(m[h], kc_shuffle_xor(m[h], half));
  /* Among equals the lowest lane's decides, which only lane 0 can know. */
  KC_UNROLL for (int h = 0; h < n_heads; ++h)
    if (kc_lane == 0) s->largest[h * TILES + tile] = m[h];
}

/* The running maxima before and at a tile. */
KC_INLINE void follow_largest(const float *largest, int tile, float *before, float *m) {
  *before = *m = largest[0];
  for (int i = 1; i <= tile; ++i) {
    *before = *m;
    *m = larger(*m, largest[i]);
  }
}

KC_INLINE void weigh(const stk_qsa_attn_args *a, const split *s, int tile, int n, const float score[HEADS_MAX]) {
  const int n_heads = HEADS;
  float e[QSA_DECODE_WEIGHTS], f = 0.0f;
  (void)a;
  KC_UNROLL for (int h = 0; h < QSA_DECODE_WEIGHTS; ++h) e[h] = 0.0f;
  KC_UNROLL for (int h = 0; h < n_heads; ++h) {
    float before, m;
    follow_largest(s->largest + h * TILES, tile, &before, &m);
    e[h] = ks_exp(score[h] - m);
    if (kc_lane >= n) e[h] = 0.0f;
    if (kc_lane == h) f = before - m;
  }
  KC_UNROLL for (int i = 0; i < QSA_DECODE_WEIGHTS; i += 4) {
    const kc4 four = {{e[i], e[i + 1], e[i + 2], e[i + 3]}};
    if (i < n_heads) kc_store4(s->weights + (tile * TILE + kc_lane) * QSA_DECODE_WEIGHTS + i, four);
  }
  kc_lanes_sums(e, n_heads);
  f = ks_exp(f);
  KC_UNROLL for (int h = 0; h < n_heads; ++h)
    if (kc_lane == h) {
      s->factor[h * TILES + tile] = f;
      s->sum[h * TILES + tile] = e[h];
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Dimension d of ROWS values; those beyond the last are the last. */
KC_INLINE void load_values(const stk_qsa_attn_args *a, const split *s, int cell, int d, float v[ROWS]) {
  const int64_t rows = (int64_t)a->kv_heads * STK_CACHE_PAGE;
  const int64_t data = rows * qsa_cuda_data_bytes(DIM, KIND), scales = rows * qsa_cuda_scale_bytes(DIM, KIND);
  KC_UNROLL for (int c = 0; c < ROWS; ++c) {
    const qsa_cuda_place p = s->place[cell + c < s->n_cells ? cell + c : s->n_cells - 1];
    load_numbers(p.data + data, KIND == STK_KV_Q8 ? p.scales + scales : NULL, KIND, d, 1, &v[c]);
  }
}

KC_INLINE void add_values(const stk_qsa_attn_args *a, const split *s, int cell, const float v[ROWS],
                          float acc[HEADS_MAX]) {
  const int n_heads = HEADS;
  (void)a;
  KC_UNROLL for (int c = 0; c < ROWS; ++c) {
    float e[QSA_DECODE_WEIGHTS];
    if (cell + c >= s->n_cells) break;
    KC_UNROLL for (int i = 0; i < n_heads; i += 4) {
      const kc4 four = kc_load4(s->weights + (cell + c) * QSA_DECODE_WEIGHTS + i);
      KC_UNROLL for (int j = 0; j < 4; ++j) e[i + j] = four.v[j];
    }
    KC_UNROLL for (int h = 0; h < n_heads; ++h) acc[h] = ks_fma(e[h], v[c], acc[h]);
  }
}

/* Dimension d of all heads, through all cells. */
KC_INLINE void sum_values(const stk_qsa_attn_args *a, const split *s, int d) {
  const int n_heads = HEADS;
  float acc[HEADS_MAX], v[ROWS], next[ROWS];
  load_values(a, s, 0, d, v);
  KC_UNROLL for (int h = 0; h < n_heads; ++h) acc[h] = 0.0f;
  for (int cell = 0; cell < s->n_cells; cell += ROWS) {
    load_values(a, s, cell + ROWS, d, next);
    if (cell && cell % TILE == 0)
      KC_UNROLL for (int h = 0; h < n_heads; ++h) acc[h] = acc[h] * s->factor[h * TILES + cell / TILE];
    add_values(a, s, cell, v, acc);
    KC_UNROLL for (int c = 0; c < ROWS; ++c) v[c] = next[c];
  }
  KC_UNROLL for (int h = 0; h < HEADS_MAX; ++h)
    if (h < s->n_heads) stk_qsa_partial(a, s->row + h, s->number)[d] = acc[h];
}

/* A thread a head: its maximum and its sum. */
KC_INLINE void sum_weights(const stk_qsa_attn_args *a, const split *s, int h) {
  const int n_tiles = (s->n_cells + TILE - 1) / TILE;
  float *out = stk_qsa_partial(a, s->row + h, s->number) + DIM;
  float before, m, l = s->sum[h * TILES];
  follow_largest(s->largest + h * TILES, n_tiles - 1, &before, &m);
  for (int i = 1; i < n_tiles; ++i) l = ks_fma(l, s->factor[h * TILES + i], s->sum[h * TILES + i]);
  out[0] = m;
  out[1] = l;
}

/* ---- a block ------------------------------------------------------------------------------------ */

/* False if the list has no such split. */
KC_INLINE int set_split(const stk_qsa_attn_args *a, split *s) {
  const int64_t splits = stk_qsa_splits_max(a->budget, a->ratio), t = kc_block / splits;
  const int per_kv = a->q_heads / a->kv_heads, groups = qsa_decode_groups(a, HEADS);
  const int first = kc_block_y % groups * HEADS;
  const int64_t n = stk_qsa_n_cells(a, t);
  s->number = (int)(kc_block % splits);
  s->from = s->number * STK_ATTN_SPLIT;
  s->n_cells = (int)(n - s->from < STK_ATTN_SPLIT ? n - s->from : STK_ATTN_SPLIT);
  s->ids = stk_qsa_attn_is_dense(a, t) ? NULL : a->ids + t * a->ids_stride;
  s->kv = kc_block_y / groups;
  s->row = t * a->q_heads + s->kv * per_kv + first;
  s->n_heads = per_kv - first < HEADS ? per_kv - first : HEADS;
  return s->n_cells > 0;
}

KC_KERNEL(qsa_decode_cuda, stk_qsa_decode_args, THREADS, 1) {
  const int tile = kc_warp, at = kc_thread;
  float score[HEADS_MAX];
  split s;
  KC_SHARED(float, shared);
  s.weights = shared;
  s.place = (qsa_cuda_place *)(void *)(s.weights + STK_ATTN_SPLIT * QSA_DECODE_WEIGHTS);
  s.score = (float *)(void *)(s.place + STK_ATTN_SPLIT);
  s.largest = s.score + HEADS * STK_ATTN_SPLIT;
  s.factor = s.largest + HEADS * TILES;
  s.sum = s.factor + HEADS * TILES;
  if (!set_split(a, &s)) return;
  const int n = cells_of_tile(&s, tile);
  if (at < s.n_cells) s.place[at] = place_of(a, s.kv, s.ids ? s.ids[s.from + at] : s.from + at, DIM, KIND);
  kc_sync_warp();
  if (n > 0) score_tile(a, &s, tile, n);
  kc_sync_warp();
  if (n > 0) find_largest(a, &s, tile, n, score);
  kc_sync();
  if (n > 0) weigh(a, &s, tile, n, score);
  kc_sync();
  for (int d = kc_thread; d < DIM; d += THREADS) sum_values(a, &s, d);
  if (kc_thread < s.n_heads) sum_weights(a, &s, kc_thread);
}
