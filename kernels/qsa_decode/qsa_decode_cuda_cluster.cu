/* isa: cuda
 * qsa_decode -- a split is a cluster of eight blocks. Each scores one of its tiles for
 * all heads and sends the scores to the seven others; then each weighs all tiles and
 * sums an eighth of the dimensions, whose values were on their way meanwhile. So every
 * byte of the cache goes to one block.
 *
 * Grid: blocks of splits of tokens, and groups of heads. */
#include "qsa_decode/qsa_decode_split.h"

#ifndef HEADS
#define HEADS qsa_cluster_heads(a)
#endif
#define HALF (HEADS / 2) /* heads that a warp scores: at most PASS */
#define DIMS (DIM / 256) /* of a lane */

enum { BLOCKS = QSA_DECODE_WARPS, QUARTER = TILE / 4, PASSES = 2, DIMS_MAX = 2, ROWS = 8 };

/* The block's slice of the values. */
typedef struct slice {
  unsigned char *rows; /* [256], without scales */
  float *scale;        /* [256] */
  int rank;
} slice;

KC_INLINE void copy_slice(const stk_qsa_attn_args *a, const split *s, const slice *v) {
  const int bytes = qsa_cluster_slice_bytes(DIM, KIND), chunks = bytes / 16, at = kc_thread;
  const int64_t rows = (int64_t)a->kv_heads * STK_CACHE_PAGE;
  const int64_t data = rows * stk_row_data_bytes(DIM, KIND) + v->rank * bytes;
  const int64_t scale = rows * stk_row_scale_bytes(DIM, KIND) + v->rank * (DIM / BLOCKS) / STK_Q8_GROUP * 2;
  for (int i = at; i < s->n_cells * chunks; i += THREADS)
    kc_copy16(v->rows + 16 * i, s->place[i / chunks].data + data + i % chunks * 16);
  kc_copy_commit();
  if (KIND == STK_KV_Q8 && at < s->n_cells)
    v->scale[at] = kc_from_half(*(const uint16_t *)(const void *)(s->place[at].scales + scale));
}

/* Half the heads and a quarter of the block's tile a warp; the others are told once
 * all have begun. */
KC_INLINE void score_part(const stk_qsa_attn_args *a, const split *s, int tile) {
  const int first = kc_warp / 4 * HALF, cell = kc_warp % 4 * QUARTER, n = cells_of_tile(s, tile);
  const int n_heads = HALF, index = sum_index(BATCH * HALF);
  const qsa_cuda_place *place = s->place + tile * TILE;
  float *to = s->score + (first + index % n_heads) * STK_ATTN_SPLIT + tile * TILE + cell + index / n_heads;
  float q[PASS][ELEMS_MAX], k[2][BATCH][ELEMS_MAX], score[2] = {0.0f, 0.0f};
  if (cell < n) {
    load_keys(a, place, cell, n, k[0]);
    load_keys(a, place, cell + BATCH, n, k[1]);
    load_queries(a, s, first, n_heads, q);
    KC_UNROLL for (int i = 0; i < 2; ++i) score[i] = score_keys(a, q, k[i], n_heads);
  }
  kc_cluster_wait();
  if (cell < n)
    for (int rank = 0; rank < BLOCKS; ++rank)
      KC_UNROLL for (int i = 0; i < 2; ++i) kc_cluster_store(to + i * BATCH, rank, score[i]);
  kc_cluster_arrive();
  kc_cluster_wait();
}

/* Heads of pass i over the heads, and the first of them, which is even. */
KC_INLINE int pass_heads(int heads, int i) { return heads - i * PASS < PASS ? heads - i * PASS : PASS; }

/* A warp's tile, for all heads. */
KC_INLINE void weigh_tile(const stk_qsa_attn_args *a, const split *s, int tile) {
  const int n = cells_of_tile(s, tile);
  float score[PASSES][PASS];
  (void)a;
  KC_UNROLL for (int i = 0; i < PASSES; ++i)
    if (n > 0 && i * PASS < HEADS) find_largest(s, i * PASS, pass_heads(HEADS, i), tile, n, score[i]);
  kc_sync();
  KC_UNROLL for (int i = 0; i < PASSES; ++i)
    if (n > 0 && i * PASS < HEADS) weigh(s, i * PASS, pass_heads(HEADS, i), tile, n, score[i]);
}

/* A warp's two heads. */
typedef struct sums {
  float acc[2][DIMS_MAX];
} sums;

/* Adds n cells from the even number `cell` on, all in one tile; n is a constant. */
KC_INLINE void add_cells(const stk_qsa_attn_args *a, const slice *v, const float *weights, int cell, int n, sums *u) {
  const int bytes = qsa_cluster_slice_bytes(DIM, KIND);
  float e[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  (void)a;
  KC_UNROLL for (int c = 0; c < n; ++c) {
    const unsigned char *row = v->rows + (cell + c) * bytes;
    const float scale = KIND == STK_KV_Q8 ? v->scale[cell + c] : 0.0f;
    if (c % 2 == 0) {
      const kc4 four = kc_load4(weights + 2 * (cell + c));
      KC_UNROLL for (int i = 0; i < 4; ++i) e[i] = four.v[i];
    }
    KC_UNROLL for (int j = 0; j < DIMS; ++j) {
      unsigned word[4];
      load_words(row, KIND, 32 * j + kc_lane, 1, word);
      const float x = number(word, 0, KIND, scale);
      KC_UNROLL for (int i = 0; i < 2; ++i) u->acc[i][j] = ks_fma(e[c % 2 * 2 + i], x, u->acc[i][j]);
    }
  }
}

KC_INLINE void sum_slice(const stk_qsa_attn_args *a, const split *s, const slice *v, int head) {
  const float *weights = s->weights + head * STK_ATTN_SPLIT;
  const int full = s->n_cells / ROWS * ROWS;
  sums u;
  KC_UNROLL for (int i = 0; i < 2; ++i)
    KC_UNROLL for (int j = 0; j < DIMS; ++j) u.acc[i][j] = 0.0f;
  for (int cell = 0; cell < s->n_cells; cell += cell < full ? ROWS : 2) {
    if (cell && cell % TILE == 0)
      KC_UNROLL for (int i = 0; i < 2; ++i)
        KC_UNROLL for (int j = 0; j < DIMS; ++j)
          u.acc[i][j] = u.acc[i][j] * s->factor[(head + i) * TILES + cell / TILE];
    if (cell < full) add_cells(a, v, weights, cell, ROWS, &u);
    else if (cell + 1 < s->n_cells) add_cells(a, v, weights, cell, 2, &u);
    else add_cells(a, v, weights, cell, 1, &u);
  }
  KC_UNROLL for (int i = 0; i < 2; ++i)
    if (head + i < s->n_heads)
      KC_UNROLL for (int j = 0; j < DIMS; ++j)
        stk_qsa_partial(a, s->row + head + i, s->number)[v->rank * (DIM / BLOCKS) + 32 * j + kc_lane] = u.acc[i][j];
}

KC_CLUSTER_KERNEL(qsa_decode_cuda_cluster, stk_qsa_decode_args, THREADS, 1, QSA_DECODE_WARPS) {
  const int64_t splits = stk_qsa_splits_max(a->budget, a->ratio), index = kc_block / BLOCKS;
  const int groups = qsa_decode_groups(a, HEADS);
  split s;
  slice v;
  KC_SHARED(float, shared);
  set_memory(&s, shared, HEADS);
  v.scale = shared + qsa_decode_shared_bytes(HEADS) / (int)sizeof(float);
  v.rows = (unsigned char *)(v.scale + STK_ATTN_SPLIT);
  v.rank = kc_block % BLOCKS;
  if (!set_split(a, &s, index / splits, (int)(index % splits), kc_block_y / groups, kc_block_y % groups * HEADS, HEADS))
    return;
  kc_cluster_arrive();
  find_cell(a, &s, kc_thread);
  kc_sync();
  copy_slice(a, &s, &v);
  score_part(a, &s, v.rank);
  weigh_tile(a, &s, kc_warp);
  kc_copy_wait(0);
  kc_sync();
  if (kc_warp < HEADS / 2) sum_slice(a, &s, &v, 2 * kc_warp);
  if (v.rank == 0 && kc_thread < s.n_heads) sum_weights(a, &s, kc_thread);
}
