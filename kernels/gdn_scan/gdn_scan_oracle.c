/* gdn_scan, the oracle: one column of one head at a time. */
#include "common/k_oracle.h"
#include "common/k_rows.h"
#include "gdn_scan/gdn_scan.h"

static float rows4(const float *x, const float *k, int64_t n) {
  float block[4];
  for (int64_t b = 0; b < 4; ++b) {
    float sum = 0.0f;
    for (int64_t i = b * (n / 4); i < (b + 1) * (n / 4); ++i)
      sum = fmaf(x[i * STK_GDN_TILE], k[i], sum);
    block[b] = sum;
  }
  return (block[0] + block[1]) + (block[2] + block[3]);
}

/* Column j of head h; x is its first element in memory. */
static void column(const stk_gdn_scan_args *a, int64_t h, int64_t j, float *x, float *scalars) {
  const int64_t dk = a->k_dim, T = a->n_tokens, kh = h / (a->v_heads / a->k_heads);
  float *d1 = x + (dk + STK_GDN_ROW_D1) * STK_GDN_TILE, *d2 = x + (dk + STK_GDN_ROW_D2) * STK_GDN_TILE;
  float *half = x + (dk + STK_GDN_ROW_HALF) * STK_GDN_TILE;
  float keys[3 * STK_GDN_SCAN_K_DIM_MAX], q[STK_GDN_SCAN_K_DIM_MAX]; /* keys from two tokens before on */
  float c = scalars[STK_GDN_C], s = scalars[STK_GDN_S], c1 = scalars[STK_GDN_C1];
  if (c == 0.0f) c = s = 1.0f;
  for (int64_t t = 0; t < T; ++t) {
    const float *dots = a->kq + (kh * T + t) * 3, *gb = a->gb + (h * T + t) * 2, *key = keys + 2 * dk;
    const int64_t at = (h * T + t) * a->v_dim + j;
    float v = k_rows_get(a->vc, at, a->rows), o;
    k_rows_read(a->kn, (kh * (T + 2) + t) * dk, a->rows, 3 * dk, keys);
    k_rows_read(a->qn, (kh * T + t) * dk, a->rows, dk, q);
    if ((a->pos0 + t) % 2 == 0) {
      for (int64_t i = 0; i < dk; ++i) {
        float *e = x + i * STK_GDN_TILE;
        if (s != 1.0f) *e = s * *e;
        *e = fmaf(key[i - dk], *d2, fmaf(key[i - 2 * dk], *d1, *e));
      }
      float p = rows4(x, key, dk), r = rows4(x, q, dk);
      c1 = c * gb[0];
      *half = gb[1] * fmaf(-c1, p, v);
      o = fmaf(dots[0], *half, c1 * r);
    } else {
      float p = rows4(x, key, dk), r = rows4(x, q, dk);
      float c2 = c1 * gb[0], w = gb[0] * *half;
      float delta = gb[1] * fmaf(-dots[1], w, fmaf(-c2, p, v));
      o = fmaf(dots[0], delta, fmaf(dots[2], w, c2 * r));
      int keep = c2 >= STK_GDN_C_MIN;
      *d1 = keep ? *half / c1 : w;
      *d2 = keep ? delta / c2 : delta;
      s = keep ? 1.0f : c2;
      c = keep ? c2 : 1.0f;
    }
    k_rows_put(a->o, at, a->rows, o);
  }
  scalars[STK_GDN_C] = c;
  scalars[STK_GDN_S] = s;
  scalars[STK_GDN_C1] = c1;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_scan_args *a = args;
  const int64_t tiles = a->v_dim / STK_GDN_TILE, tile_floats = (a->k_dim + STK_GDN_TILE_ROWS) * STK_GDN_TILE;
  int64_t begin, end;
  stk_slice(a->v_heads * tiles, 1, part, n_parts, &begin, &end);
  for (int64_t unit = begin; unit < end; ++unit) {
    float *tile = a->state + unit * tile_floats, before[STK_GDN_TILE], after[STK_GDN_TILE];
    float *scalars = tile + (a->k_dim + STK_GDN_ROW_SCALARS) * STK_GDN_TILE;
    memcpy(before, scalars, sizeof before);
    for (int64_t col = 0; col < STK_GDN_TILE; ++col) {
      memcpy(after, before, sizeof after);
      column(a, unit / tiles, unit % tiles * STK_GDN_TILE + col, tile + col, after);
    }
    memcpy(scalars, after, sizeof after);
  }
}

STK_KERNEL(gdn_scan, oracle, "scalar", STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
