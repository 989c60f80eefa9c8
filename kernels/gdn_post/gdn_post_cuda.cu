/* isa: cuda
 * gdn_post -- a warp a head: lane l holds elements l, l + 32, ..., so that the lanes
 * of the order tree32 are the warp's. The values stay in registers between the norm
 * and the gate; z is asked for before the norm is known. */
#include "common/k_cuda.h"
#include "gdn_post/gdn_post.h"

enum { WARPS = 8 };

#ifdef GDN_DV
#define DIM GDN_DV
#define STEPS ((GDN_DV + 31) / 32)
#else
#define DIM a->v_dim
#define STEPS 64
#endif
/* Elements of a lane, a whole number of groups of four. */
#define ELEMS ((STEPS + 3) / 4 * 4)

KC_KERNEL(gdn_post_cuda, stk_gdn_post_args, 32 * WARPS) {
  const int64_t unit = (int64_t)kc_block * WARPS + kc_warp, T = a->n_tokens;
  if (unit >= T * a->v_heads) return;
  const int64_t t = unit / a->v_heads, h = unit % a->v_heads;
  const int dim = DIM, n = (dim + 127) / 128 * 4;
  const float *o = a->o + (h * T + t) * dim, *z = a->z + unit * dim;
  float x[ELEMS], gate[ELEMS], sum = 0.0f;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int e = 32 * i + kc_lane;
    x[i] = e < dim ? o[e] : 0.0f;
    gate[i] = e < dim ? z[e] : 0.0f;
  }
  KC_UNROLL for (int i = 0; i < n; i += 4) {
    float group = (x[i] * x[i] + x[i + 1] * x[i + 1]) + (x[i + 2] * x[i + 2] + x[i + 3] * x[i + 3]);
    sum = i ? sum + group : group;
  }
  const float inv = ks_rsqrt(kc_lanes_sum(sum) * (1.0f / (float)dim) + a->eps);
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int e = 32 * i + kc_lane;
    if (e >= dim) continue;
    float y = ((x[i] * inv) * a->gain[e]) * (a->gate == STK_GATE_SILU ? ks_silu(gate[i]) : ks_sigmoid(gate[i]));
    if (a->outputs & STK_POST_F32) a->y[unit * dim + e] = y;
    if (a->outputs & STK_POST_F16) a->yh[unit * dim + e] = (uint16_t)ks_to_half(y);
  }
}
