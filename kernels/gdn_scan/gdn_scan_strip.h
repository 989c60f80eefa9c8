/* gdn_scan_strip.h -- the body of the gdn_scan variants: one strip of columns of
 * one head through all tokens of a window.
 *
 * A source defines before it includes this:
 *   STRIP     columns worked on at once; a multiple of VW that divides 16, or a
 *             multiple of 16; DEFAULT_STRIP is two vectors, or four where there
 *             are 32 small registers, which with four sums and two deltas fill them
 *   PAIRS     1: two tokens share a pass over the state where they can; 0: every
 *             token makes its own
 *   BLOCK     tokens after which a strip gives way to the head's next one; 0: a
 *             strip runs through the whole window
 *   PREFETCH  rows of the state that are asked for ahead; 0: none. An expression
 *             may use the strip p */
#include "common/k_simd.h"
#include "common/k_vrows.h"
#include "gdn_scan/gdn_scan.h"

#ifndef STRIP_H_ONCE
#define STRIP_H_ONCE

#define DEFAULT_STRIP (VW <= 4 ? 4 * VW : 2 * VW)

/* Heads whose columns are not a multiple of STRIP end in strips of one tile. */
enum {
  NV = STRIP / VW,
  TILES = STRIP < STK_GDN_TILE ? 1 : STRIP / STK_GDN_TILE,
  TAIL_NV = STK_GDN_TILE / VW < NV ? STK_GDN_TILE / VW : NV
};

/* A strip of a head: where its columns lie, and the head's inputs. */
typedef struct strip {
  float *x;            /* row 0 of its first column */
  int64_t tile_floats; /* from one tile to the next */
  int64_t dk, T;
  int32_t type;   /* of the rows */
  const void *kn; /* from the two keys before token 0 on */
  const void *qn, *v;
  const float *dots, *gb;
  void *o;
  int64_t first, v_stride; /* element of v and o where the strip begins */
} strip;

/* The keys of a pass, from the first token's on (those of the two before precede), and
 * its queries: in place, or widened in memory of the caller's. */
typedef struct near_rows {
  const float *key, *q;
} near_rows;
enum { NEAR_KEYS = 4 * STK_GDN_SCAN_K_DIM_MAX, NEAR_FLOATS = 6 * STK_GDN_SCAN_K_DIM_MAX };

K_INLINE near_rows rows_of(const strip *p, int64_t t, int n_tokens, float *wide) {
  const int64_t dk = p->dk;
  const float *keys = kv_rows_in_f32(p->kn, t * dk, p->type, (n_tokens + 2) * dk, wide);
  return (near_rows){keys + 2 * dk, kv_rows_in_f32(p->qn, t * dk, p->type, n_tokens * dk, wide + NEAR_KEYS)};
}

/* The scalars of the contract. */
typedef struct scalars {
  float c, s, c1;
} scalars;

/* Vector v of row i. */
K_INLINE float *at(const strip *p, int64_t i, int v) {
  const int column = v * VW;
  return p->x + column / STK_GDN_TILE * p->tile_floats + i * STK_GDN_TILE + column % STK_GDN_TILE;
}

/* x = s * x over all rows: only after a strong decay, so it may cost a pass. */
static __attribute__((noinline)) void scale_rows(const strip *p, float s, int nv) {
  for (int64_t i = 0; i < p->dk; ++i)
    for (int v = 0; v < nv; ++v) vf_store(at(p, i, v), vf_mul(vf_set1(s), vf_load(at(p, i, v))));
}

/* The sums of one or two tokens over all rows. n_tokens, update and nv are
 * constants where this is inlined; update: the waiting pair is added to X first. key is
 * the first token's. sums[0..3]: p and r of the first token, then of the second. */
K_INLINE void pass(const strip *p, const float *key, const float *q, int n_tokens, int update,
                   int nv, vf sums[4][NV]) {
  const int64_t dk = p->dk;
  const float *k1 = key - 2 * dk, *k2 = key - dk;
  vf block[4][4][NV], d1[NV], d2[NV];
  K_UNROLL for (int v = 0; v < nv; ++v) {
    d1[v] = vf_load(at(p, dk + STK_GDN_ROW_D1, v));
    d2[v] = vf_load(at(p, dk + STK_GDN_ROW_D2, v));
  }
  for (int b = 0; b < 4; ++b) {
    vf sum[4][NV];
    K_UNROLL for (int n = 0; n < 2 * n_tokens; ++n)
      K_UNROLL for (int v = 0; v < nv; ++v) sum[n][v] = vf_zero();
    /* Four rows a turn: as a loop of one row, some 26 instructions, its speed
     * varied by 40 % with where the linker put it. */
#pragma GCC unroll 4
    for (int64_t i = b * (dk / 4); i < (b + 1) * (dk / 4); ++i) {
      vf x[NV];
      if ((PREFETCH) != 0)
        K_UNROLL for (int tile = 0; tile * STK_GDN_TILE < nv * VW; ++tile)
          __builtin_prefetch(p->x + tile * p->tile_floats + (i + PREFETCH) * STK_GDN_TILE);
      K_UNROLL for (int v = 0; v < nv; ++v) x[v] = vf_load(at(p, i, v));
      if (update) {
        vf k1i = vf_set1(k1[i]), k2i = vf_set1(k2[i]);
        K_UNROLL for (int v = 0; v < nv; ++v) {
          x[v] = vf_fma(k2i, d2[v], vf_fma(k1i, d1[v], x[v]));
          vf_store(at(p, i, v), x[v]);
        }
      }
      K_UNROLL for (int n = 0; n < n_tokens; ++n) {
        vf ki = vf_set1(key[n * dk + i]), qi = vf_set1(q[n * dk + i]);
        K_UNROLL for (int v = 0; v < nv; ++v) sum[2 * n][v] = vf_fma(x[v], ki, sum[2 * n][v]);
        K_UNROLL for (int v = 0; v < nv; ++v)
          sum[2 * n + 1][v] = vf_fma(x[v], qi, sum[2 * n + 1][v]);
      }
    }
    K_UNROLL for (int n = 0; n < 2 * n_tokens; ++n)
      K_UNROLL for (int v = 0; v < nv; ++v) block[b][n][v] = sum[n][v];
  }
  K_UNROLL for (int n = 0; n < 2 * n_tokens; ++n)
    K_UNROLL for (int v = 0; v < nv; ++v)
      sums[n][v] = vf_add(vf_add(block[0][n][v], block[1][n][v]), vf_add(block[2][n][v], block[3][n][v]));
}

K_INLINE void finish_even(const strip *p, int64_t t, scalars *sc, int nv,
                          const vf sum_p[NV], const vf sum_r[NV]) {
  const float *gb = p->gb + t * 2;
  sc->c1 = sc->c * gb[0];
  vf c1 = vf_set1(sc->c1), minus_c1 = vf_set1(-sc->c1), kq = vf_set1(p->dots[t * 3]);
  K_UNROLL for (int v = 0; v < nv; ++v) {
    const int64_t cell = p->first + t * p->v_stride + v * VW;
    vf value = kv_rows_load(p->v, cell, p->type);
    vf half = vf_mul(vf_set1(gb[1]), vf_fma(minus_c1, sum_p[v], value));
    kv_rows_store(p->o, cell, p->type, vf_fma(kq, half, vf_mul(c1, sum_r[v])));
    vf_store(at(p, p->dk + STK_GDN_ROW_HALF, v), half);
  }
}

K_INLINE void finish_odd(const strip *p, int64_t t, scalars *sc, int nv,
                         const vf sum_p[NV], const vf sum_r[NV]) {
  const float *gb = p->gb + t * 2, *dots = p->dots + t * 3;
  const float c2 = sc->c1 * gb[0];
  const int keep = c2 >= STK_GDN_C_MIN;
  vf minus_kk = vf_set1(-dots[1]);
  K_UNROLL for (int v = 0; v < nv; ++v) {
    const int64_t cell = p->first + t * p->v_stride + v * VW;
    vf value = kv_rows_load(p->v, cell, p->type);
    vf half = vf_load(at(p, p->dk + STK_GDN_ROW_HALF, v)), w = vf_mul(vf_set1(gb[0]), half);
    vf u = vf_fma(minus_kk, w, vf_fma(vf_set1(-c2), sum_p[v], value));
    vf delta = vf_mul(vf_set1(gb[1]), u);
    vf o = vf_fma(vf_set1(dots[2]), w, vf_mul(vf_set1(c2), sum_r[v]));
    kv_rows_store(p->o, cell, p->type, vf_fma(vf_set1(dots[0]), delta, o));
    vf_store(at(p, p->dk + STK_GDN_ROW_D1, v), keep ? vf_div(half, vf_set1(sc->c1)) : w);
    vf_store(at(p, p->dk + STK_GDN_ROW_D2, v), keep ? vf_div(delta, vf_set1(c2)) : delta);
  }
  sc->s = keep ? 1.0f : c2;
  sc->c = keep ? c2 : 1.0f;
}

/* Tokens t0 .. t1 - 1; odd: token t0 has an odd absolute index. */
K_INLINE void run_tokens(const strip *p, int64_t t0, int64_t t1, int odd, int nv, scalars *sc) {
  vf sums[4][NV];
  float wide[NEAR_FLOATS];
  for (int64_t t = t0; t < t1;) {
    const int both = PAIRS && !odd && t + 1 < t1;
    const near_rows near = rows_of(p, t, both ? 2 : 1, wide);
    if (odd) {
      pass(p, near.key, near.q, 1, 0, nv, sums);
      finish_odd(p, t++, sc, nv, sums[0], sums[1]);
      odd = 0;
      continue;
    }
    if (sc->s != 1.0f) scale_rows(p, sc->s, nv);
    if (both) {
      pass(p, near.key, near.q, 2, 1, nv, sums);
      finish_even(p, t, sc, nv, sums[0], sums[1]);
      finish_odd(p, t + 1, sc, nv, sums[2], sums[3]);
      t += 2;
    } else {
      pass(p, near.key, near.q, 1, 1, nv, sums);
      finish_even(p, t++, sc, nv, sums[0], sums[1]);
      odd = 1;
    }
  }
}

K_INLINE void run_strip(const stk_gdn_scan_args *a, int64_t h, int64_t column, int64_t t0, int64_t t1,
                        int nv) {
  const int64_t dk = a->k_dim, dv = a->v_dim, T = a->n_tokens, kh = h / (a->v_heads / a->k_heads);
  const int64_t tile_floats = (dk + STK_GDN_TILE_ROWS) * STK_GDN_TILE;
  float *first = a->state + (h * (dv / STK_GDN_TILE) + column / STK_GDN_TILE) * tile_floats;
  strip p = {.x = first + column % STK_GDN_TILE, .tile_floats = tile_floats, .dk = dk, .T = T, .type = a->rows,
             .kn = k_rows_at(a->kn, kh * (T + 2) * dk, a->rows), .qn = k_rows_at(a->qn, kh * T * dk, a->rows),
             .v = a->vc, .dots = a->kq + kh * T * 3, .gb = a->gb + h * T * 2, .o = a->o,
             .first = h * T * dv + column, .v_stride = dv};
  float *stored = first + (dk + STK_GDN_ROW_SCALARS) * STK_GDN_TILE;
  scalars sc = {stored[STK_GDN_C], stored[STK_GDN_S], stored[STK_GDN_C1]};
  if (sc.c == 0.0f) sc.c = sc.s = 1.0f;
  run_tokens(&p, t0, t1, (int)((a->pos0 + t0) & 1), nv, &sc);
  /* The scalars of a tile belong to whoever has its last column. */
  if ((column + nv * VW) % STK_GDN_TILE) return;
  for (int tile = 0; tile * STK_GDN_TILE < nv * VW; ++tile) {
    float *to = stored + tile * tile_floats;
    to[STK_GDN_C] = sc.c;
    to[STK_GDN_S] = sc.s;
    to[STK_GDN_C1] = sc.c1;
  }
}

/* One head and a run of its columns that is cut at tiles. */
static void run_columns(const stk_gdn_scan_args *a, int64_t h, int64_t begin, int64_t end) {
  const int64_t T = a->n_tokens, step = BLOCK ? BLOCK : T;
  for (int64_t t = 0; t < T; t += step) {
    int64_t stop = t + step < T ? t + step : T, column = begin;
    for (; column + STRIP <= end; column += STRIP) run_strip(a, h, column, t, stop, NV);
    for (; column < end; column += TAIL_NV * VW) run_strip(a, h, column, t, stop, TAIL_NV);
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_scan_args *a = args;
  const int64_t unit_columns = STRIP < STK_GDN_TILE ? STK_GDN_TILE : STRIP;
  int64_t begin, end;
  stk_slice((int64_t)a->v_heads * a->v_dim, unit_columns, part, n_parts, &begin, &end);
  while (begin < end) {
    int64_t h = begin / a->v_dim, column = begin % a->v_dim;
    int64_t n = a->v_dim - column < end - begin ? a->v_dim - column : end - begin;
    run_columns(a, h, column, column + n);
    begin += n;
  }
}

#endif
