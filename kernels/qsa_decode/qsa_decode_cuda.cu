/* isa: cuda
 * qsa_decode -- a block is a split for a few heads of a kv head, its eight warps the
 * eight tiles. A warp scores its cells, lane l making chain l of fma32, and weighs
 * them; then a thread owns a dimension and goes through all cells. Keys and values
 * come from memory once a block, straight to the registers that use them, a few rows
 * ahead.
 *
 * Grid: splits of tokens, and groups of heads. */
#include "qsa_decode/qsa_decode_split.h"

#ifndef HEADS
#define HEADS qsa_decode_heads(a)
#endif

enum { ROWS = 16 /* values that are asked for together */ };

/* A warp's tile. */
KC_INLINE void score_tile(const stk_qsa_attn_args *a, const split *s, int tile, int n) {
  const qsa_cuda_place *place = s->place + tile * TILE;
  const int n_heads = HEADS, index = sum_index(BATCH * HEADS);
  float *to = s->score + index % n_heads * STK_ATTN_SPLIT + tile * TILE + index / n_heads;
  float q[PASS][ELEMS_MAX], k[BATCH][ELEMS_MAX], next[BATCH][ELEMS_MAX];
  load_queries(a, s, 0, n_heads, q);
  load_keys(a, place, 0, n, k);
  for (int cell = 0; cell < n; cell += BATCH) {
    load_keys(a, place, cell + BATCH, n, next);
    to[cell] = score_keys(a, q, k, n_heads);
    KC_UNROLL for (int c = 0; c < BATCH; ++c)
      KC_UNROLL for (int e = 0; e < DIM / 32; ++e) k[c][e] = next[c][e];
  }
}

/* Dimension d of ROWS values; those beyond the last are the last. */
KC_INLINE void load_values(const stk_qsa_attn_args *a, const split *s, int cell, int d, float v[ROWS]) {
  const int64_t rows = (int64_t)a->kv_heads * STK_CACHE_PAGE;
  const int64_t data = rows * qsa_cuda_data_bytes(DIM, KIND), scales = rows * qsa_cuda_scale_bytes(DIM, KIND);
  KC_UNROLL for (int c = 0; c < ROWS; ++c) {
    const qsa_cuda_place p = s->place[cell + c < s->n_cells ? cell + c : s->n_cells - 1];
    load_numbers(p.data + data, KIND == STK_KV_Q8 ? p.scales + scales : NULL, KIND, d, 1, &v[c]);
  }
}

/* ROWS values, two cells at a time. */
KC_INLINE void add_values(const stk_qsa_attn_args *a, const split *s, int cell, const float v[ROWS], float acc[PASS]) {
  const int n_heads = HEADS;
  (void)a;
  KC_UNROLL for (int c = 0; c < ROWS; c += 2) {
    float e[2][PASS];
    if (cell + c >= s->n_cells) break;
    KC_UNROLL for (int h = 0; h < n_heads; h += 2) {
      const kc4 four = kc_load4(s->weights + h * STK_ATTN_SPLIT + 2 * (cell + c));
      KC_UNROLL for (int i = 0; i < 4; ++i) e[i / 2][h + i % 2] = four.v[i];
    }
    KC_UNROLL for (int h = 0; h < n_heads; ++h) acc[h] = ks_fma(e[0][h], v[c], acc[h]);
    if (cell + c + 1 >= s->n_cells) break;
    KC_UNROLL for (int h = 0; h < n_heads; ++h) acc[h] = ks_fma(e[1][h], v[c + 1], acc[h]);
  }
}

/* Dimension d of all heads, through all cells. */
KC_INLINE void sum_values(const stk_qsa_attn_args *a, const split *s, int d) {
  const int n_heads = HEADS;
  float acc[PASS], v[ROWS], next[ROWS];
  load_values(a, s, 0, d, v);
  KC_UNROLL for (int h = 0; h < n_heads; ++h) acc[h] = 0.0f;
  for (int cell = 0; cell < s->n_cells; cell += ROWS) {
    load_values(a, s, cell + ROWS, d, next);
    if (cell && cell % TILE == 0)
      KC_UNROLL for (int h = 0; h < n_heads; ++h) acc[h] = acc[h] * s->factor[h * TILES + cell / TILE];
    add_values(a, s, cell, v, acc);
    KC_UNROLL for (int c = 0; c < ROWS; ++c) v[c] = next[c];
  }
  KC_UNROLL for (int h = 0; h < n_heads; ++h)
    if (h < s->n_heads) stk_qsa_partial(a, s->row + h, s->number)[d] = acc[h];
}

KC_KERNEL(qsa_decode_cuda, stk_qsa_decode_args, THREADS, 1) {
  const int64_t splits = stk_qsa_splits_max(a->budget, a->ratio);
  const int groups = qsa_decode_groups(a, HEADS), tile = kc_warp;
  float score[PASS];
  split s;
  KC_SHARED(float, shared);
  set_memory(&s, shared, HEADS);
  if (!set_split(a, &s, kc_block / splits, (int)(kc_block % splits), kc_block_y / groups, kc_block_y % groups * HEADS,
                 HEADS))
    return;
  const int n = cells_of_tile(&s, tile);
  find_cell(a, &s, kc_thread);
  kc_sync_warp();
  if (n > 0) score_tile(a, &s, tile, n);
  kc_sync_warp();
  if (n > 0) find_largest(&s, 0, HEADS, tile, n, score);
  kc_sync();
  if (n > 0) weigh(&s, 0, HEADS, tile, n, score);
  kc_sync();
  for (int d = kc_thread; d < DIM; d += THREADS) sum_values(a, &s, d);
  if (kc_thread < s.n_heads) sum_weights(a, &s, kc_thread);
}
