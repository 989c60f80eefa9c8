/* gdn_scan: the gated delta rule, two tokens to a pass over the state.
 *
 * What it computes, for value head h with key head kh = h / (Hv/Hk) and decay a,
 * S [Dk][Dv] being the state before the token:
 *
 *   delta = beta * (v - a * S^T k)     S = a * S + k delta^T     o = S^T q
 *
 * How, which is the contract. S is held as c * X, X being what lies in memory, and
 * the updates of a pair of tokens (2m, 2m+1 by absolute index) wait until the
 * next pair reads X. Per column j:
 *
 *   even token   x = X[i];  if s != 1: x = s * x
 *                x = fma(k2[i], d2, fma(k1[i], d1, x));  X[i] = x
 *                (k1, k2 the keys of the two tokens before)
 *                p = rows4(X, k)    r = rows4(X, q)
 *                c1 = c * a
 *                half = beta * fma(-c1, p, v)
 *                o = fma(kq, half, c1 * r)
 *   odd token    p = rows4(X, k)    r = rows4(X, q)
 *                c2 = c1 * a        w = a * half
 *                delta = beta * fma(-kk, w, fma(-c2, p, v))
 *                o = fma(kq, delta, fma(kkq, w, c2 * r))
 *                if c2 >= 2^-20:  s = 1   c = c2  d1 = half / c1  d2 = delta / c2
 *                else:            s = c2  c = 1   d1 = w          d2 = delta
 *
 * That is three fused multiply-adds an element and token, the least there is, and
 * one read and one write of X for two tokens. The rule on c2 looks at its value
 * alone, so the bytes do not depend on how tokens are cut into windows.
 *
 * rows is the type of qn, kn, vc and o, f32 or f16 (common/k_rows.h).
 *
 * Shapes    qn     in     rows [Hk][T][Dk];  kn  in  rows [Hk][T+2][Dk], the first
 *                         two rows being the keys before the window
 *           vc     in     rows [Hv][T][Dv]
 *           gb     in     f32 [Hv][T][2]     a, then beta
 *           kq     in     f32 [Hk][T][3]     kq, kk, kkq (gdn_pre)
 *           state  inout  f32 [Hv][Dv/16][Dk+4][16]: of 16 columns, Dk rows of X,
 *                         then the rows d1, d2, half and (c, s, c1, 0, ...). All
 *                         zeros is the state before any token (c = 0 means that
 *                         c and s are 1).
 *           o      out    rows [Hv][T][Dv]
 * Requires  Dk and Dv multiples of 32, Dk at most 512, Hv a multiple of Hk.
 * Sum order rows4: the Dk rows are cut into 4 blocks of Dk/4 consecutive rows;
 *           in a block one chain of fused multiply-adds in ascending row order
 *           from +0; then (b0 + b1) + (b2 + b3).
 * Numerics  exact, or fast: o and S (settled, below) are within STK_GDN_SCAN_FAST_BOUND
 *           of the oracle's. A fast kernel may leave S in the stored form it likes, and
 *           any kernel goes on from it. A NaN stays in its own head.
 * Threads   parts cut (head, 16 columns) pairs.
 * Source    Yang, Kautz, Hatamizadeh, arXiv:2412.06464; the forms that were
 *           compared are in NOTES.md. */
#ifndef STK_GDN_SCAN_H
#define STK_GDN_SCAN_H

#include <stdbool.h>
#include <strata/kernel.h>

#define STK_GDN_SCAN_CONTRACT 3u
enum {
  STK_GDN_SCAN_K_DIM_MAX = 512,
  STK_GDN_TILE = 16,     /* columns of a tile of the state */
  STK_GDN_TILE_ROWS = 4, /* rows of a tile beyond Dk */
  /* Offsets of those rows from Dk, and of the scalars in the last one. */
  STK_GDN_ROW_D1 = 0, STK_GDN_ROW_D2 = 1, STK_GDN_ROW_HALF = 2, STK_GDN_ROW_SCALARS = 3,
  STK_GDN_C = 0, STK_GDN_S = 1, STK_GDN_C1 = 2
};
#define STK_GDN_C_MIN 9.5367431640625e-07f /* 2^-20 */
/* Relative L2; about one rounding to fp16 or tf32, 2^-11 (docs/numerics.md). */
#define STK_GDN_SCAN_FAST_BOUND 5e-4

typedef struct stk_gdn_scan_args {
  const void *qn, *kn, *vc;
  const float *gb, *kq;
  float *state;
  void *o;
  int32_t n_tokens, pos0, k_heads, v_heads, k_dim, v_dim;
  int32_t rows; /* STK_F32 or STK_F16 */
} stk_gdn_scan_args;

/* Floats of the state. */
static inline size_t stk_gdn_state_floats(int32_t v_heads, int32_t k_dim, int32_t v_dim) {
  return (size_t)v_heads * (size_t)v_dim * ((size_t)k_dim + STK_GDN_TILE_ROWS);
}

/* The true S[i][j] of head h after `position` tokens, from the stored form: for
 * tests and for whoever wants to look. k_tail [2][Hk][Dk] is gdn_pre's, in f32. */
static inline float stk_gdn_state_at(const float *state, const float *k_tail, int32_t position,
                                     int32_t k_heads, int32_t v_heads, int32_t k_dim, int32_t v_dim,
                                     int32_t h, int32_t i, int32_t j) {
  const size_t rows = (size_t)k_dim + STK_GDN_TILE_ROWS;
  const float *tile = state + ((size_t)h * (size_t)(v_dim / STK_GDN_TILE) + (size_t)(j / STK_GDN_TILE)) * rows * STK_GDN_TILE;
  const float *extra = tile + (size_t)k_dim * STK_GDN_TILE;
  const float *scalars = extra + STK_GDN_ROW_SCALARS * STK_GDN_TILE;
  const float *old = k_tail + (size_t)(h / (v_heads / k_heads)) * (size_t)k_dim;
  const float *young = old + (size_t)k_heads * (size_t)k_dim;
  int32_t col = j % STK_GDN_TILE;
  float x = tile[i * STK_GDN_TILE + col];
  if (position == 0) return 0.0f;
  if (position % 2) /* an even token came last: its delta waits */
    return scalars[STK_GDN_C1] * x + young[i] * extra[STK_GDN_ROW_HALF * STK_GDN_TILE + col];
  x = scalars[STK_GDN_S] * x + old[i] * extra[STK_GDN_ROW_D1 * STK_GDN_TILE + col] +
      young[i] * extra[STK_GDN_ROW_D2 * STK_GDN_TILE + col];
  return scalars[STK_GDN_C] * x;
}

/* Brings a tile to X = S: nothing waits, c = s = c1 = 1. old and young are the keys of
 * the two tokens before, n_seen how many there were. */
static inline void stk_gdn_settle_tile(float *tile, const float *old, const float *young,
                                       int32_t n_seen, int32_t k_dim) {
  float *d1 = tile + (k_dim + STK_GDN_ROW_D1) * STK_GDN_TILE;
  float *d2 = tile + (k_dim + STK_GDN_ROW_D2) * STK_GDN_TILE;
  float *half = tile + (k_dim + STK_GDN_ROW_HALF) * STK_GDN_TILE;
  float *scalars = tile + (k_dim + STK_GDN_ROW_SCALARS) * STK_GDN_TILE;
  const bool fresh = scalars[STK_GDN_C] == 0.0f;
  const float c = fresh ? 1.0f : scalars[STK_GDN_C], s = fresh ? 1.0f : scalars[STK_GDN_S];
  for (int32_t i = 0; i < k_dim; ++i)
    for (int32_t j = 0; j < STK_GDN_TILE; ++j) {
      float *x = tile + i * STK_GDN_TILE + j;
      *x = n_seen % 2 ? scalars[STK_GDN_C1] * *x + young[i] * half[j]
                      : c * (s * *x + old[i] * d1[j] + young[i] * d2[j]);
    }
  for (int32_t j = 0; j < STK_GDN_TILE; ++j) d1[j] = d2[j] = half[j] = 0.0f;
  scalars[STK_GDN_C] = scalars[STK_GDN_S] = scalars[STK_GDN_C1] = 1.0f;
}

extern const stk_op stk_gdn_scan_op;

#endif
