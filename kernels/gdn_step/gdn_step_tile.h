/* gdn_step_tile.h -- one token of one tile of 16 columns, by one warp, for the GPU
 * kernels of gdn_step.
 *
 * Lane 8 * b + n has the rows of block b of columns 2n and 2n + 1. All that is read
 * is asked for before the first of it is used: a step waits for memory and for little
 * else. */
#ifndef GDN_STEP_TILE_H
#define GDN_STEP_TILE_H

#include "common/k_cuda.h"
#include "common/k_cuda_rows.h"
#include "gdn_step/gdn_step.h"

#ifdef GDN_DK
#define STEP_ROWS(a) (GDN_DK / 4)
#define STEP_ROWS_MAX (GDN_DK / 4)
#define STEP_TYPE(a) GDN_ROWS
#else
#define STEP_ROWS(a) ((a)->k_dim / 4)
#define STEP_ROWS_MAX 64
#define STEP_TYPE(a) ((a)->rows)
#endif

/* What a lane reads of the token and the tile. */
typedef struct step_input {
  kc2 x[STEP_ROWS_MAX];
  kc4 k1[STEP_ROWS_MAX / 4], k2[STEP_ROWS_MAX / 4], k[STEP_ROWS_MAX / 4], q[STEP_ROWS_MAX / 4];
  kc2 d1, d2, half, v;
  float c, s, c1, a, beta, kq, kk, kkq;
} step_input;

/* rows4's (b0 + b1) + (b2 + b3) of two sums for two columns, the same in all blocks. */
KC_INLINE void step_over_blocks(kc2 *p, kc2 *r) {
  KC_UNROLL for (int mask = 8; mask <= 16; mask *= 2)
    KC_UNROLL for (int n = 0; n < 2; ++n) {
      p->v[n] = p->v[n] + kc_shuffle_xor(p->v[n], mask);
      r->v[n] = r->v[n] + kc_shuffle_xor(r->v[n], mask);
    }
}

/* Updates X, if update, and makes the sums with k and q over the lane's block. */
KC_INLINE void step_sums(step_input *in, int rows, int update, kc2 *p, kc2 *r) {
  KC_UNROLL for (int n = 0; n < 2; ++n) p->v[n] = r->v[n] = 0.0f;
  KC_UNROLL for (int i = 0; i < rows; ++i)
    KC_UNROLL for (int n = 0; n < 2; ++n) {
      float *e = &in->x[i].v[n];
      if (update) *e = ks_fma(in->k2[i / 4].v[i % 4], in->d2.v[n], ks_fma(in->k1[i / 4].v[i % 4], in->d1.v[n], *e));
      p->v[n] = ks_fma(*e, in->k[i / 4].v[i % 4], p->v[n]);
      r->v[n] = ks_fma(*e, in->q[i / 4].v[i % 4], r->v[n]);
    }
}

/* Where a lane's part of a tile lies. */
typedef struct step_place {
  float *x;      /* row 0 of the lane's block, its first column */
  float *extra;  /* row Dk, the lane's first column */
  float *stored; /* the row of scalars */
  int block, column;
} step_place;

/* Tile `index` of all heads' tiles. */
KC_INLINE step_place step_at(const stk_gdn_step_args *a, int index, int rows) {
  float *tile = a->state + (int64_t)index * (4 * rows + STK_GDN_TILE_ROWS) * STK_GDN_TILE;
  step_place at;
  at.block = kc_lane / 8;
  at.column = kc_lane % 8 * 2;
  at.x = tile + at.block * rows * STK_GDN_TILE + at.column;
  at.extra = tile + 4 * rows * STK_GDN_TILE + at.column;
  at.stored = tile + (4 * rows + STK_GDN_ROW_SCALARS) * STK_GDN_TILE;
  return at;
}

KC_INLINE void step_load_state(step_input *in, const step_place *at, int rows) {
  KC_UNROLL for (int i = 0; i < rows; ++i) in->x[i] = kc_load2(at->x + i * STK_GDN_TILE);
  in->d1 = kc_load2(at->extra + STK_GDN_ROW_D1 * STK_GDN_TILE);
  in->d2 = kc_load2(at->extra + STK_GDN_ROW_D2 * STK_GDN_TILE);
  in->half = kc_load2(at->extra + STK_GDN_ROW_HALF * STK_GDN_TILE);
  in->c = at->stored[STK_GDN_C];
  in->s = at->stored[STK_GDN_S];
  in->c1 = at->stored[STK_GDN_C1];
}

/* Four at a time, the part that belongs to the lane's block of a row that begins at
 * element `at`. */
KC_INLINE void step_load_vector(kc4 *to, const void *row, int64_t at, int block, int rows, int type) {
  row = kc_row_at(row, at + block * rows, type);
  KC_UNROLL for (int g = 0; g < rows / 4; ++g) to[g] = kc_row_load4(row, 4 * g, type);
}

/* The token, of which everything is read. Gives the outputs of the lane's columns; X is
 * written here, what waits and the scalars stay in `in`. */
KC_INLINE kc2 step_compute(step_input *in, const step_place *at, int even, int rows) {
  kc2 p, r, o;
  if (in->c == 0.0f) in->c = in->s = 1.0f;
  if (even) {
    if (in->s != 1.0f)
      KC_UNROLL for (int i = 0; i < rows; ++i)
        KC_UNROLL for (int n = 0; n < 2; ++n) in->x[i].v[n] = in->s * in->x[i].v[n];
    step_sums(in, rows, 1, &p, &r);
    KC_UNROLL for (int i = 0; i < rows; ++i) kc_store2(at->x + i * STK_GDN_TILE, in->x[i]);
    step_over_blocks(&p, &r);
    in->c1 = in->c * in->a;
    KC_UNROLL for (int n = 0; n < 2; ++n) {
      in->half.v[n] = in->beta * ks_fma(-in->c1, p.v[n], in->v.v[n]);
      o.v[n] = ks_fma(in->kq, in->half.v[n], in->c1 * r.v[n]);
    }
    return o;
  }
  step_sums(in, rows, 0, &p, &r);
  step_over_blocks(&p, &r);
  const float c2 = in->c1 * in->a;
  const int keep = c2 >= STK_GDN_C_MIN;
  KC_UNROLL for (int n = 0; n < 2; ++n) {
    const float w = in->a * in->half.v[n];
    const float delta = in->beta * ks_fma(-in->kk, w, ks_fma(-c2, p.v[n], in->v.v[n]));
    o.v[n] = ks_fma(in->kq, delta, ks_fma(in->kkq, w, c2 * r.v[n]));
    in->d1.v[n] = keep ? in->half.v[n] / in->c1 : w;
    in->d2.v[n] = keep ? delta / c2 : delta;
  }
  in->s = keep ? 1.0f : c2;
  in->c = keep ? c2 : 1.0f;
  return o;
}

/* Everything but X, once all lanes have read it. */
KC_INLINE void step_store(const step_input *in, const step_place *at) {
  if (at->block) return;
  kc_store2(at->extra + STK_GDN_ROW_D1 * STK_GDN_TILE, in->d1);
  kc_store2(at->extra + STK_GDN_ROW_D2 * STK_GDN_TILE, in->d2);
  kc_store2(at->extra + STK_GDN_ROW_HALF * STK_GDN_TILE, in->half);
  if (kc_lane) return;
  at->stored[STK_GDN_C] = in->c;
  at->stored[STK_GDN_S] = in->s;
  at->stored[STK_GDN_C1] = in->c1;
}

KC_INLINE void step_tile(const stk_gdn_step_args *a, int index) {
  const int rows = STEP_ROWS(a), dk = 4 * rows, tiles = a->v_dim / STK_GDN_TILE;
  const int h = index / tiles, kh = h / (a->v_heads / a->k_heads), even = !(a->pos0 & 1);
  const int type = STEP_TYPE(a);
  const step_place at = step_at(a, index, rows);
  const int64_t key = ((int64_t)kh * 3 + 2) * dk;
  const int64_t column = (int64_t)h * a->v_dim + index % tiles * STK_GDN_TILE + at.column;
  step_input in;
  step_load_state(&in, &at, rows);
  step_load_vector(in.k, a->kn, key, at.block, rows, type);
  step_load_vector(in.q, a->qn, (int64_t)kh * dk, at.block, rows, type);
  if (even) {
    step_load_vector(in.k1, a->kn, key - 2 * dk, at.block, rows, type);
    step_load_vector(in.k2, a->kn, key - dk, at.block, rows, type);
  }
  in.v = kc_row_load2(a->vc, column, type);
  in.a = a->gb[2 * h];
  in.beta = a->gb[2 * h + 1];
  in.kq = a->kq[3 * kh];
  in.kk = a->kq[3 * kh + 1];
  in.kkq = a->kq[3 * kh + 2];
  const kc2 o = step_compute(&in, &at, even, rows);
  if (at.block == 0) kc_row_store2(a->o, column, type, o);
  step_store(&in, &at);
}

#endif
