/* isa: cuda
 * qsa_decode -- a block is a split for a few heads of a kv head. Two warps score a tile,
 * lane l making chain l of fma32, and one weighs it: nothing waits for the tile before, the
 * tiles' maxima meet in shared memory, and each warp follows the running one by itself.
 * Then a thread owns a dimension and goes through all cells.
 *
 * Keys and values come to shared memory in the background. A warp asks for the keys that it
 * scores and for its own 32 dimensions of all values, so no warp waits for another's copies;
 * while it scores, the first values are on their way, too. At one token the time is what
 * one warp executes from begin to end, so a block has many, each with little to do.
 *
 * Grid: splits of tokens, and groups of heads. Whoever compiles it defines QSA_DIM,
 * QSA_HEADS (of a block) and QSA_KIND; without them these are run-time values, for tests. */
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

#define ROW_BYTES qsa_cuda_row_bytes(DIM, KIND)
#define SLICE_BYTES qsa_decode_slice_bytes(KIND)
#define VALUE_BYTES qsa_decode_value_bytes(DIM, KIND)
#define VALUE_SLOTS qsa_decode_value_slots(DIM, KIND)

enum {
  TILE = STK_ATTN_TILE,
  TILES = QSA_DECODE_TILES,
  WARP_CELLS = TILE / QSA_DECODE_TILE_WARPS, /* that a warp scores */
  BATCH = QSA_DECODE_KEY_SLOTS,              /* keys that are scored together */
  BATCHES = WARP_CELLS / BATCH,
  THREADS = 32 * QSA_DECODE_WARPS,
  ROWS = 8 /* values that are added without a branch */
};

/* ---- a split ----------------------------------------------------------------------------- */

/* Places from .. from + n_cells - 1 of a token's list. */
typedef struct split {
  const int32_t *ids; /* NULL: all cells */
  int64_t row;        /* token and first head, of the rows of q and partial */
  int kv, number, n_heads, from, n_cells;
  qsa_cuda_place *place;         /* [256] */
  float *score;                  /* [heads][256] */
  float *weights;                /* [heads / 2][256][2] */
  float *largest, *factor, *sum; /* [heads][TILES] */
} split;

KC_INLINE void set_memory(const stk_qsa_attn_args *a, split *s, float *p) {
  const int heads = HEADS, even = heads + heads % 2;
  (void)a;
  s->place = (qsa_cuda_place *)(void *)p;
  s->score = p + STK_ATTN_SPLIT * sizeof(qsa_cuda_place) / sizeof(float);
  s->weights = s->score + heads * STK_ATTN_SPLIT;
  s->largest = s->weights + even * STK_ATTN_SPLIT;
  s->factor = s->largest + heads * TILES;
  s->sum = s->factor + heads * TILES;
}

/* Split `number` of token t for heads first .. of kv head kv; false if the list has no such
 * split. */
KC_INLINE int set_split(const stk_qsa_attn_args *a, split *s, int64_t t, int number, int kv, int first) {
  const int per_kv = a->q_heads / a->kv_heads, heads = HEADS;
  const int64_t n = stk_qsa_n_cells(a, t);
  s->number = number;
  s->from = number * STK_ATTN_SPLIT;
  s->n_cells = (int)(n - s->from < STK_ATTN_SPLIT ? n - s->from : STK_ATTN_SPLIT);
  s->ids = stk_qsa_attn_is_dense(a, t) ? NULL : a->ids + t * a->ids_stride;
  s->kv = kv;
  s->row = t * a->q_heads + kv * per_kv + first;
  s->n_heads = per_kv - first < heads ? per_kv - first : heads;
  return s->n_cells > 0;
}

/* Negative beyond the end (docs/cuda.md tells why it is not brought to 0). */
KC_INLINE int cells_of_tile(const split *s, int tile) {
  const int left = s->n_cells - tile * TILE;
  return left < TILE ? left : TILE;
}

/* Looks up the cell of this thread. */
KC_INLINE void find_cell(const stk_qsa_attn_args *a, const split *s, int at) {
  if (at < s->n_cells) s->place[at] = place_of(a, s->kv, s->ids ? s->ids[s->from + at] : s->from + at, DIM, KIND);
}

/* ---- keys and values on their way ---------------------------------------------------------- */

/* A warp's part of the shared memory: rows of keys, and its dimensions of rows of values. */
typedef struct feed {
  unsigned char *keys, *values;
  int has_values; /* it owns dimensions */
} feed;

KC_INLINE void set_feed(const stk_qsa_attn_args *a, feed *f, unsigned char *memory) {
  f->keys = memory + kc_warp * BATCH * ROW_BYTES;
  f->values = memory + qsa_decode_keys_bytes(DIM, KIND) + kc_warp * VALUE_SLOTS * VALUE_BYTES;
  f->has_values = kc_warp < DIM / 32;
}

/* n_rows rows (a constant) of cells first ..., those below `end`, to memory from `to` on:
 * `bytes` from `offset` on, and the scales, which may begin in the middle of a word. plane:
 * rows between a cell's key and what is copied. */
KC_INLINE void ask_rows(const stk_qsa_attn_args *a, const qsa_cuda_place *place, int first, int n_rows, int end,
                        int64_t plane, int offset, int bytes, unsigned char *to, int row_bytes) {
  const unsigned lane = (unsigned)kc_lane, chunks = (unsigned)bytes / 16;
  const unsigned words = (unsigned)qsa_cuda_scale_words(DIM, KIND), divisor = words ? words : 1;
  const int64_t data = plane * stk_row_data_bytes(DIM, KIND) + offset, scale = plane * stk_row_scale_bytes(DIM, KIND);
  place += first;
  KC_UNROLL for (unsigned i = 0; i < (unsigned)n_rows * chunks; i += 32) {
    const unsigned row = (i + lane) / chunks, at = (i + lane) % chunks * 16;
    if (row < (unsigned)n_rows && first + (int)row < end)
      kc_copy16(to + row * (unsigned)row_bytes + at, place[row].data + data + at);
  }
  KC_UNROLL for (unsigned i = 0; i < (unsigned)n_rows * words; i += 32) {
    const unsigned row = (i + lane) / divisor, at = (i + lane) % divisor * 4;
    if (row >= (unsigned)n_rows || first + (int)row >= end) continue;
    const uint8_t *from = place[row].scales + scale;
    kc_copy4(to + row * (unsigned)row_bytes + bytes + at, from - ((uintptr_t)from & 2) + at);
  }
}

KC_INLINE unsigned char *value_slot(const stk_qsa_attn_args *a, const feed *f, int cell) {
  (void)a;
  return f->values + (unsigned)cell % (unsigned)VALUE_SLOTS * (unsigned)VALUE_BYTES;
}

/* n_rows values (a constant) from cell `first` on, a multiple of n_rows: the warp's
 * dimensions. */
KC_INLINE void ask_values(const stk_qsa_attn_args *a, const split *s, const feed *f, int first, int n_rows) {
  if (f->has_values)
    ask_rows(a, s->place, first, n_rows, s->n_cells, (int64_t)a->kv_heads * STK_CACHE_PAGE, kc_warp * SLICE_BYTES,
             SLICE_BYTES, value_slot(a, f, first), VALUE_BYTES);
}

/* The keys of a batch of the warp's n cells, which are the split's from `first` on; and with
 * them a part of the values that have a slot. */
KC_INLINE void ask_batch(const stk_qsa_attn_args *a, const split *s, const feed *f, int first, int n, int batch) {
  const int cell = batch * BATCH, rows = VALUE_SLOTS / BATCHES;
  if (batch < BATCHES) {
    ask_rows(a, s->place + first, cell, BATCH, n, 0, 0, stk_row_data_bytes(DIM, KIND), f->keys, ROW_BYTES);
    ask_values(a, s, f, batch * rows, rows);
  }
  kc_copy_commit();
}

/* The scales of a row that has come. */
KC_INLINE const unsigned char *scales_at(const stk_qsa_attn_args *a, const unsigned char *words,
                                         const qsa_cuda_place *place) {
  (void)a;
  return stk_row_scale_bytes(DIM, KIND) % 4 == 0 ? words : words + ((uintptr_t)place->scales & 2);
}

/* ---- scores -------------------------------------------------------------------------------- */

/* Elements l, l + 32, ... of the heads; one that is not there is the first. */
KC_INLINE void load_queries(const stk_qsa_attn_args *a, const split *s, float q[HEADS_MAX][ELEMS_MAX]) {
  KC_UNROLL for (int h = 0; h < HEADS; ++h)
    KC_UNROLL for (int e = 0; e < DIM / 32; ++e)
      q[h][e] = a->q[(s->row + (h < s->n_heads ? h : 0)) * DIM + 32 * e + kc_lane];
}

/* The same of the BATCH keys that have come, of which place[0] is the first. What lies beyond
 * the last cell gives scores that nobody uses. */
KC_INLINE void take_keys(const stk_qsa_attn_args *a, const feed *f, const qsa_cuda_place *place,
                         float k[BATCH][ELEMS_MAX]) {
  KC_UNROLL for (int c = 0; c < BATCH; ++c) {
    const unsigned char *row = f->keys + c * ROW_BYTES;
    const unsigned char *scales = scales_at(a, row + stk_row_data_bytes(DIM, KIND), place + c);
    KC_UNROLL for (int e = 0; e < DIM / 32; ++e) load_numbers(row, scales, KIND, 32 * e + kc_lane, 1, &k[c][e]);
  }
}

/* The score that this lane has: of head i % HEADS and key i / HEADS, where i is
 * kc_each_index(BATCH * HEADS). */
KC_INLINE float score_keys(const stk_qsa_attn_args *a, float q[HEADS_MAX][ELEMS_MAX], float k[BATCH][ELEMS_MAX]) {
  const int n_heads = HEADS;
  float sum[BATCH * HEADS_MAX];
  KC_UNROLL for (int c = 0; c < BATCH; ++c)
    KC_UNROLL for (int h = 0; h < n_heads; ++h) {
      float chain = q[h][0] * k[c][0];
      KC_UNROLL for (int e = 1; e < DIM / 32; ++e) chain = ks_fma(q[h][e], k[c][e], chain);
      sum[c * n_heads + h] = chain;
    }
  return kc_lanes_each(sum, BATCH * n_heads, KC_SUM) * kc_inverse_sqrt(DIM);
}

/* The split's cells from `first` on, at most WARP_CELLS, perhaps none. */
KC_INLINE void score_cells(const stk_qsa_attn_args *a, const split *s, const feed *f, int first) {
  const int left = s->n_cells - first, n = left < WARP_CELLS ? left : WARP_CELLS;
  const int n_heads = HEADS, index = kc_each_index(BATCH * HEADS);
  float *to = s->score + index % n_heads * STK_ATTN_SPLIT + first + index / n_heads;
  float q[HEADS_MAX][ELEMS_MAX], k[BATCH][ELEMS_MAX];
  ask_batch(a, s, f, first, n, 0);
  load_queries(a, s, q);
  for (int batch = 0; batch < BATCHES; ++batch) {
    const int cell = batch * BATCH;
    kc_copy_wait(0);
    kc_sync_warp();
    if (cell < n) take_keys(a, f, s->place + first + cell, k);
    kc_sync_warp();
    ask_batch(a, s, f, first, n, batch + 1);
    if (cell < n) to[cell] = score_keys(a, q, k);
  }
}

/* ---- weights ------------------------------------------------------------------------------- */

/* The lane's scores in a tile of n cells, and the tile's maxima. */
KC_INLINE void find_largest(const stk_qsa_attn_args *a, const split *s, int tile, int n, float score[HEADS_MAX]) {
  const int cell = tile * TILE + (kc_lane < n ? kc_lane : 0), n_heads = HEADS;
  float m[HEADS_MAX];
  (void)a;
  KC_UNROLL for (int h = 0; h < n_heads; ++h) m[h] = score[h] = s->score[h * STK_ATTN_SPLIT + cell];
  KC_UNROLL for (int half = 16; half; half /= 2)
    KC_UNROLL for (int h = 0; h < n_heads; ++h) m[h] = kc_larger(m[h], kc_shuffle_xor(m[h], half));
  /* Among equals the lowest lane's decides, which only lane 0 can know. */
  KC_UNROLL for (int h = 0; h < n_heads; ++h)
    if (kc_lane == 0) s->largest[h * TILES + tile] = m[h];
}

/* The running maxima before and at a tile. */
KC_INLINE void follow_largest(const float *largest, int tile, float *before, float *m) {
  *before = *m = largest[0];
  KC_UNROLL for (int i = 1; i < TILES; ++i) {
    const float next = kc_larger(*m, largest[i]);
    *before = i <= tile ? *m : *before;
    *m = i <= tile ? next : *m;
  }
}

KC_INLINE void weigh(const stk_qsa_attn_args *a, const split *s, int tile, int n, const float score[HEADS_MAX]) {
  const int n_heads = HEADS;
  float e[HEADS_MAX], f = 0.0f;
  (void)a;
  KC_UNROLL for (int h = 0; h < n_heads; ++h) {
    float before, m;
    follow_largest(s->largest + h * TILES, tile, &before, &m);
    e[h] = ks_exp(score[h] - m);
    if (kc_lane >= n) e[h] = 0.0f;
    if (kc_lane == h) f = before - m;
  }
  KC_UNROLL for (int h = 0; h < n_heads; h += 2) {
    const kc2 two = {{e[h], h + 1 < n_heads ? e[h + 1] : 0.0f}};
    kc_store2(s->weights + h * STK_ATTN_SPLIT + 2 * (tile * TILE + kc_lane), two);
  }
  kc_lanes_sums(e, n_heads);
  f = ks_exp(f);
  KC_UNROLL for (int h = 0; h < n_heads; ++h)
    if (kc_lane == h) {
      s->factor[h * TILES + tile] = f;
      s->sum[h * TILES + tile] = e[h];
    }
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

/* ---- values -------------------------------------------------------------------------------- */

/* The thread's dimension of n values from cell `cell` on; n is a constant. */
KC_INLINE void take_values(const stk_qsa_attn_args *a, const split *s, const feed *f, int cell, int n, float v[ROWS]) {
  const unsigned char *row = value_slot(a, f, cell);
  KC_UNROLL for (int c = 0; c < n; ++c) {
    const unsigned char *scales = scales_at(a, row + SLICE_BYTES, s->place + cell + c);
    unsigned words[4];
    float scale = 0.0f;
    load_words(row, KIND, kc_lane, 1, words);
    if (KIND == STK_KV_Q8)
      scale = kc_from_half(*(const uint16_t *)(const void *)(scales + kc_thread / STK_Q8_GROUP * 2));
    v[c] = number(words, 0, KIND, scale);
    row += VALUE_BYTES;
  }
}

/* Adds two values, from the even number `cell` on. */
KC_INLINE void add_two(const stk_qsa_attn_args *a, const split *s, int cell, const float v[2], float acc[HEADS_MAX]) {
  const int n_heads = HEADS;
  (void)a;
  KC_UNROLL for (int h = 0; h < n_heads; h += 2) {
    const kc4 e = kc_load4(s->weights + h * STK_ATTN_SPLIT + 2 * cell);
    KC_UNROLL for (int c = 0; c < 2; ++c)
      KC_UNROLL for (int i = 0; i < 2; ++i)
        if (h + i < n_heads) acc[h + i] = ks_fma(e.v[2 * c + i], v[c], acc[h + i]);
  }
}

KC_INLINE void add_one(const stk_qsa_attn_args *a, const split *s, int cell, float v, float acc[HEADS_MAX]) {
  (void)a;
  KC_UNROLL for (int h = 0; h < HEADS; ++h)
    acc[h] = ks_fma(s->weights[h / 2 * 2 * STK_ATTN_SPLIT + 2 * cell + h % 2], v, acc[h]);
}

/* The cells of a tile: first what is there shrinks. */
KC_INLINE void add_tile(const stk_qsa_attn_args *a, const split *s, const feed *f, int tile, float acc[HEADS_MAX]) {
  const int begin = tile * TILE, n = cells_of_tile(s, tile), full = n / ROWS * ROWS;
  float v[ROWS];
  if (tile)
    KC_UNROLL for (int h = 0; h < HEADS; ++h) acc[h] = acc[h] * s->factor[h * TILES + tile];
  for (int i = 0; i < full; i += ROWS) {
    take_values(a, s, f, begin + i, ROWS, v);
    KC_UNROLL for (int c = 0; c < ROWS; c += 2) add_two(a, s, begin + i + c, v + c, acc);
  }
  for (int i = full; i < n; ++i) {
    take_values(a, s, f, begin + i, 1, v);
    add_one(a, s, begin + i, v[0], acc);
  }
}

/* The thread's dimension of all heads, through all cells. */
KC_INLINE void sum_values(const stk_qsa_attn_args *a, const split *s, const feed *f) {
  float acc[HEADS_MAX];
  KC_UNROLL for (int h = 0; h < HEADS; ++h) acc[h] = 0.0f;
  for (int tile = 0; tile * TILE < s->n_cells; ++tile) {
    /* Where there is room for two, this one was not the last that was asked for. */
    if (VALUE_SLOTS > TILE) kc_copy_wait(1);
    else kc_copy_wait(0);
    kc_sync_warp();
    add_tile(a, s, f, tile, acc);
    kc_sync_warp();
    if (tile * TILE + VALUE_SLOTS < s->n_cells) ask_values(a, s, f, tile * TILE + VALUE_SLOTS, TILE);
    kc_copy_commit();
  }
  KC_UNROLL for (int h = 0; h < HEADS; ++h)
    if (h < s->n_heads) stk_qsa_partial(a, s->row + h, s->number)[kc_thread] = acc[h];
}

KC_KERNEL(qsa_decode_cuda, stk_qsa_decode_args, THREADS, 1) {
  const int64_t splits = stk_qsa_splits_max(a->budget, a->ratio);
  const int groups = qsa_decode_groups(a, HEADS), tile = kc_warp;
  float score[HEADS_MAX];
  split s;
  feed f;
  KC_SHARED(float, shared);
  set_memory(a, &s, shared);
  set_feed(a, &f, (unsigned char *)shared + qsa_decode_split_bytes(HEADS));
  if (!set_split(a, &s, kc_block / splits, (int)(kc_block % splits), kc_block_y / groups, kc_block_y % groups * HEADS))
    return;
  const int n = tile < TILES ? cells_of_tile(&s, tile) : 0;
  find_cell(a, &s, kc_thread);
  kc_sync();
  score_cells(a, &s, &f, kc_warp * WARP_CELLS);
  kc_sync();
  if (n > 0) find_largest(a, &s, tile, n, score);
  kc_sync();
  if (n > 0) weigh(a, &s, tile, n, score);
  kc_sync();
  if (f.has_values) sum_values(a, &s, &f);
  kc_copy_wait(0);
  if (kc_thread < s.n_heads) sum_weights(a, &s, kc_thread);
}
