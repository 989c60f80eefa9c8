/* qsa_decode_split.h -- what the kernels of qsa_decode for GPUs share: a split whose
 * eight tiles belong to eight warps. Nothing waits for the tile before: the tiles'
 * maxima meet in shared memory, and each warp follows the running one by itself.
 *
 * Whoever compiles it defines QSA_DIM, QSA_HEADS (of a block) and QSA_KIND; without
 * them a source says which of the args' values HEADS is. */
#ifndef QSA_DECODE_SPLIT_H
#define QSA_DECODE_SPLIT_H

#include "qsa_attn/qsa_attn_lanes.h"
#include "qsa_decode/qsa_decode_cuda.h"

#ifdef QSA_DIM
#define DIM QSA_DIM
#define HEADS QSA_HEADS
#define KIND QSA_KIND
#define ELEMS_MAX (QSA_DIM / 32)
#else
#define DIM a->head_dim
#define KIND a->kv_kind
#define ELEMS_MAX 16
#endif

enum {
  TILE = STK_ATTN_TILE,
  TILES = QSA_DECODE_WARPS,
  THREADS = 32 * QSA_DECODE_WARPS,
  PASS = 6, /* heads that a lane has numbers of at a time */
  BATCH = 4 /* keys that are scored together */
};

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

/* `heads` heads' part of the shared memory from p on, in floats. */
KC_INLINE void set_memory(split *s, float *p, int heads) {
  const int even = heads + heads % 2;
  s->place = (qsa_cuda_place *)(void *)p;
  s->score = p + STK_ATTN_SPLIT * sizeof(qsa_cuda_place) / sizeof(float);
  s->weights = s->score + heads * STK_ATTN_SPLIT;
  s->largest = s->weights + even * STK_ATTN_SPLIT;
  s->factor = s->largest + heads * TILES;
  s->sum = s->factor + heads * TILES;
}

/* Split `number` of token t for heads first .. of kv head kv; false if the list has
 * no such split. heads is a constant. */
KC_INLINE int set_split(const stk_qsa_attn_args *a, split *s, int64_t t, int number, int kv, int first, int heads) {
  const int per_kv = a->q_heads / a->kv_heads;
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

KC_INLINE int cells_of_tile(const split *s, int tile) {
  const int left = s->n_cells - tile * TILE;
  return left < 0 ? 0 : left < TILE ? left : TILE;
}

/* Looks up the cell of this thread. */
KC_INLINE void find_cell(const stk_qsa_attn_args *a, const split *s, int at) {
  if (at < s->n_cells) s->place[at] = place_of(a, s->kv, s->ids ? s->ids[s->from + at] : s->from + at, DIM, KIND);
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Elements l, l + 32, ... of heads first .. first + n - 1 of the split's; one that is
 * not there is the first of all. */
KC_INLINE void load_queries(const stk_qsa_attn_args *a, const split *s, int first, int n, float q[PASS][ELEMS_MAX]) {
  KC_UNROLL for (int h = 0; h < n; ++h)
    KC_UNROLL for (int e = 0; e < DIM / 32; ++e)
      q[h][e] = a->q[(s->row + (first + h < s->n_heads ? first + h : 0)) * DIM + 32 * e + kc_lane];
}

/* The same of BATCH keys from number `cell` on; those beyond the tile's n are its last. */
KC_INLINE void load_keys(const stk_qsa_attn_args *a, const qsa_cuda_place *place, int cell, int n,
                         float k[BATCH][ELEMS_MAX]) {
  KC_UNROLL for (int c = 0; c < BATCH; ++c) {
    const qsa_cuda_place p = place[cell + c < n ? cell + c : n - 1];
    KC_UNROLL for (int e = 0; e < DIM / 32; ++e) load_numbers(p.data, p.scales, KIND, 32 * e + kc_lane, 1, &k[c][e]);
  }
}

/* The score that this lane has of n heads and BATCH keys: of head i % n and key i / n,
 * where i is sum_index(BATCH * n). */
KC_INLINE float score_keys(const stk_qsa_attn_args *a, float q[PASS][ELEMS_MAX], float k[BATCH][ELEMS_MAX], int n) {
  float sum[BATCH * PASS];
  (void)a;
  KC_UNROLL for (int c = 0; c < BATCH; ++c)
    KC_UNROLL for (int h = 0; h < n; ++h) {
      float chain = q[h][0] * k[c][0];
      KC_UNROLL for (int e = 1; e < DIM / 32; ++e) chain = ks_fma(q[h][e], k[c][e], chain);
      sum[c * n + h] = chain;
    }
  return sum_each(sum, BATCH * n) * kc_inverse_sqrt(DIM);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The lane's scores of heads first .. in a warp's tile, and the tile's maxima. */
KC_INLINE void find_largest(const split *s, int first, int n_heads, int tile, int n, float score[PASS]) {
  const int cell = tile * TILE + (kc_lane < n ? kc_lane : 0);
  float m[PASS];
  KC_UNROLL for (int h = 0; h < n_heads; ++h) m[h] = score[h] = s->score[(first + h) * STK_ATTN_SPLIT + cell];
  KC_UNROLL for (int half = 16; half; half /= 2)
    KC_UNROLL for (int h = 0; h < n_heads; ++h) m[h] = larger(m[h], kc_shuffle_xor(m[h], half));
  /* Among equals the lowest lane's decides, which only lane 0 can know. */
  KC_UNROLL for (int h = 0; h < n_heads; ++h)
    if (kc_lane == 0) s->largest[(first + h) * TILES + tile] = m[h];
}

/* The running maxima before and at a tile. */
KC_INLINE void follow_largest(const float *largest, int tile, float *before, float *m) {
  *before = *m = largest[0];
  for (int i = 1; i <= tile; ++i) {
    *before = *m;
    *m = larger(*m, largest[i]);
  }
}

/* first is even. */
KC_INLINE void weigh(const split *s, int first, int n_heads, int tile, int n, const float score[PASS]) {
  float e[PASS], f = 0.0f;
  KC_UNROLL for (int h = 0; h < n_heads; ++h) {
    float before, m;
    follow_largest(s->largest + (first + h) * TILES, tile, &before, &m);
    e[h] = ks_exp(score[h] - m);
    if (kc_lane >= n) e[h] = 0.0f;
    if (kc_lane == h) f = before - m;
  }
  KC_UNROLL for (int h = 0; h < n_heads; h += 2) {
    const kc2 two = {{e[h], h + 1 < n_heads ? e[h + 1] : 0.0f}};
    kc_store2(s->weights + (first + h) * STK_ATTN_SPLIT + 2 * (tile * TILE + kc_lane), two);
  }
  kc_lanes_sums(e, n_heads);
  f = ks_exp(f);
  KC_UNROLL for (int h = 0; h < n_heads; ++h)
    if (kc_lane == h) {
      s->factor[(first + h) * TILES + tile] = f;
      s->sum[(first + h) * TILES + tile] = e[h];
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

#endif
