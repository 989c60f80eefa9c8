/* isa: scalar avx2 avx512
 * gdn_scan -- a tile of columns of one head runs through all tokens, copied to
 * dense rows first where there are several: in the state its rows are Dv floats
 * apart, which leaves half of the first-level cache's sets unused and does not
 * fit into the others. The update of a token is done in the same pass over the
 * rows as the reads of the next one: one load and one store a token. */
#include "gdn_scan/gdn_scan.h"

#include "common/k_simd.h"

enum { TILE_VECTORS = 4, TILE = TILE_VECTORS * VW, COPY_ROWS = 128, COPY_TOKENS = 4 };

/* What the last token left to do: S = k delta^T + d S. */
typedef struct pending {
  const float *k;
  float d;
  vf delta[TILE_VECTORS];
} pending;

/* One row: finish the pending update. */
K_INLINE void update_row(float *s, const pending *last, float k, int n, vf out[TILE_VECTORS]) {
  vf ki = vf_set1(k), d = vf_set1(last->d);
  K_UNROLL for (int v = 0; v < n; ++v) {
    out[v] = vf_fma(ki, last->delta[v], vf_mul(d, vf_load(s + v * VW)));
    vf_store(s + v * VW, out[v]);
  }
}

/* p and r of one token over all rows, after the pending update if there is one. */
K_INLINE void read_rows(float *s, int64_t stride, int64_t rows, const float *k, const float *q,
                        const pending *last, int n, vf p[TILE_VECTORS], vf r[TILE_VECTORS]) {
  vf block_p[4][TILE_VECTORS], block_r[4][TILE_VECTORS];
  for (int b = 0; b < 4; ++b) {
    vf sum_p[TILE_VECTORS], sum_r[TILE_VECTORS];
    K_UNROLL for (int v = 0; v < n; ++v) sum_p[v] = sum_r[v] = vf_zero();
    for (int64_t i = b * (rows / 4); i < (b + 1) * (rows / 4); ++i) {
      vf row[TILE_VECTORS];
      if (last) update_row(s + i * stride, last, last->k[i], n, row);
      else
        K_UNROLL for (int v = 0; v < n; ++v) row[v] = vf_load(s + i * stride + v * VW);
      vf ki = vf_set1(k[i]), qi = vf_set1(q[i]);
      K_UNROLL for (int v = 0; v < n; ++v) {
        sum_p[v] = vf_fma(row[v], ki, sum_p[v]);
        sum_r[v] = vf_fma(row[v], qi, sum_r[v]);
      }
    }
    K_UNROLL for (int v = 0; v < n; ++v) {
      block_p[b][v] = sum_p[v];
      block_r[b][v] = sum_r[v];
    }
  }
  K_UNROLL for (int v = 0; v < n; ++v) {
    p[v] = vf_add(vf_add(block_p[0][v], block_p[1][v]), vf_add(block_p[2][v], block_p[3][v]));
    r[v] = vf_add(vf_add(block_r[0][v], block_r[1][v]), vf_add(block_r[2][v], block_r[3][v]));
  }
}

/* Columns j0 .. j0 + n*VW - 1 of head h, whose state is at s, rows s_stride
 * apart; n is a constant where this is inlined. */
K_INLINE void scan_tile(const stk_gdn_scan_args *a, int64_t h, int64_t j0, int n, float *s,
                        int64_t s_stride) {
  const int64_t dk = a->k_dim, dv = a->v_dim, kh = h / (a->v_heads / a->k_heads);
  pending last = {0};
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    int64_t key = t * a->k_heads + kh, value = t * a->v_heads + h;
    const float *k = a->kn + key * dk, *q = a->qn + key * dk;
    vf p[TILE_VECTORS], r[TILE_VECTORS];
    if (t) read_rows(s, s_stride, dk, k, q, &last, n, p, r);
    else read_rows(s, s_stride, dk, k, q, NULL, n, p, r);
    float d = a->gb[value * 2];
    vf minus_d = vf_set1(-d), beta = vf_set1(a->gb[value * 2 + 1]), kq = vf_set1(a->kq[key]);
    K_UNROLL for (int v = 0; v < n; ++v) {
      vf value_j = vf_load(a->vc + value * dv + j0 + v * VW);
      last.delta[v] = vf_mul(beta, vf_fma(minus_d, p[v], value_j));
      vf_store(a->o + value * dv + j0 + v * VW,
               vf_fma(kq, last.delta[v], vf_mul(vf_set1(d), r[v])));
    }
    last.k = k;
    last.d = d;
  }
  for (int64_t i = 0; i < dk; ++i) {
    vf unused[TILE_VECTORS];
    update_row(s + i * s_stride, &last, last.k[i], n, unused);
  }
}

/* A full tile through a dense copy of its columns. */
static void scan_copied(const stk_gdn_scan_args *a, int64_t h, int64_t j0) {
  _Alignas(64) float copy[COPY_ROWS * TILE];
  const int64_t dk = a->k_dim, dv = a->v_dim;
  float *s = a->state + h * dk * dv + j0;
  for (int64_t i = 0; i < dk; ++i) memcpy(copy + i * TILE, s + i * dv, sizeof(float) * TILE);
  scan_tile(a, h, j0, TILE_VECTORS, copy, TILE);
  for (int64_t i = 0; i < dk; ++i) memcpy(s + i * dv, copy + i * TILE, sizeof(float) * TILE);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_scan_args *a = args;
  int64_t tiles = (a->v_dim + TILE - 1) / TILE, begin, end;
  stk_slice(a->v_heads * tiles, 1, part, n_parts, &begin, &end);
  for (int64_t unit = begin; unit < end; ++unit) {
    int64_t h = unit / tiles, j = unit % tiles * TILE;
    float *s = a->state + h * a->k_dim * a->v_dim;
    if (a->v_dim - j < TILE)
      for (; j < a->v_dim; j += VW) scan_tile(a, h, j, 1, s + j, a->v_dim);
    else if (a->n_tokens >= COPY_TOKENS && a->k_dim <= COPY_ROWS)
      scan_copied(a, h, j);
    else
      scan_tile(a, h, j, TILE_VECTORS, s + j, a->v_dim);
  }
}

STK_KERNEL_LEVEL(gdn_scan, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
