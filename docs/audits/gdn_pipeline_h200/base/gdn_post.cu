/* isa: cuda
 * gdn_post -- a warp two heads: lane l holds elements l, l + 32, ... of each, so that
 * the lanes of the order tree32 are the warp's. The values stay in registers between
 * the norm and the gate; z is asked for before the norm is known. */
#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
#include "gdn_post/gdn_post.h"

enum { WARPS = 4, UNITS = 2 };

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

/* Unit u: head u % Hv of token u / Hv. Elements beyond the end are 0, so that they add
 * nothing. */
KC_INLINE void load(const stk_gdn_post_args *a, int64_t unit, int dim, int n, head *x) {
  const int64_t t = unit / a->v_heads, h = unit % a->v_heads;
  const float *o = a->o + (h * a->n_tokens + t) * dim, *z = a->z + unit * dim;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int e = 32 * i + kc_lane;
    x->o[i] = e < dim ? o[e] : 0.0f;
    x->z[i] = e < dim ? z[e] : 0.0f;
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

KC_INLINE void finish(const stk_gdn_post_args *a, int64_t unit, int dim, int n, const head *x, float sum) {
  const float inv = ks_rsqrt(sum * (1.0f / (float)dim) + a->eps);
  float gate[ELEMS_MAX];
  if (GATE == STK_GATE_SILU) kc_silu(x->z, gate, n);
  else kc_sigmoid(x->z, gate, n);
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int e = 32 * i + kc_lane;
    if (e >= dim) continue;
    const float y = ((x->o[i] * inv) * a->gain[e]) * gate[i];
    if (OUTPUTS & STK_POST_F32) a->y[unit * dim + e] = y;
    if (OUTPUTS & STK_POST_F16) a->yh[unit * dim + e] = kc_half(y);
  }
}

KC_KERNEL(gdn_post_cuda, stk_gdn_post_args, 32 * WARPS, 1) {
  const int64_t first = ((int64_t)kc_block * WARPS + kc_warp) * UNITS, n_units = (int64_t)a->n_tokens * a->v_heads;
  const int dim = DIM, n = (dim + 127) / 128 * 4;
  head x[UNITS];
  float sum[UNITS];
  if (first >= n_units) return;
  KC_UNROLL for (int k = 0; k < UNITS; ++k) load(a, first + k < n_units ? first + k : first, dim, n, &x[k]);
  KC_UNROLL for (int k = 0; k < UNITS; ++k) sum[k] = squares(x[k].o, n);
  kc_lanes_sums(sum, UNITS);
  KC_UNROLL for (int k = 0; k < UNITS; ++k)
    if (first + k < n_units) finish(a, first + k, dim, n, &x[k], sum[k]);
}
