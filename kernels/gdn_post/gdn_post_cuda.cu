/* isa: cuda
 * gdn_post -- a warp four heads of a token: lane l holds elements l, l + 32, ... of each,
 * so that the lanes of the order tree32 are the warp's. The values stay in registers
 * between the norm and the gate; z is asked for before the norm is known. Square root and
 * division of the four norms are made once, in different lanes. */
#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
#include "gdn_post/gdn_post.h"

enum { WARPS = 4, HEADS = 4 };

#ifdef GDN_DV
#define DIM GDN_DV
#define ELEMS_MAX ((GDN_DV + 127) / 128 * 4)
#define GATE GDN_GATE
#define OUTPUTS GDN_OUTPUTS
#else
#define DIM a->v_dim
#define ELEMS_MAX 64
#define GATE ((int)a->gate)
#define OUTPUTS a->outputs
#endif

/* Elements of one head of one token. */
typedef struct head {
  float o[ELEMS_MAX], z[ELEMS_MAX];
} head;

/* HEADS heads of token t from h0 on; the last one again in place of those that are not
 * there. Elements beyond the end are 0, so that they add nothing. */
KC_INLINE void load(const stk_gdn_post_args *a, int64_t t, int h0, int dim, int n, head x[HEADS]) {
  const float *o = a->o + ((int64_t)h0 * a->n_tokens + t) * dim + kc_lane;
  const float *z = a->z + (t * a->v_heads + h0) * dim + kc_lane;
  KC_UNROLL for (int k = 0; k < HEADS; ++k) {
    KC_UNROLL for (int i = 0; i < n; ++i) {
      const int in_row = 32 * i + kc_lane < dim;
      x[k].o[i] = in_row ? o[32 * i] : 0.0f;
      x[k].z[i] = in_row ? z[32 * i] : 0.0f;
    }
    if (h0 + k + 1 < a->v_heads) {
      o += (int64_t)a->n_tokens * dim;
      z += dim;
    }
  }
}

KC_INLINE float squares(const float *x, int n) {
  float sum = 0.0f;
  KC_UNROLL for (int i = 0; i < n; i += 4) {
    float group = (x[i] * x[i] + x[i + 1] * x[i + 1]) + (x[i + 2] * x[i + 2] + x[i + 3] * x[i + 3]);
    sum = i ? sum + group : group;
  }
  return sum;
}

/* row: where the head's output begins. */
KC_INLINE void finish(const stk_gdn_post_args *a, int64_t row, int dim, int n, const head *x, const float *gain, float inv) {
  float gate[ELEMS_MAX];
  if (GATE == STK_GATE_SILU) kc_silu(x->z, gate, n);
  else kc_sigmoid(x->z, gate, n);
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int e = 32 * i + kc_lane;
    if (e >= dim) continue;
    const float y = ((x->o[i] * inv) * gain[i]) * gate[i];
    if (OUTPUTS & STK_POST_F32) a->y[row + e] = y;
    if (OUTPUTS & STK_POST_F16) a->yh[row + e] = kc_half(y);
  }
}

/* Grid: tokens, and heads WARPS * HEADS at a time. */
KC_KERNEL(gdn_post_cuda, stk_gdn_post_args, 32 * WARPS, 1) {
  const int64_t t = kc_block;
  const int h0 = (kc_block_y * WARPS + kc_warp) * HEADS, dim = DIM, n = (dim + 127) / 128 * 4;
  head x[HEADS];
  float sum[HEADS], gain[ELEMS_MAX];
  if (h0 >= a->v_heads) return;
  load(a, t, h0, dim, n, x);
  KC_UNROLL for (int i = 0; i < n; ++i) gain[i] = 32 * i + kc_lane < dim ? a->gain[32 * i + kc_lane] : 0.0f;
  KC_UNROLL for (int k = 0; k < HEADS; ++k) sum[k] = squares(x[k].o, n);
  kc_lanes_sums(sum, HEADS);
  KC_UNROLL for (int k = 0; k < HEADS; ++k) sum[k] = sum[k] * (1.0f / (float)dim) + a->eps;
  kc_rsqrt4(sum);
  KC_UNROLL for (int k = 0; k < HEADS; ++k)
    if (h0 + k < a->v_heads) finish(a, (t * a->v_heads + h0 + k) * dim, dim, n, &x[k], gain, sum[k]);
}
