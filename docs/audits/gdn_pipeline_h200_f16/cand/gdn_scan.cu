/* isa: cuda
 * gdn_scan -- the chosen one with shorter stages, two of them in the background. */
#define GDN_ENTRY gdn_scan_cuda_p2
#define GDN_COLS 2
#define GDN_WARPS 3
#define GDN_PAIRS 8
#define GDN_PREFETCH 2
#define GDN_KEEP_KEYS 1
/* gdn_scan_warp.h -- the body of the gdn_scan kernels for GPUs: the state lives in
 * registers for the whole window.
 *
 * A warp owns 8 * GDN_COLS columns of a head. Lane 8 * b + n holds the rows of
 * block b (a quarter of Dk, one chain of the order rows4) of columns n, n + 8, ...;
 * so a chain never leaves its lane, and eight neighbouring lanes read the same 16
 * bytes of a key, which shared memory serves as one.
 *
 * GDN_WARPS such warps of one key head and one more warp make a block. That warp
 * copies tokens to shared memory GDN_PREFETCH stages of GDN_PAIRS pairs ahead, and
 * follows the scalars (c, s, c1), which depend on the gates alone: per pair it
 * leaves a record with everything that is the same for all columns. Rows of f16 it
 * widens there: it has time, the others have none.
 *
 * A pair has two halves. First the waiting update and the sums with k, then the
 * sums with q. The deltas need the sums with k only: reducing these over the
 * blocks and two divisions, some 130 cycles of latency, happen while the sums with
 * q are made, and the reduction of those while the next pair's keys are used.
 * Branches would keep the compiler from mixing the two, so there is none between.
 *
 * A source defines before it includes this:
 *   GDN_ENTRY     the kernel's name
 *   GDN_COLS      columns of a lane: 1, 2 or 4
 *   GDN_WARPS     computing warps of a block; whole tiles of columns together
 *   GDN_PAIRS     pairs of a stage: divides 32
 *   GDN_PREFETCH  stages ahead: 1 or 2
 *   GDN_KEEP_KEYS 1: the keys of the pair before stay in registers; 0: they are read
 *                 again from shared memory
 * and whoever compiles it GDN_DK, GDN_DV and GDN_ROWS; without them dimensions and type
 * of the rows are run-time values, for tests. */
#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
#include "common/k_cuda_rows.h"
#include "gdn_scan/gdn_scan.h"

#ifdef GDN_DK
#define ROWS (GDN_DK / 4)
#define ROWS_MAX (GDN_DK / 4)
#else
#define ROWS (a->k_dim / 4)
#define ROWS_MAX 64
#endif
#ifdef GDN_ROWS
#define ROW_TYPE GDN_ROWS
#else
#define ROW_TYPE a->rows
#endif
#ifdef GDN_DV
#define COLUMNS GDN_DV
#else
#define COLUMNS w->a->v_dim
#endif

enum {
  COLS = GDN_COLS,
  WARP_COLUMNS = 8 * COLS,
  STAGES = GDN_PREFETCH + 1,
  STAGE_TOKENS = 2 * GDN_PAIRS,
  STAGE_KEYS = STAGE_TOKENS + 2, /* with those of the pair before */
  /* Floats between the blocks of a row in shared memory beyond their rows: the four
   * addresses of a warp's load then lie in different banks. */
  BLOCK_PAD = 4,
  /* A pass over the records of so many warps, and how many passes there are. */
  RECORD_WARPS = 32 / GDN_PAIRS,
  RECORD_PASSES = (GDN_WARPS + RECORD_WARPS - 1) / RECORD_WARPS,
  DOTS = 4,   /* floats for kq, kk, kkq of a token */
  RECORD = 12 /* floats of a pair's record */
};

/* What a record holds. */
enum {
  R_C1, R_C2, R_BETA_EVEN, R_BETA_ODD,
  R_KQ_EVEN, R_KQ_ODD, R_KK, R_KKQ,
  R_A_ODD, R_INV_C1, R_INV_C2, /* 1 / c1, 1 / c2 */
  R_PLAIN /* 1: X needs no factor, and c1 and c2 are not far from 1; else 0 */
};

/* A lane's part of the state: rows of its block, columns n, n + 8, ... */
typedef struct part {
  float x[ROWS_MAX][COLS];
  float k1[ROWS_MAX], k2[ROWS_MAX]; /* keys of the two tokens before */
  float d1[COLS], d2[COLS];         /* what waits */
} part;

/* A warp's columns, and where its lane stands in them. */
typedef struct unit {
  float *tile; /* row 0 of the first tile */
  const void *kn, *qn, *v; /* of token 0; v at the first column */
  const float *dots, *gb;
  void *o;
  int type; /* of the rows, a constant */
  int block, n; /* lane = 8 * block + n */
  int own;      /* the lane finishes column n + 8 * own */
  int later;    /* of the lanes that own a column: writes the odd token's output */
  int in_tile;  /* the unit's first column in its first tile: 0 or 8 */
} unit;

/* One stage of shared memory, in floats. */
typedef struct stage {
  float *k; /* from two tokens before the stage on */
  float *q, *v, *gb, *dots, *record;
} stage;

KC_INLINE int row_floats(int rows) { return 4 * (rows + BLOCK_PAD); }

KC_INLINE int stage_floats(int rows) {
  return (STAGE_KEYS + STAGE_TOKENS) * row_floats(rows) +
         STAGE_TOKENS * (DOTS + GDN_WARPS * (WARP_COLUMNS + 2)) + GDN_WARPS * GDN_PAIRS * RECORD;
}

/* Rows of f16 on their way to a stage: keys, queries, values, without gaps. */
typedef struct raw_stage {
  char *k, *q, *v;
} raw_stage;

KC_INLINE int raw_floats(int rows) {
  return ((STAGE_KEYS + STAGE_TOKENS) * 4 * rows + STAGE_TOKENS * GDN_WARPS * WARP_COLUMNS) / 2;
}

KC_INLINE raw_stage raw_at(float *shared, int index, int rows) {
  raw_stage r;
  r.k = (char *)(shared + STAGES * stage_floats(rows) + index * raw_floats(rows));
  r.q = r.k + STAGE_KEYS * 4 * rows * 2;
  r.v = r.q + STAGE_TOKENS * 4 * rows * 2;
  return r;
}

KC_INLINE stage stage_at(float *shared, int index, int rows) {
  stage s;
  s.k = shared + index * stage_floats(rows);
  s.q = s.k + STAGE_KEYS * row_floats(rows);
  s.v = s.q + STAGE_TOKENS * row_floats(rows);
  s.record = s.v + STAGE_TOKENS * GDN_WARPS * WARP_COLUMNS;
  s.dots = s.record + GDN_WARPS * GDN_PAIRS * RECORD;
  s.gb = s.dots + STAGE_TOKENS * DOTS;
  return s;
}

/* Column n + 8 * c of a row, in a tile that may be the second. */
KC_INLINE float *cell(const unit *u, int rows, int row, int c) {
  const int column = u->in_tile + u->n + 8 * c, tile_floats = (4 * rows + STK_GDN_TILE_ROWS) * STK_GDN_TILE;
  return u->tile + column / STK_GDN_TILE * tile_floats + row * STK_GDN_TILE + column % STK_GDN_TILE;
}

/* ---- sums over the blocks ------------------------------------------------------ */

/* The two steps of rows4's (b0 + b1) + (b2 + b3) for the lane's own column: lanes 8
 * and 16 apart hold the other blocks, and each sends what the other one owns. With four
 * columns the second step chooses between two that the first one left. */
typedef struct blocks {
  float low, high;
} blocks;

KC_INLINE blocks over_pairs(const unit *u, const float sum[COLS]) {
  const int odd = u->block & 1;
  blocks b;
#if GDN_COLS == 1
  (void)odd;
  b.low = sum[0] + kc_shuffle_xor(sum[0], 8);
#else
  b.low = (odd ? sum[1] : sum[0]) + kc_shuffle_xor(odd ? sum[0] : sum[1], 8);
#endif
#if GDN_COLS == 4
  b.high = (odd ? sum[3] : sum[2]) + kc_shuffle_xor(odd ? sum[2] : sum[3], 8);
#else
  b.high = 0.0f;
#endif
  return b;
}

KC_INLINE float over_halves(const unit *u, blocks b) {
#if GDN_COLS == 4
  const int high = u->block >> 1;
  return (high ? b.high : b.low) + kc_shuffle_xor(high ? b.low : b.high, 16);
#else
  (void)u;
  return b.low + kc_shuffle_xor(b.low, 16);
#endif
}

KC_INLINE float over_blocks(const unit *u, const float sum[COLS]) { return over_halves(u, over_pairs(u, sum)); }

/* The reverse: every column's value from the lanes that own it. */
KC_INLINE void to_columns(const unit *u, float own, float all[COLS]) {
  const int odd = u->block & 1;
#if GDN_COLS == 1
  (void)odd;
  all[0] = own;
#else
  float other = kc_shuffle_xor(own, 8);
  float even_column = odd ? other : own, odd_column = odd ? own : other;
#if GDN_COLS == 2
  all[0] = even_column;
  all[1] = odd_column;
#else
  const int high = u->block >> 1;
  float far_even = kc_shuffle_xor(even_column, 16), far_odd = kc_shuffle_xor(odd_column, 16);
  all[0] = high ? far_even : even_column;
  all[1] = high ? far_odd : odd_column;
  all[2] = high ? even_column : far_even;
  all[3] = high ? odd_column : far_odd;
#endif
#endif
}

/* ---- one token, keys and queries from global memory ------------------------------ */

KC_INLINE void scale(part *p, float s, int rows) {
  KC_UNROLL for (int i = 0; i < rows; ++i)
    KC_UNROLL for (int c = 0; c < COLS; ++c) p->x[i][c] = s * p->x[i][c];
}

KC_INLINE void update(part *p, int rows) {
  KC_UNROLL for (int i = 0; i < rows; ++i)
    KC_UNROLL for (int c = 0; c < COLS; ++c)
      p->x[i][c] = ks_fma(p->k2[i], p->d2[c], ks_fma(p->k1[i], p->d1[c], p->x[i][c]));
}

/* The sums with one vector, which begins at element `at`, over the block. */
KC_INLINE float sum_global(const part *p, const unit *u, const void *row, int64_t at, int rows) {
  float sum[COLS];
  KC_UNROLL for (int c = 0; c < COLS; ++c) sum[c] = 0.0f;
  KC_UNROLL for (int g = 0; g < rows / 4; ++g) {
    kc4 e = kc_row_load4(row, at + u->block * rows + 4 * g, u->type);
    KC_UNROLL for (int j = 0; j < 4; ++j)
      KC_UNROLL for (int c = 0; c < COLS; ++c) sum[c] = ks_fma(p->x[4 * g + j][c], e.v[j], sum[c]);
  }
  return over_blocks(u, sum);
}

/* The keys of the two tokens before t. */
KC_INLINE void load_keys(part *p, const unit *u, int64_t t, int rows) {
  const void *k = kc_row_at(u->kn, (t - 2) * 4 * rows + u->block * rows, u->type);
  KC_UNROLL for (int g = 0; g < rows / 4; ++g) {
    kc4 k1 = kc_row_load4(k, 4 * g, u->type), k2 = kc_row_load4(k, 4 * rows + 4 * g, u->type);
    KC_UNROLL for (int j = 0; j < 4; ++j) {
      p->k1[4 * g + j] = k1.v[j];
      p->k2[4 * g + j] = k2.v[j];
    }
  }
}

/* The scalars of the contract, as a warp carries them. */
typedef struct scalars {
  float c, s, c1;
} scalars;

/* The odd token's step of the scalars. */
KC_INLINE void follow(scalars *sc, float c2) {
  const int keep = c2 >= STK_GDN_C_MIN;
  sc->s = keep ? 1.0f : c2;
  sc->c = keep ? c2 : 1.0f;
}

/* What an odd token leaves for the next pair, by plain divisions. */
KC_INLINE void leave(part *p, const unit *u, float half, float w, float delta, float c1, float c2) {
  const int keep = c2 >= STK_GDN_C_MIN;
  to_columns(u, keep ? half / c1 : w, p->d1);
  to_columns(u, keep ? delta / c2 : delta, p->d2);
}

/* An odd token that begins a window: what waits is half a pair. */
KC_INLINE void odd_alone(part *p, const unit *u, scalars *sc, float half, int rows) {
  const int column = u->n + 8 * u->own;
  const float *gb = u->gb, *dots = u->dots;
  float sum_p = sum_global(p, u, u->kn, 0, rows), sum_r = sum_global(p, u, u->qn, 0, rows);
  float c2 = sc->c1 * gb[0], w = gb[0] * half;
  float delta = gb[1] * ks_fma(-dots[1], w, ks_fma(-c2, sum_p, kc_row_load(u->v, column, u->type)));
  float o = ks_fma(dots[0], delta, ks_fma(dots[2], w, c2 * sum_r));
  if (u->block < COLS) kc_row_store(u->o, column, u->type, o);
  leave(p, u, half, w, delta, sc->c1, c2);
  follow(sc, c2);
}

/* An even token that ends a window. Returns half of the lane's own column. */
KC_INLINE float even_alone(part *p, const unit *u, scalars *sc, int64_t t, int64_t dv, int rows) {
  const int64_t dk = 4 * rows, column = u->n + 8 * u->own;
  const float *gb = u->gb + 2 * t, *dots = u->dots + 3 * t;
  if (sc->s != 1.0f) scale(p, sc->s, rows);
  update(p, rows);
  float sum_p = sum_global(p, u, u->kn, t * dk, rows), sum_r = sum_global(p, u, u->qn, t * dk, rows);
  sc->c1 = sc->c * gb[0];
  float half = gb[1] * ks_fma(-sc->c1, sum_p, kc_row_load(u->v, t * dv + column, u->type));
  float o = ks_fma(dots[0], half, sc->c1 * sum_r);
  if (u->block < COLS) kc_row_store(u->o, t * dv + column, u->type, o);
  return half;
}

/* ---- pairs, from shared memory --------------------------------------------------- */

/* Where a warp and its lane stand in shared memory: the keys two tokens before the
 * pair at the lane's block, the pair's record and the even token's value of the lane's
 * own column. */
typedef struct place {
  kc_near k, record, v;
} place;

KC_INLINE place place_of(const unit *u, const stage *s, int rows) {
  place at = {kc_near_of(s->k + u->block * (rows + BLOCK_PAD)), kc_near_of(s->record + kc_warp * GDN_PAIRS * RECORD),
              kc_near_of(s->v + kc_warp * STAGE_TOKENS * WARP_COLUMNS + u->n + 8 * u->own)};
  return at;
}

KC_INLINE void next_pair(place *at, int rows) {
  at->k = kc_near_add(at->k, 2 * row_floats(rows));
  at->record = kc_near_add(at->record, RECORD);
  at->v = kc_near_add(at->v, 2 * WARP_COLUMNS);
}

/* A pair whose output is not written yet: the lane's sums with q, and of its own
 * column what the output is made of. Several lanes own a column; some write the even
 * token's output, some the odd one's, so that no branch is needed. */
typedef struct pending {
  float r_even[COLS], r_odd[COLS];
  float half, w, delta, c1, c2, kq_even, kq_odd, kkq;
  void *o; /* where the lane writes */
} pending;

KC_INLINE void write_output(const unit *u, const pending *y, int64_t dv) {
  float even = ks_fma(y->kq_even, y->half, y->c1 * over_blocks(u, y->r_even));
  float odd = ks_fma(y->kq_odd, y->delta, ks_fma(y->kkq, y->w, y->c2 * over_blocks(u, y->r_odd)));
#if GDN_COLS == 4
  kc_row_store(y->o, 0, u->type, even);
  kc_row_store(y->o, dv, u->type, odd);
#else
  (void)dv;
  kc_row_store(y->o, 0, u->type, u->later ? odd : even);
#endif
}

/* A row's update, and its part of the sums with one vector. A multiply-add of three
 * registers that the one before did not read takes two cycles, so neighbours share one
 * where they can: the columns go forth and back. Who goes which way, and where the queries
 * are cut, was chosen by time (NOTES.md). */
KC_INLINE int forth_or_back(int c, int back) { return back ? COLS - 1 - c : c; }
KC_INLINE void add_row(float x[COLS], float k, const float d[COLS], int back) {
  KC_UNROLL for (int n = 0; n < COLS; ++n) {
    const int c = forth_or_back(n, back);
    x[c] = ks_fma(k, d[c], x[c]);
  }
}
KC_INLINE void sum_row(float sum[COLS], const float x[COLS], float k, int back) {
  KC_UNROLL for (int n = 0; n < COLS; ++n) {
    const int c = forth_or_back(n, back);
    sum[c] = ks_fma(x[c], k, sum[c]);
  }
}

/* Updates X and adds to the sums with the pair's keys, groups g0 .. g1 - 1 of four rows. */
KC_INLINE void keys(part *p, kc_near k, int rows, int g0, int g1, float p_even[COLS], float p_odd[COLS]) {
  const int stride = row_floats(rows);
  KC_UNROLL for (int g = g0; g < g1; ++g) {
#if !GDN_KEEP_KEYS
    kc4 k1 = kc_near_load4(kc_near_add(k, 4 * g)), k2 = kc_near_load4(kc_near_add(k, stride + 4 * g));
    KC_UNROLL for (int j = 0; j < 4; ++j) {
      p->k1[4 * g + j] = k1.v[j];
      p->k2[4 * g + j] = k2.v[j];
    }
#endif
    KC_UNROLL for (int i = 4 * g; i < 4 * g + 4; ++i) add_row(p->x[i], p->k1[i], p->d1, i & 1);
    KC_UNROLL for (int i = 4 * g + 3; i >= 4 * g; --i) add_row(p->x[i], p->k2[i], p->d2, i & 1);
    kc4 even = kc_near_load4(kc_near_add(k, 2 * stride + 4 * g)), odd = kc_near_load4(kc_near_add(k, 3 * stride + 4 * g));
    KC_UNROLL for (int j = 0; j < 4; ++j) {
      const int i = 4 * g + j;
      p->k1[i] = even.v[j];
      p->k2[i] = odd.v[j];
      sum_row(p_even, p->x[i], even.v[j], 0);
      sum_row(p_odd, p->x[i], odd.v[j], 1);
    }
  }
}

/* Four rows of the pair's queries. */
typedef struct query {
  kc4 even, odd;
} query;

KC_INLINE query load_query(kc_near k, int rows, int g) {
  const kc_near q = kc_near_add(k, STAGE_KEYS * row_floats(rows) + 4 * g);
  query r = {kc_near_load4(q), kc_near_load4(kc_near_add(q, row_floats(rows)))};
  return r;
}

KC_INLINE void use_query(const part *p, query q, int g, pending *y) {
  KC_UNROLL for (int j = 0; j < 4; ++j) {
    sum_row(y->r_even, p->x[4 * g + j], q.even.v[j], !(j & 1));
    sum_row(y->r_odd, p->x[4 * g + j], q.odd.v[j], 1);
  }
}

/* The sums with the queries of groups g0 .. g1 - 1. */
KC_INLINE void queries(const part *p, kc_near k, int rows, int g0, int g1, pending *y) {
  KC_UNROLL for (int g = g0; g < g1; ++g) use_query(p, load_query(k, rows, g), g, y);
}

/* One pair. y is the pair before, and becomes this one. True if the quick way of
 * dividing does not do, or X needs the factor s: finish_pair is due. */
KC_INLINE int pair(part *p, const unit *u, const place *at, void *o, int64_t dv, int rows, pending *y) {
  const kc4 cs = kc_near_load4(at->record), dots = kc_near_load4(kc_near_add(at->record, R_KQ_EVEN));
  const kc4 rest = kc_near_load4(kc_near_add(at->record, R_A_ODD));
  const float v_even = kc_near_load(at->v), v_odd = kc_near_load(kc_near_add(at->v, WARP_COLUMNS));
  const int n = rows / 4;
  float p_even[COLS], p_odd[COLS];
  KC_UNROLL for (int c = 0; c < COLS; ++c) p_even[c] = p_odd[c] = 0.0f;
  keys(p, at->k, rows, 0, n - 1, p_even, p_odd);
  const query q0 = load_query(at->k, rows, 0), q1 = load_query(at->k, rows, 1);
  keys(p, at->k, rows, n - 1, n, p_even, p_odd);
  write_output(u, y, dv);
  KC_UNROLL for (int c = 0; c < COLS; ++c) y->r_even[c] = y->r_odd[c] = 0.0f;
  y->o = o;
  y->c1 = cs.v[0];
  y->c2 = cs.v[1];
  y->kq_even = dots.v[0];
  y->kq_odd = dots.v[1];
  y->kkq = dots.v[3];
  const blocks even_pairs = over_pairs(u, p_even), odd_pairs = over_pairs(u, p_odd);
  use_query(p, q0, 0, y);
  const float first = over_halves(u, even_pairs), second = over_halves(u, odd_pairs);
  use_query(p, q1, 1, y);
  y->half = cs.v[2] * ks_fma(-y->c1, first, v_even);
  y->w = rest.v[0] * y->half;
  y->delta = cs.v[3] * ks_fma(-dots.v[2], y->w, ks_fma(-y->c2, second, v_odd));
  const float d1 = kc_divide_near(y->half, y->c1, rest.v[1]), d2 = kc_divide_near(y->delta, y->c2, rest.v[2]);
  queries(p, at->k, rows, 2, n - n / 8, y);
  to_columns(u, d1, p->d1);
  to_columns(u, d2, p->d2);
  queries(p, at->k, rows, n - n / 8, n, y);
  return kc_any(!((rest.v[3] != 0.0f) & kc_are_near(y->half, y->delta)));
}

/* more: another pair follows. X then gets here the factor that the contract applies
 * before the next update. */
KC_INLINE void finish_pair(part *p, const unit *u, const pending *y, int more, int rows) {
  leave(p, u, y->half, y->w, y->delta, y->c1, y->c2);
  if (more && !(y->c2 >= STK_GDN_C_MIN) && y->c2 != 1.0f) scale(p, y->c2, rows);
}

/* ---- a block ------------------------------------------------------------------------ */

/* Unit `index` of key head kh: columns WARP_COLUMNS * index on of its value heads. */
KC_INLINE unit unit_at(const stk_gdn_scan_args *a, int64_t kh, int64_t index, int rows, int type) {
  const int64_t T = a->n_tokens, dk = 4 * rows, dv = a->v_dim;
  const int64_t h = kh * (a->v_heads / a->k_heads) + index * WARP_COLUMNS / dv;
  const int64_t column = index * WARP_COLUMNS % dv;
  const int64_t tile_floats = (dk + STK_GDN_TILE_ROWS) * STK_GDN_TILE;
  unit u;
  u.tile = a->state + (h * (dv / STK_GDN_TILE) + column / STK_GDN_TILE) * tile_floats;
  u.type = type;
  u.kn = kc_row_at(a->kn, (kh * (T + 2) + 2) * dk, type);
  u.qn = kc_row_at(a->qn, kh * T * dk, type);
  u.dots = a->kq + kh * T * 3;
  u.gb = a->gb + h * T * 2;
  u.v = kc_row_at(a->vc, h * T * dv + column, type);
  u.o = kc_row_into(a->o, h * T * dv + column, type);
  u.in_tile = (int)(column % STK_GDN_TILE);
  u.block = kc_lane / 8;
  u.n = kc_lane % 8;
  u.own = u.block % COLS;
  u.later = COLS == 4 ? 0 : u.block / COLS % 2;
  return u;
}

KC_INLINE float *scalar_row(const unit *u, int rows) {
  return u->tile + (4 * rows + STK_GDN_ROW_SCALARS) * STK_GDN_TILE;
}

KC_INLINE scalars load_scalars(const unit *u, int rows) {
  const float *row = scalar_row(u, rows);
  scalars sc = {row[STK_GDN_C], row[STK_GDN_S], row[STK_GDN_C1]};
  if (sc.c == 0.0f) sc.c = sc.s = 1.0f;
  return sc;
}

/* The scalars of a tile belong to whoever has its last column. */
KC_INLINE void store_scalars(const unit *u, int rows, scalars sc) {
  const int tile = kc_lane, n_tiles = (u->in_tile + WARP_COLUMNS) / STK_GDN_TILE;
  if (tile >= n_tiles) return;
  float *row = scalar_row(u, rows) + tile * (4 * rows + STK_GDN_TILE_ROWS) * STK_GDN_TILE;
  row[STK_GDN_C] = sc.c;
  row[STK_GDN_S] = sc.s;
  row[STK_GDN_C1] = sc.c1;
}

KC_INLINE void load_state(part *p, const unit *u, int rows) {
  KC_UNROLL for (int i = 0; i < rows; ++i)
    KC_UNROLL for (int c = 0; c < COLS; ++c) p->x[i][c] = *cell(u, rows, u->block * rows + i, c);
  KC_UNROLL for (int c = 0; c < COLS; ++c) {
    p->d1[c] = *cell(u, rows, 4 * rows + STK_GDN_ROW_D1, c);
    p->d2[c] = *cell(u, rows, 4 * rows + STK_GDN_ROW_D2, c);
  }
}

KC_INLINE void store_state(const part *p, const unit *u, float half, int rows) {
  KC_UNROLL for (int i = 0; i < rows; ++i)
    KC_UNROLL for (int c = 0; c < COLS; ++c) *cell(u, rows, u->block * rows + i, c) = p->x[i][c];
  KC_UNROLL for (int c = 0; c < COLS; ++c)
    if (u->block == 0) {
      *cell(u, rows, 4 * rows + STK_GDN_ROW_D1, c) = p->d1[c];
      *cell(u, rows, 4 * rows + STK_GDN_ROW_D2, c) = p->d2[c];
    }
  if (u->block < COLS) *cell(u, rows, 4 * rows + STK_GDN_ROW_HALF, u->own) = half;
}

/* What a block does: units first .. first + n_units - 1 of key head kh; an odd
 * token, pairs from t0 on, an even token. */
typedef struct job {
  const stk_gdn_scan_args *a;
  float *shared;
  int64_t kh, first, t0, n_pairs;
  int n_units, odd_first, even_last, type;
} job;

/* ---- the copying warp -------------------------------------------------------------- */

/* Where the units' values and gates lie: 64-bit divisions, once for all stages. */
typedef struct sources {
  const void *v[GDN_WARPS];
  const float *gb[GDN_WARPS];
} sources;

/* Where four elements, number i of those of consecutive rows, lie in a stage: a row is in
 * its four blocks. */
KC_INLINE int in_blocks(int i, int rows) {
  const int t = i / rows, four = i % rows, block_fours = rows / 4;
  return t * row_floats(rows) + four / block_fours * (rows + BLOCK_PAD) + four % block_fours * 4;
}

/* In a loop over j of which lanes 0 .. 31 take j .. j + 31: nothing is left of n. Asked for
 * each 256 only: the loop stays one run of copies, but a short window does not go through
 * those of a whole stage. */
KC_INLINE int is_over(int j, int n) { return j % 256 == 0 && j >= n; }

/* Copies n of at most n_max rows of Dk elements, of f32 to their blocks in a stage, of f16
 * as they lie. */
KC_INLINE void copy_rows(float *to, char *raw, const void *from, int n, int n_max, int rows, int type) {
  const int row_pieces = rows * kc_row_bytes(type) / 4; /* of 16 bytes */
  KC_UNROLL for (int j = 0; j < n_max * row_pieces; j += 32) {
    const int i = j + kc_lane;
    if (is_over(j, n * row_pieces)) break;
    void *into = type == STK_F16 ? (void *)(raw + 16 * i) : (void *)(to + in_blocks(i, rows));
    if (i < n * row_pieces) kc_copy16(into, (const char *)from + 16 * i);
  }
}

/* Values of the units, in a stage or in raw a token's WARP_COLUMNS behind each other. */
KC_INLINE void copy_values(const stage *s, char *raw, const sources *from, int64_t t, int n, int n_units, int64_t dv, int type) {
  const int piece_elements = 16 / kc_row_bytes(type), token_pieces = WARP_COLUMNS / piece_elements;
  const int unit_pieces = STAGE_TOKENS * token_pieces;
  char *to = type == STK_F16 ? raw : (char *)s->v;
  KC_UNROLL for (int j = 0; j < GDN_WARPS * unit_pieces; j += 32) {
    const int i = j + kc_lane, k = i / unit_pieces, token = i % unit_pieces / token_pieces, piece = i % token_pieces;
    if (k < n_units && token < n)
      kc_copy16(to + 16 * i, kc_row_at(from->v[k], (t + token) * dv + piece_elements * piece, type));
  }
  KC_UNROLL for (int j = 0; j < GDN_WARPS * STAGE_TOKENS; j += 32) {
    const int i = j + kc_lane, k = i / STAGE_TOKENS, token = i % STAGE_TOKENS;
    if (k < n_units && token < n) kc_copy8(s->gb + 2 * i, from->gb[k] + 2 * (t + token));
  }
}

/* Tokens of a stage; none or fewer than none behind the last one. */
KC_INLINE int stage_tokens(const job *w, int64_t index) {
  const int64_t left = 2 * w->n_pairs - index * STAGE_TOKENS;
  return left < STAGE_TOKENS ? (int)left : STAGE_TOKENS;
}

KC_INLINE void copy_stage(const job *w, const unit *u, const sources *from, int64_t index, int rows) {
  const int64_t t = w->t0 + index * STAGE_TOKENS;
  const int n = stage_tokens(w, index);
  const stage s = stage_at(w->shared, (int)(index % STAGES), rows);
  const raw_stage raw = raw_at(w->shared, (int)(index % GDN_PREFETCH), rows);
  if (n <= 0) return;
  copy_rows(s.k, raw.k, kc_row_at(u->kn, (t - 2) * 4 * rows, u->type), n + 2, STAGE_KEYS, rows, u->type);
  copy_rows(s.q, raw.q, kc_row_at(u->qn, t * 4 * rows, u->type), n, STAGE_TOKENS, rows, u->type);
  KC_UNROLL for (int j = 0; j < 3 * STAGE_TOKENS; j += 32) {
    const int i = j + kc_lane;
    if (i < 3 * n) kc_copy4(s.dots + i / 3 * DOTS + i % 3, u->dots + 3 * t + i);
  }
  copy_values(&s, raw.v, from, t, n, w->n_units, w->a->v_dim, u->type);
}

/* Four at a time, n elements of f16 to their places in a stage. */
KC_INLINE void widen_rows(float *to, const char *raw, int n, int n_max, int rows) {
  KC_UNROLL for (int j = 0; j < n_max * rows; j += 32) {
    const int i = j + kc_lane;
    if (is_over(j, n * rows)) break;
    if (i < n * rows) kc_store4(to + in_blocks(i, rows), kc_row_load4(raw, 4 * i, STK_F16));
  }
}

/* A stage's rows of f16, which have arrived. */
KC_INLINE void widen_stage(const job *w, int64_t index, int rows) {
  const stage s = stage_at(w->shared, (int)(index % STAGES), rows);
  const raw_stage raw = raw_at(w->shared, (int)(index % GDN_PREFETCH), rows);
  const int n = stage_tokens(w, index);
  widen_rows(s.k, raw.k, n + 2, STAGE_KEYS, rows);
  widen_rows(s.q, raw.q, n, STAGE_TOKENS, rows);
  KC_UNROLL for (int i = 0; i < STAGE_TOKENS * GDN_WARPS * WARP_COLUMNS / 4; i += 32)
    kc_store4(s.v + 4 * (i + kc_lane), kc_row_load4(raw.v, 4 * (i + kc_lane), STK_F16));
}

/* Follows the scalars of a warp over a stage (of which this lane knows pair own) and
 * leaves that pair's record. */
KC_INLINE void write_record(const stage *s, int warp, int own, int n_pairs, scalars *sc) {
  const float *gb = s->gb + warp * STAGE_TOKENS * 2, *token = gb + 4 * own;
  const float *dots = s->dots + 2 * own * DOTS;
  float *record = s->record + (warp * GDN_PAIRS + own) * RECORD;
  float c1_own = 0.0f, c2_own = 0.0f;
  KC_UNROLL for (int m = 0; m < GDN_PAIRS; ++m) {
    if (m >= n_pairs) break;
    const float c1 = sc->c * gb[4 * m], c2 = c1 * gb[4 * m + 2];
    if (m == own) {
      c1_own = c1;
      c2_own = c2;
    }
    follow(sc, c2);
  }
  if (own >= n_pairs) return;
  record[R_C1] = c1_own;
  record[R_C2] = c2_own;
  record[R_BETA_EVEN] = token[1];
  record[R_BETA_ODD] = token[3];
  record[R_KQ_EVEN] = dots[0];
  record[R_KQ_ODD] = dots[DOTS];
  record[R_KK] = dots[DOTS + 1];
  record[R_KKQ] = dots[DOTS + 2];
  record[R_A_ODD] = token[2];
  record[R_INV_C1] = 1.0f / c1_own;
  record[R_INV_C2] = 1.0f / c2_own;
  record[R_PLAIN] = c2_own >= STK_GDN_C_MIN && kc_is_near_one(c1_own) && kc_is_near_one(c2_own) ? 1.0f : 0.0f;
}

/* Before barrier n stage n is ready; behind it the others have left stage n - 1, so
 * its memory takes stage n - 1 + STAGES. */
KC_INLINE void feed(const job *w, int rows) {
  const int64_t n_stages = (w->n_pairs + GDN_PAIRS - 1) / GDN_PAIRS;
  const int own = kc_lane % GDN_PAIRS;
  const int raw = w->type == STK_F16 ? GDN_PREFETCH * raw_floats(rows) : 0;
  sources *from = (sources *)(void *)(w->shared + STAGES * stage_floats(rows) + raw);
  const unit first = unit_at(w->a, w->kh, w->first, rows, w->type);
  scalars sc[RECORD_PASSES];
  KC_UNROLL for (int pass = 0; pass < RECORD_PASSES; ++pass) {
    const int warp = pass * RECORD_WARPS + kc_lane / GDN_PAIRS;
    const unit u = unit_at(w->a, w->kh, w->first + (warp < w->n_units ? warp : 0), rows, w->type);
    sc[pass] = load_scalars(&u, rows);
    if (w->odd_first) follow(&sc[pass], sc[pass].c1 * u.gb[0]);
    if (own == 0 && warp < w->n_units) {
      from->v[warp] = u.v;
      from->gb[warp] = u.gb;
    }
  }
  kc_sync_warp(); /* from is for all lanes */
  for (int64_t n = 0; n < STAGES - 1; ++n) {
    copy_stage(w, &first, from, n, rows);
    kc_copy_commit();
  }
  /* All scalars are read: compute waits here, too, before it goes on to write some. */
  kc_sync();
  for (int64_t n = 0; n < n_stages; ++n) {
    const stage s = stage_at(w->shared, (int)(n % STAGES), rows);
    const int64_t left = w->n_pairs - n * GDN_PAIRS;
    kc_copy_wait(STAGES - 2);
    kc_sync_warp();
    if (w->type == STK_F16) widen_stage(w, n, rows);
    KC_UNROLL for (int pass = 0; pass < RECORD_PASSES; ++pass) {
      const int warp = pass * RECORD_WARPS + kc_lane / GDN_PAIRS;
      if (warp < w->n_units) write_record(&s, warp, own, left < GDN_PAIRS ? (int)left : GDN_PAIRS, &sc[pass]);
    }
    kc_sync();
    copy_stage(w, &first, from, n + STAGES - 1, rows);
    kc_copy_commit();
  }
}

/* ---- a computing warp ---------------------------------------------------------------- */

KC_INLINE void compute_pairs(part *p, const unit *u, const job *w, int rows, scalars *sc, float *half) {
  const int64_t dv = COLUMNS;
  pending y;
  if (w->n_pairs == 0) return;
  if (sc->s != 1.0f) scale(p, sc->s, rows);
  KC_UNROLL for (int c = 0; c < COLS; ++c) y.r_even[c] = y.r_odd[c] = 0.0f;
  y.half = y.w = y.delta = y.c1 = y.c2 = y.kq_even = y.kq_odd = y.kkq = 0.0f;
  /* What the first pair writes as the output of the one before, it overwrites. */
  void *o = y.o = kc_row_into(u->o, (w->t0 + u->later) * dv + u->n + 8 * u->own, u->type);
  for (int64_t left = w->n_pairs, n = 0; left > 0; left -= GDN_PAIRS, ++n) {
    const stage s = stage_at(w->shared, (int)(n % STAGES), rows);
    place at = place_of(u, &s, rows);
    kc_sync();
    for (int m = left < GDN_PAIRS ? (int)left : GDN_PAIRS; m > 0;) {
      int due;
      /* One branch a pair: each costs some twenty cycles of waiting for instructions. */
      do {
        due = pair(p, u, &at, o, dv, rows, &y);
        next_pair(&at, rows);
        o = kc_row_into(o, 2 * dv, u->type);
        --m;
      } while ((m > 0) & !due);
      if (kc_rarely(due)) finish_pair(p, u, &y, m > 0 || left > GDN_PAIRS, rows);
    }
  }
  write_output(u, &y, dv);
  *half = y.half;
  follow(sc, y.c2);
  sc->c1 = y.c1;
}

KC_INLINE void compute(const job *w, int rows) {
  const unit u = unit_at(w->a, w->kh, w->first + kc_warp, rows, w->type);
  const int64_t dv = w->a->v_dim;
  part p;
  scalars sc = load_scalars(&u, rows);
  float half = *cell(&u, rows, 4 * rows + STK_GDN_ROW_HALF, u.own);
  load_state(&p, &u, rows);
  if (GDN_KEEP_KEYS) load_keys(&p, &u, w->t0, rows);
  /* All of a tile's scalars are read before any are written. */
  kc_sync();
  if (w->odd_first) odd_alone(&p, &u, &sc, half, rows);
  compute_pairs(&p, &u, w, rows, &sc, &half);
  if (!GDN_KEEP_KEYS && w->even_last) load_keys(&p, &u, w->a->n_tokens - 1, rows);
  if (w->even_last) half = even_alone(&p, &u, &sc, w->a->n_tokens - 1, dv, rows);
  store_state(&p, &u, half, rows);
  store_scalars(&u, rows, sc);
}

/* Grid: blocks of units, key heads. */
KC_KERNEL(GDN_ENTRY, stk_gdn_scan_args, 32 * (GDN_WARPS + 1), 1) {
  const int rows = ROWS;
  const int64_t n_units = (int64_t)(a->v_heads / a->k_heads) * a->v_dim / WARP_COLUMNS;
  KC_SHARED(float, shared);
  job w;
  w.a = a;
  w.shared = shared;
  w.type = ROW_TYPE;
  w.kh = kc_block_y;
  w.first = (int64_t)kc_block * GDN_WARPS;
  w.n_units = n_units - w.first < GDN_WARPS ? (int)(n_units - w.first) : GDN_WARPS;
  w.odd_first = a->pos0 & 1;
  w.t0 = w.odd_first;
  w.n_pairs = (a->n_tokens - w.t0) / 2;
  w.even_last = (int)((a->n_tokens - w.t0) & 1);
  if (kc_warp == GDN_WARPS) feed(&w, rows);
  else if (kc_warp < w.n_units) compute(&w, rows);
  else
    for (int64_t n = -1; n < (w.n_pairs + GDN_PAIRS - 1) / GDN_PAIRS; ++n) kc_sync();
}
