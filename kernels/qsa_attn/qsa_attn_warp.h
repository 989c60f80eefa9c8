/* qsa_attn_warp.h -- the body of the attention kernels for GPUs that walk a whole list
 * of cells (qsa_attn, qsa_flash).
 *
 * A warp has up to six heads of a token. For scores lane l makes chain l of fma32: it
 * keeps elements l, l + 32, ... of its heads' queries in registers, so a key's element
 * that it reads serves all of them. The 32 chains of 24 sums (heads, 4 cells) are then
 * added by halves in a way that leaves each lane one sum. For values a lane owns a few
 * dimensions of each head and keeps the sums of its split in registers; those of the
 * splits before are in shared memory.
 *
 * Two warps share a token's cells. They come to shared memory in the background, in
 * pieces: a tile's keys, in one or two, then its values. A list's
 * cells are looked up one tile ahead. A block has two tokens: neighbours that both
 * attend to all cells share their pieces, others have their own.
 *
 * A source defines before it includes this:
 *   QSA_ENTRY   the kernel's name
 *   QSA_LISTED  1: every token has a list; 0: those within the budget derive it
 * and whoever compiles it QSA_DIM, QSA_HEADS (of a warp) and QSA_KIND; without them
 * these are run-time values, for tests. */
#include "qsa_attn/qsa_attn_lanes.h"

#ifdef QSA_DIM
#define DIM QSA_DIM
#define HEADS QSA_HEADS
#define KIND QSA_KIND
#define ELEMS_MAX (QSA_DIM / 32)
#define HEADS_MAX QSA_HEADS
#else
#define DIM a->head_dim
#define HEADS qsa_cuda_heads(a->q_heads / a->kv_heads, a->head_dim)
#define KIND a->kv_kind
#define ELEMS_MAX 16
#define HEADS_MAX 6
#endif

/* Neighbouring dimensions of a lane, and how far apart such groups are. */
#define VECTOR (DIM % 256 == 0 && KIND != STK_KV_F32 ? 8 : DIM % 128 == 0 ? 4 : DIM % 64 == 0 ? 2 : 1)
#define VECTORS (DIM / 32 / VECTOR)

#define PIECE qsa_cuda_piece(DIM, KIND)
#define HALF_PIECES (TILE / PIECE) /* of a tile's keys, and of its values */
#define TILE_PIECES (2 * HALF_PIECES)

enum {
  TILE = STK_ATTN_TILE,
  SPLIT_TILES = STK_ATTN_SPLIT / TILE,
  STAGES = QSA_CUDA_STAGES,
  TOKEN_THREADS = 32 * QSA_CUDA_TOKEN_WARPS,
  BLOCK_THREADS = 32 * QSA_CUDA_WARPS,
  BATCH = 4,       /* cells whose scores are summed together */
  VALUE_BATCH = 8 /* cells whose values are added without a branch */
};

/* ---- pieces of rows on their way to shared memory ------------------------------------ */

/* The rows that one token, or two together, go through. */
typedef struct feed {
  unsigned char *slots;  /* [STAGES][PIECE] rows */
  qsa_cuda_place *place; /* [2][TILE], of two tiles in turns */
  const int32_t *ids;    /* NULL: all cells */
  int kv, n_cells;
  int rank, n_ranks; /* this thread among those that copy */
  int finds;         /* this warp looks cells up */
  int next_cell;     /* its lane's cell of the tile after next */
  qsa_cuda_place next;
} feed;

KC_INLINE int cell_at(const feed *f, int tile) {
  const int at = tile * TILE + kc_lane, last = f->n_cells - 1, i = at < last ? at : last;
  return f->ids ? f->ids[i] : i;
}

/* Looking up takes two reads, one after the other, and neither is waited for: at a
 * tile's first piece the place of a cell of the next tile is there and the cell of the
 * one after is asked for, in the tile's middle the place of that. */
KC_INLINE void find_first(const stk_qsa_attn_args *a, feed *f) {
  f->next_cell = 0;
  if (!f->finds) return;
  f->place[kc_lane] = place_of(a, f->kv, cell_at(f, 0), DIM, KIND);
  f->next = place_of(a, f->kv, cell_at(f, 1), DIM, KIND);
}

KC_INLINE void find(const stk_qsa_attn_args *a, feed *f, int tile, int part) {
  if (!f->finds) return;
  if (part == 0) {
    f->place[(tile + 1) % 2 * TILE + kc_lane] = f->next;
    f->next_cell = cell_at(f, tile + 2);
  } else if (part == HALF_PIECES) {
    f->next = place_of(a, f->kv, f->next_cell, DIM, KIND);
  }
}

/* Negative beyond the end, where it is as good as 0. It is not brought to 0, since ptxas
 * 13.0 then takes "= PIECE" from a minimum of sm_90 whose predicate is set for 0, too
 * (VIMNMX.RELU): docs/cuda.md. */
KC_INLINE int cells_of_piece(const stk_qsa_attn_args *a, int n_cells, int tile, int part) {
  (void)a;
  const int left = n_cells - tile * TILE - part % HALF_PIECES * PIECE;
  return left < PIECE ? left : PIECE;
}

/* Rows of a whole piece, where threads and 16 bytes of rows come out even: no division
 * and no condition is left. n_ranks is a constant. */
KC_INLINE void copy_rows(const stk_qsa_attn_args *a, unsigned char *to, const qsa_cuda_place *place, int64_t distance,
                         int rank, int n_ranks) {
  const int row_bytes = qsa_cuda_row_bytes(DIM, KIND), chunks = stk_row_data_bytes(DIM, KIND) / 16;
  const int row = rank / chunks, chunk = rank % chunks * 16;
  (void)a;
  to += row * row_bytes + chunk;
  KC_UNROLL for (int i = 0; i < PIECE * chunks; i += n_ranks) {
    const int more_rows = i / chunks, more_bytes = i % chunks * 16;
    if (PIECE * chunks >= n_ranks || row < PIECE)
      kc_copy16(to + more_rows * row_bytes + more_bytes, place[row + more_rows].data + (distance + chunk) + more_bytes);
  }
}

/* Piece `part` of a tile, into the memory of stage `stage`. */
KC_INLINE void copy_piece(const stk_qsa_attn_args *a, const feed *f, int tile, int part, int stage) {
  const int row_bytes = qsa_cuda_row_bytes(DIM, KIND), data_bytes = stk_row_data_bytes(DIM, KIND);
  const int chunks = data_bytes / 16, words = qsa_cuda_scale_words(DIM, KIND);
  const int is_even = TOKEN_THREADS % chunks == 0 || chunks % BLOCK_THREADS == 0;
  const int n = cells_of_piece(a, f->n_cells, tile, part);
  const int64_t rows = part < HALF_PIECES ? 0 : (int64_t)a->kv_heads * STK_CACHE_PAGE;
  const int64_t scale_bytes = stk_row_scale_bytes(DIM, KIND);
  const qsa_cuda_place *place = f->place + tile % 2 * TILE + part % HALF_PIECES * PIECE;
  unsigned char *to = f->slots + stage * PIECE * row_bytes;
  if (is_even && n == PIECE) {
    if (f->n_ranks == TOKEN_THREADS) copy_rows(a, to, place, rows * data_bytes, f->rank, TOKEN_THREADS);
    else copy_rows(a, to, place, rows * data_bytes, f->rank, BLOCK_THREADS);
  } else {
    for (int i = f->rank; i < n * chunks; i += f->n_ranks)
      kc_copy16(to + i / chunks * row_bytes + i % chunks * 16,
                place[i / chunks].data + rows * data_bytes + i % chunks * 16);
  }
  for (int i = f->rank; i < n * words; i += f->n_ranks) {
    const uint8_t *scales = place[i / words].scales + rows * scale_bytes;
    kc_copy4(to + i / words * row_bytes + data_bytes + i % words * 4,
             scales - ((uintptr_t)scales & 2) + i % words * 4);
  }
}

/* The scales of a row that has come: only an odd number of them may begin in the middle
 * of a word. */
KC_INLINE const unsigned char *scales_of(const stk_qsa_attn_args *a, const unsigned char *row,
                                         const qsa_cuda_place *place) {
  const unsigned char *words = row + stk_row_data_bytes(DIM, KIND);
  (void)a;
  if (stk_row_scale_bytes(DIM, KIND) % 4 == 0) return words;
  return words + ((uintptr_t)place->scales & 2);
}

/* ---- a warp's heads of a token ------------------------------------------------------------- */

/* The running softmax of a split. */
typedef struct soft {
  float m[HEADS_MAX], acc[HEADS_MAX][ELEMS_MAX];
  float l; /* of head l in lane l */
} soft;

/* That of all splits so far, of head l in lane l; what they accumulated is in shared
 * memory. */
typedef struct sums {
  float m, l;
} sums;

typedef struct unit {
  float q[HEADS_MAX][ELEMS_MAX];
  int n_heads, n_cells; /* n_heads 0: nothing to do */
  qsa_cuda_task *task;
  float *score;   /* [HEADS][TILE] */
  float *weights; /* [TILE][HEADS] */
  float *total;   /* [HEADS][DIM], the lanes' dimensions 32 apart */
} unit;

/* The scores of BATCH cells from number `cell` of the tile on, rows from `row` on. What
 * lies beyond the tile's last cell gives numbers that nobody uses. */
KC_INLINE void scores(const stk_qsa_attn_args *a, const unit *u, const unsigned char *row,
                      const qsa_cuda_place *place, int cell) {
  const int n_heads = HEADS, steps = DIM / 32;
  const float scale = kc_inverse_sqrt(DIM);
  float sum[BATCH * HEADS_MAX];
  KC_UNROLL for (int c = 0; c < BATCH; ++c) {
    const unsigned char *key = row + c * qsa_cuda_row_bytes(DIM, KIND), *scales = scales_of(a, key, place + c);
    float k[ELEMS_MAX];
    KC_UNROLL for (int s = 0; s < steps; ++s) load_numbers(key, scales, KIND, 32 * s + kc_lane, 1, &k[s]);
    KC_UNROLL for (int h = 0; h < n_heads; ++h) {
      float chain = u->q[h][0] * k[0];
      KC_UNROLL for (int s = 1; s < steps; ++s) chain = ks_fma(u->q[h][s], k[s], chain);
      sum[c * n_heads + h] = chain;
    }
  }
  const float mine = kc_lanes_each(sum, BATCH * n_heads, KC_SUM);
  const int index = kc_each_index(BATCH * n_heads);
  u->score[index % n_heads * TILE + cell + index / n_heads] = mine * scale;
}

/* Turns the scores of a tile's n cells into weights; the sums so far shrink to the new
 * maximum. first: there are none. */
KC_INLINE void weigh(const stk_qsa_attn_args *a, const unit *u, int n, int first, soft *s) {
  const int n_heads = HEADS, lane = kc_lane;
  float score[HEADS_MAX], m[HEADS_MAX], e[HEADS_MAX], f = 0.0f;
  (void)a;
  kc_sync_warp();
  KC_UNROLL for (int h = 0; h < n_heads; ++h) m[h] = score[h] = u->score[h * TILE + (lane < n ? lane : 0)];
  /* Which of equal scores is the largest shows nowhere: e^0 and e^-0 are 1, and a score
   * that is not a number makes the output one that is none, whatever the maximum. */
  const float largest = kc_lanes_each(m, n_heads, KC_LARGEST);
  KC_UNROLL for (int h = 0; h < n_heads; ++h) {
    m[h] = kc_shuffle(largest, kc_each_lane(h, n_heads));
    if (!first) m[h] = kc_larger(s->m[h], m[h]);
    e[h] = ks_exp(score[h] - m[h]);
    if (lane >= n) e[h] = 0.0f;
    if (!first && lane == h) f = s->m[h] - m[h];
    s->m[h] = m[h];
  }
  KC_UNROLL for (int h = 0; h < n_heads; ++h) u->weights[lane * n_heads + h] = e[h];
  if (!first) f = ks_exp(f);
  const int head = lane < n_heads ? lane : 0;
  const float sum = kc_shuffle(kc_lanes_each(e, n_heads, KC_SUM), kc_each_lane(head, n_heads));
  s->l = first ? sum : ks_fma(s->l, f, sum);
  KC_UNROLL for (int h = 0; h < n_heads; ++h) {
    const float factor = kc_shuffle(f, h);
    KC_UNROLL for (int i = 0; i < DIM / 32; ++i) s->acc[h][i] = first ? 0.0f : s->acc[h][i] * factor;
  }
  kc_sync_warp();
}

/* The weights of two cells, an even one and the next, by as few loads as there are. */
KC_INLINE void load_weights(const float *weights, int n_heads, float e[2 * HEADS_MAX]) {
  if (n_heads % 2 == 0)
    KC_UNROLL for (int i = 0; i < 2 * n_heads; i += 4) {
      const kc4 four = kc_load4(weights + i);
      KC_UNROLL for (int j = 0; j < 4; ++j) e[i + j] = four.v[j];
    }
  else
    KC_UNROLL for (int i = 0; i < 2 * n_heads; i += 2) {
      const kc2 two = kc_load2(weights + i);
      e[i] = two.v[0];
      e[i + 1] = two.v[1];
    }
}

/* Adds n cells' values, weighed, from the even number `cell` of the tile on; n is a
 * constant. The weights beyond the tile's last cell are there, too. */
KC_INLINE void values(const stk_qsa_attn_args *a, const unit *u, const unsigned char *row,
                      const qsa_cuda_place *place, int cell, int n, soft *s) {
  const int n_heads = HEADS;
  float e[2 * HEADS_MAX];
  KC_UNROLL for (int c = 0; c < n; ++c) {
    const unsigned char *value = row + c * qsa_cuda_row_bytes(DIM, KIND), *scales = scales_of(a, value, place + c);
    const float *weight = e + c % 2 * n_heads;
    float v[ELEMS_MAX];
    if (c % 2 == 0) load_weights(u->weights + (cell + c) * n_heads, n_heads, e);
    KC_UNROLL for (int i = 0; i < VECTORS; ++i)
      load_numbers(value, scales, KIND, (32 * i + kc_lane) * VECTOR, VECTOR, v + i * VECTOR);
    KC_UNROLL for (int h = 0; h < n_heads; ++h)
      KC_UNROLL for (int i = 0; i < DIM / 32; ++i) s->acc[h][i] = ks_fma(weight[h], v[i], s->acc[h][i]);
  }
}

/* A split has been gone through: it joins the ones before it in shared memory. */
KC_INLINE void merge(const stk_qsa_attn_args *a, const unit *u, int is_first, const soft *next, sums *total) {
  const int n_heads = HEADS, n_elems = DIM / 32;
  float m = next->m[0], f = 0.0f, f2 = 1.0f;
  KC_UNROLL for (int h = 1; h < n_heads; ++h) m = kc_lane == h ? next->m[h] : m;
  if (!is_first) {
    const float together = kc_larger(total->m, m);
    f = ks_exp(total->m - together);
    f2 = ks_exp(m - together);
    m = together;
  }
  total->l = is_first ? next->l : ks_fma(next->l, f2, total->l * f);
  total->m = m;
  KC_UNROLL for (int h = 0; h < n_heads; ++h) {
    const float g = kc_shuffle(f, h), g2 = kc_shuffle(f2, h);
    KC_UNROLL for (int i = 0; i < n_elems; ++i) {
      float *acc = u->total + (h * n_elems + i) * 32 + kc_lane;
      *acc = is_first ? next->acc[h][i] : ks_fma(next->acc[h][i], g2, *acc * g);
    }
  }
}

/* Dimension i of a lane. */
KC_INLINE int dim_at(const stk_qsa_attn_args *a, int i) {
  (void)a;
  return kc_element(i, VECTOR);
}

KC_INLINE void finish(const stk_qsa_attn_args *a, const unit *u, const sums *total) {
  const qsa_cuda_task task = *u->task;
  const int n_elems = DIM / 32;
  const float inverse = 1.0f / total->l;
  KC_UNROLL for (int h = 0; h < HEADS_MAX; ++h) {
    const int64_t at = ((int64_t)task.t * a->q_heads + task.head + h) * DIM;
    const float inv = kc_shuffle(inverse, h);
    float gate[ELEMS_MAX], open[ELEMS_MAX];
    if (h >= task.n_heads) break;
    KC_UNROLL for (int i = 0; i < n_elems; ++i) gate[i] = a->q_raw[2 * at + DIM + dim_at(a, i)];
    kc_sigmoid(gate, open, n_elems);
    KC_UNROLL for (int i = 0; i < n_elems; ++i)
      store_output(a, at + dim_at(a, i), (u->total[(h * n_elems + i) * 32 + kc_lane] * inv) * open[i], task.is_nan);
  }
}

/* ---- a block ------------------------------------------------------------------------------------ */

KC_INLINE int64_t count_of(const stk_qsa_attn_args *a, int64_t t, int dense) {
  if (dense) return a->pos0 + t + 1;
  return a->n_ids[t] < 0 ? -(int64_t)a->n_ids[t] : a->n_ids[t];
}

/* The tokens of a block: sparse ones come first, then dense ones from the last, so that
 * no long work begins late. */
KC_INLINE void set_token(const stk_qsa_attn_args *a, feed *f, qsa_cuda_task *task, int *n_cells, int *n_pieces) {
  const int64_t n_dense = QSA_LISTED ? 0 : stk_qsa_attn_n_dense(a), n_sparse = a->n_tokens - n_dense;
  const int64_t sparse_blocks = qsa_cuda_token_blocks(n_sparse);
  const int dense = kc_block >= sparse_blocks, token = kc_warp / QSA_CUDA_TOKEN_WARPS;
  const int64_t block = dense ? qsa_cuda_token_blocks(n_dense) - 1 - (kc_block - sparse_blocks) : kc_block;
  const int64_t first = (dense ? 0 : n_dense) + block * QSA_CUDA_TOKENS, end = dense ? n_dense : a->n_tokens;
  const int two = first + 1 < end;
  const int n = (int)count_of(a, first, dense), n_second = two ? (int)count_of(a, first + 1, dense) : 0;
  const int longest = n < n_second ? n_second : n;
  task->t = (int)first + token;
  *n_cells = token ? n_second : n;
  task->is_nan = !dense && *n_cells && a->n_ids[task->t] < 0;
  f->n_cells = dense ? longest : *n_cells;
  f->ids = dense || !f->n_cells ? NULL : a->ids + task->t * a->ids_stride;
  f->finds = f->n_cells && kc_warp % (dense ? QSA_CUDA_WARPS : QSA_CUDA_TOKEN_WARPS) == 0;
  f->n_ranks = dense ? BLOCK_THREADS : TOKEN_THREADS;
  f->rank = kc_thread % f->n_ranks;
  *n_pieces = (longest + TILE - 1) / TILE * TILE_PIECES;
  if (!dense) return;
  f->slots -= token * STAGES * PIECE * qsa_cuda_row_bytes(DIM, KIND);
  f->place -= token * 2 * TILE;
}

KC_INLINE void set_heads(const stk_qsa_attn_args *a, feed *f, qsa_cuda_task *task, int n_cells) {
  const int per_kv = a->q_heads / a->kv_heads, groups = qsa_cuda_groups(per_kv, HEADS);
  const int first = (kc_block_y % groups * QSA_CUDA_TOKEN_WARPS + kc_warp % QSA_CUDA_TOKEN_WARPS) * HEADS;
  const int left = per_kv - first;
  f->kv = kc_block_y / groups;
  task->head = f->kv * per_kv + first;
  task->n_heads = !n_cells || left < 0 ? 0 : left < HEADS ? left : HEADS;
}

/* Heads that are not there are the first one again. */
KC_INLINE void load_queries(const stk_qsa_attn_args *a, const qsa_cuda_task *task, float q[HEADS_MAX][ELEMS_MAX]) {
  KC_UNROLL for (int h = 0; h < HEADS_MAX; ++h) {
    const int64_t at = ((int64_t)task->t * a->q_heads + task->head + (h < task->n_heads ? h : 0)) * DIM;
    KC_UNROLL for (int s = 0; s < DIM / 32; ++s) q[h][s] = task->n_heads ? a->q[at + 32 * s + kc_lane] : 0.0f;
  }
}

KC_INLINE void use_piece(const stk_qsa_attn_args *a, const feed *f, const unit *u, int tile, int part, int stage,
                         soft *s) {
  const int row_bytes = qsa_cuda_row_bytes(DIM, KIND), cell = part % HALF_PIECES * PIECE;
  const int n = cells_of_piece(a, u->n_cells, tile, part), left = u->n_cells - tile * TILE;
  const unsigned char *row = f->slots + stage * PIECE * row_bytes;
  const qsa_cuda_place *place = f->place + tile % 2 * TILE + cell;
  if (part < HALF_PIECES) {
    for (int c = 0; c < n; c += BATCH) scores(a, u, row + c * row_bytes, place + c, cell + c);
    if (part == HALF_PIECES - 1) weigh(a, u, left < TILE ? left : TILE, tile % SPLIT_TILES == 0, s);
  } else {
    int c = 0;
    for (; c + VALUE_BATCH <= n; c += VALUE_BATCH)
      values(a, u, row + c * row_bytes, place + c, cell + c, VALUE_BATCH, s);
    for (; c + 2 <= n; c += 2) values(a, u, row + c * row_bytes, place + c, cell + c, 2, s);
    if (c < n) values(a, u, row + c * row_bytes, place + c, cell + c, 1, s);
  }
}

KC_INLINE void attend(const stk_qsa_attn_args *a, feed *f, const unit *u, int n_pieces) {
  soft next;
  sums total = {0.0f, 1.0f};
  next.l = 0.0f;
  int stage = 0, filling = STAGES - 1;
  find_first(a, f);
  kc_sync();
  for (int i = 0; i < STAGES - 1; ++i) {
    copy_piece(a, f, 0, i, i);
    kc_copy_commit();
  }
  for (int piece = 0; piece < n_pieces; ++piece) {
    const int tile = piece / TILE_PIECES, part = piece % TILE_PIECES, ahead = piece + STAGES - 1;
    const int goes_on = u->n_heads && tile * TILE < u->n_cells;
    kc_copy_wait(STAGES - 2);
    kc_sync();
    find(a, f, tile, part);
    copy_piece(a, f, ahead / TILE_PIECES, ahead % TILE_PIECES, filling);
    kc_copy_commit();
    if (goes_on) use_piece(a, f, u, tile, part, stage, &next);
    if (goes_on && part == TILE_PIECES - 1 &&
        (tile % SPLIT_TILES == SPLIT_TILES - 1 || (tile + 1) * TILE >= u->n_cells))
      merge(a, u, tile < SPLIT_TILES, &next, &total);
    stage = stage + 1 < STAGES ? stage + 1 : 0;
    filling = filling + 1 < STAGES ? filling + 1 : 0;
  }
  kc_copy_wait(0);
  if (u->n_heads) finish(a, u, &total);
}

/* Grid: blocks of tokens, and groups of heads. */
KC_KERNEL(QSA_ENTRY, stk_qsa_attn_args, BLOCK_THREADS, 2) {
  const int token = kc_warp / QSA_CUDA_TOKEN_WARPS, row_bytes = qsa_cuda_row_bytes(DIM, KIND);
  KC_SHARED(unsigned char, shared);
  unsigned char *places = shared + QSA_CUDA_TOKENS * STAGES * PIECE * row_bytes;
  unsigned char *tasks = places + QSA_CUDA_TOKENS * 2 * TILE * sizeof(qsa_cuda_place);
  float *floats = (float *)(void *)(tasks + QSA_CUDA_WARPS * sizeof(qsa_cuda_task));
  qsa_cuda_task task;
  int n_pieces;
  feed f;
  unit u;
  f.slots = shared + token * STAGES * PIECE * row_bytes;
  f.place = (qsa_cuda_place *)(void *)places + token * 2 * TILE;
  u.task = (qsa_cuda_task *)(void *)tasks + kc_warp;
  u.score = floats + kc_warp * qsa_cuda_warp_floats(HEADS, DIM);
  u.weights = u.score + HEADS * TILE;
  u.total = u.weights + TILE * HEADS;
  set_token(a, &f, &task, &u.n_cells, &n_pieces);
  set_heads(a, &f, &task, u.n_cells);
  load_queries(a, &task, u.q);
  u.n_heads = task.n_heads;
  if (kc_lane == 0) *u.task = task;
  attend(a, &f, &u, n_pieces);
}
