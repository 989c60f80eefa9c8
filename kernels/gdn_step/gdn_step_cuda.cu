/* isa: cuda
 * gdn_step -- a warp a tile of 16 columns, in the layout of lanes of gdn_scan's
 * kernel: lane 8 * b + n has the rows of block b of columns 2n and 2n + 1. All rows are
 * asked for before the first is used: that is what the memory's latency needs. */
#include "common/k_cuda.h"
#include "gdn_step/gdn_step.h"

#ifdef GDN_DK
#define ROWS (GDN_DK / 4)
#define ROWS_MAX (GDN_DK / 4)
#else
#define ROWS (a->k_dim / 4)
#define ROWS_MAX 64
#endif

typedef struct kc2 {
  float v[2];
} kc2;

#ifdef __CUDACC__
KC_INLINE kc2 load2(const float *p) {
  float2 f = *(const float2 *)p;
  kc2 r = {{f.x, f.y}};
  return r;
}
KC_INLINE void store2(float *p, kc2 f) { *(float2 *)p = make_float2(f.v[0], f.v[1]); }
#else
KC_INLINE kc2 load2(const float *p) {
  kc2 r;
  kc_emulator_aligned(p, 8);
  memcpy(&r, p, sizeof r);
  return r;
}
KC_INLINE void store2(float *p, kc2 f) {
  kc_emulator_aligned(p, 8);
  memcpy(p, &f, sizeof f);
}
#endif

/* rows4's (b0 + b1) + (b2 + b3), the same in all lanes. */
KC_INLINE float over_blocks(float sum) {
  float total = sum + kc_shuffle_xor(sum, 8);
  return total + kc_shuffle_xor(total, 16);
}

/* Grid: tiles of all heads. */
KC_KERNEL(gdn_step_cuda, stk_gdn_step_args, 32, 1) {
  const int rows = ROWS, block = kc_lane / 8, column = kc_lane % 8 * 2, dk = 4 * rows;
  const int tiles = a->v_dim / STK_GDN_TILE, h = kc_block / tiles, kh = h / (a->v_heads / a->k_heads);
  const int even = !(a->pos0 & 1);
  float *tile = a->state + (int64_t)kc_block * (dk + STK_GDN_TILE_ROWS) * STK_GDN_TILE;
  float *x = tile + block * rows * STK_GDN_TILE + column, *extra = tile + dk * STK_GDN_TILE + column;
  float *stored = tile + (dk + STK_GDN_ROW_SCALARS) * STK_GDN_TILE;
  const float *key = a->kn + ((int64_t)kh * 3 + 2) * dk + block * rows, *q = a->qn + (int64_t)kh * dk + block * rows;
  const float *gb = a->gb + h * 2, *dots = a->kq + kh * 3;
  const int64_t at = (int64_t)h * a->v_dim + kc_block % tiles * STK_GDN_TILE + column;
  kc2 row[ROWS_MAX], p = {{0.0f, 0.0f}}, r = {{0.0f, 0.0f}};
  KC_UNROLL for (int i = 0; i < rows; ++i) row[i] = load2(x + i * STK_GDN_TILE);
  const kc2 d1 = load2(extra + STK_GDN_ROW_D1 * STK_GDN_TILE), d2 = load2(extra + STK_GDN_ROW_D2 * STK_GDN_TILE);
  const kc2 v = load2(a->vc + at);
  kc2 half = load2(extra + STK_GDN_ROW_HALF * STK_GDN_TILE);
  float c = stored[STK_GDN_C], s = stored[STK_GDN_S], c1 = stored[STK_GDN_C1];
  if (c == 0.0f) c = s = 1.0f;
  KC_UNROLL for (int g = 0; g < rows / 4; ++g) {
    const kc4 k1 = kc_load4(key - 2 * dk + 4 * g), k2 = kc_load4(key - dk + 4 * g);
    const kc4 k = kc_load4(key + 4 * g), qs = kc_load4(q + 4 * g);
    KC_UNROLL for (int j = 0; j < 4; ++j)
      KC_UNROLL for (int n = 0; n < 2; ++n) {
        float *e = &row[4 * g + j].v[n];
        if (even) {
          if (s != 1.0f) *e = s * *e;
          *e = ks_fma(k2.v[j], d2.v[n], ks_fma(k1.v[j], d1.v[n], *e));
        }
        p.v[n] = ks_fma(*e, k.v[j], p.v[n]);
        r.v[n] = ks_fma(*e, qs.v[j], r.v[n]);
      }
  }
  kc2 o, next1 = d1, next2 = d2;
  if (even) {
    KC_UNROLL for (int i = 0; i < rows; ++i) store2(x + i * STK_GDN_TILE, row[i]);
    c1 = c * gb[0];
    KC_UNROLL for (int n = 0; n < 2; ++n) {
      half.v[n] = gb[1] * ks_fma(-c1, over_blocks(p.v[n]), v.v[n]);
      o.v[n] = ks_fma(dots[0], half.v[n], c1 * over_blocks(r.v[n]));
    }
  } else {
    const float c2 = c1 * gb[0];
    const int keep = c2 >= STK_GDN_C_MIN;
    KC_UNROLL for (int n = 0; n < 2; ++n) {
      const float w = gb[0] * half.v[n];
      const float delta = gb[1] * ks_fma(-dots[1], w, ks_fma(-c2, over_blocks(p.v[n]), v.v[n]));
      o.v[n] = ks_fma(dots[0], delta, ks_fma(dots[2], w, c2 * over_blocks(r.v[n])));
      next1.v[n] = keep ? half.v[n] / c1 : w;
      next2.v[n] = keep ? delta / c2 : delta;
    }
    s = keep ? 1.0f : c2;
    c = keep ? c2 : 1.0f;
  }
  if (block) return;
  store2(a->o + at, o);
  store2(extra + STK_GDN_ROW_D1 * STK_GDN_TILE, next1);
  store2(extra + STK_GDN_ROW_D2 * STK_GDN_TILE, next2);
  store2(extra + STK_GDN_ROW_HALF * STK_GDN_TILE, half);
  if (kc_lane) return;
  stored[STK_GDN_C] = c;
  stored[STK_GDN_S] = s;
  stored[STK_GDN_C1] = c1;
}
