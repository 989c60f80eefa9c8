/* isa: cuda
 * qsa_decode -- a block is a split for a few heads of a kv head, its eight warps the
 * eight tiles. A warp scores its cells, lane l making chain l of fma32, and weighs
 * them; then a thread owns a dimension or two and goes through all cells. Keys and values
 * come from memory once a block, straight to the registers that use them, a few rows
 * ahead.
 *
 * Grid: splits of tokens, and groups of heads. */
#include "qsa_decode/qsa_decode_split.h"

#ifndef HEADS
#define HEADS qsa_decode_heads(a)
#endif

/* Neighbouring dimensions of a thread. */
#define WIDE (DIM > 128 ? 2 : 1)

enum { ROWS = 16 /* values that are asked for together */, WIDE_MAX = 2 };

/* A warp's tile: while BATCH keys are scored the next ones are on their way. */
KC_INLINE void score_tile(const stk_qsa_attn_args *a, const split *s, int tile, int n) {
  const qsa_cuda_place *place = s->place + tile * TILE;
  const int n_heads = HEADS, index = sum_index(BATCH * HEADS);
  float *to = s->score + index % n_heads * STK_ATTN_SPLIT + tile * TILE + index / n_heads;
  float q[PASS][ELEMS_MAX], even[BATCH][ELEMS_MAX], odd[BATCH][ELEMS_MAX];
  load_queries(a, s, 0, n_heads, q);
  load_keys(a, place, 0, n, even);
  for (int cell = 0; cell < n; cell += 2 * BATCH) {
    load_keys(a, place, cell + BATCH, n, odd);
    to[cell] = score_keys(a, q, even, n_heads);
    load_keys(a, place, cell + 2 * BATCH, n, even);
    to[cell + BATCH] = score_keys(a, q, odd, n_heads);
  }
}

/* Dimensions d .. d + WIDE - 1 of n values from number `cell` on; n is a constant. */
KC_INLINE void load_values(const stk_qsa_attn_args *a, const split *s, int cell, int d, int n,
                           float v[ROWS][WIDE_MAX]) {
  const int64_t rows = (int64_t)a->kv_heads * STK_CACHE_PAGE;
  const int64_t data = rows * stk_row_data_bytes(DIM, KIND), scales = rows * stk_row_scale_bytes(DIM, KIND);
  KC_UNROLL for (int c = 0; c < n; ++c) {
    const qsa_cuda_place p = s->place[cell + c];
    load_numbers(p.data + data, KIND == STK_KV_Q8 ? p.scales + scales : NULL, KIND, d, WIDE, v[c]);
  }
}

/* Adds two values, from the even number `cell` on. */
KC_INLINE void add_values(const stk_qsa_attn_args *a, const split *s, int cell, float v[2][WIDE_MAX],
                          float acc[PASS][WIDE_MAX]) {
  const int n_heads = HEADS;
  (void)a;
  KC_UNROLL for (int h = 0; h < n_heads; h += 2) {
    const kc4 e = kc_load4(s->weights + h * STK_ATTN_SPLIT + 2 * cell);
    KC_UNROLL for (int c = 0; c < 2; ++c)
      KC_UNROLL for (int i = 0; i < 2; ++i)
        if (h + i < n_heads)
          KC_UNROLL for (int j = 0; j < WIDE; ++j) acc[h + i][j] = ks_fma(e.v[2 * c + i], v[c][j], acc[h + i][j]);
  }
}

/* A tile begins: what is there shrinks. */
KC_INLINE void rescale(const stk_qsa_attn_args *a, const split *s, int cell, float acc[PASS][WIDE_MAX]) {
  (void)a;
  if (cell == 0 || cell % TILE) return;
  KC_UNROLL for (int h = 0; h < HEADS; ++h)
    KC_UNROLL for (int j = 0; j < WIDE; ++j) acc[h][j] = acc[h][j] * s->factor[h * TILES + cell / TILE];
}

/* ROWS values, for all of which there are cells. */
KC_INLINE void use_values(const stk_qsa_attn_args *a, const split *s, int cell, float v[ROWS][WIDE_MAX],
                          float acc[PASS][WIDE_MAX]) {
  rescale(a, s, cell, acc);
  KC_UNROLL for (int c = 0; c < ROWS; c += 2) add_values(a, s, cell + c, v + c, acc);
}

/* Dimensions d .. d + WIDE - 1 of all heads, through all cells. */
KC_INLINE void sum_values(const stk_qsa_attn_args *a, const split *s, int d) {
  const int n_heads = HEADS, full = s->n_cells / ROWS * ROWS;
  float acc[PASS][WIDE_MAX], even[ROWS][WIDE_MAX], odd[ROWS][WIDE_MAX];
  KC_UNROLL for (int h = 0; h < n_heads; ++h)
    KC_UNROLL for (int j = 0; j < WIDE; ++j) acc[h][j] = 0.0f;
  if (full) load_values(a, s, 0, d, ROWS, even);
  for (int cell = 0; cell < full; cell += 2 * ROWS) {
    if (cell + ROWS < full) load_values(a, s, cell + ROWS, d, ROWS, odd);
    use_values(a, s, cell, even, acc);
    if (cell + ROWS >= full) break;
    if (cell + 2 * ROWS < full) load_values(a, s, cell + 2 * ROWS, d, ROWS, even);
    use_values(a, s, cell + ROWS, odd, acc);
  }
  for (int cell = full; cell < s->n_cells; ++cell) {
    rescale(a, s, cell, acc);
    load_values(a, s, cell, d, 1, even);
    KC_UNROLL for (int h = 0; h < n_heads; ++h)
      KC_UNROLL for (int j = 0; j < WIDE; ++j)
        acc[h][j] = ks_fma(s->weights[h / 2 * 2 * STK_ATTN_SPLIT + 2 * cell + h % 2], even[0][j], acc[h][j]);
  }
  KC_UNROLL for (int h = 0; h < n_heads; ++h)
    if (h < s->n_heads)
      KC_UNROLL for (int j = 0; j < WIDE; ++j) stk_qsa_partial(a, s->row + h, s->number)[d + j] = acc[h][j];
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
  if (kc_thread < DIM / WIDE) sum_values(a, &s, kc_thread * WIDE);
  if (kc_thread < s.n_heads) sum_weights(a, &s, kc_thread);
}
