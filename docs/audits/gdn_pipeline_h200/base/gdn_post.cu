/* isa: cuda
 * gdn_post -- a warp four heads of a run of tokens, which are on their way to shared
 * memory while those before them are worked on. For the norm lane l reads elements l,
 * l + 32, ... of a head, so that the lanes of the order tree32 are the warp's; for the
 * gate four neighbours, so that they leave in one store. Square root and division of the
 * four norms are made once, in different lanes.
 *
 * Grid: runs of tokens, and heads WARPS * HEADS at a time. */
#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
/* gdn_post_cuda_grid.h -- how the GPU kernel of gdn_post is laid over a window: what the
 * kernel and its plan must agree about. */
#ifndef GDN_POST_CUDA_GRID_H
#define GDN_POST_CUDA_GRID_H

#include "gdn_post/gdn_post.h"

/* A warp takes a run of tokens of HEADS heads; SLOTS tokens are on their way to it. */
enum { GDN_POST_WARPS = 4, GDN_POST_HEADS = 4, GDN_POST_SLOTS = 2, GDN_POST_BLOCKS = 12, GDN_POST_RUN = 4 };

/* Blocks that the heads need. */
static inline int gdn_post_groups(int v_heads) {
  return (v_heads + GDN_POST_WARPS * GDN_POST_HEADS - 1) / (GDN_POST_WARPS * GDN_POST_HEADS);
}

/* Tokens of a run: as few as give each processor BLOCKS blocks, at most RUN. */
static inline int gdn_post_run(int n_tokens, int v_heads, int n_processors) {
  const int runs = n_processors * GDN_POST_BLOCKS / gdn_post_groups(v_heads);
  int run = 1;
  while (run < GDN_POST_RUN && n_tokens > run * runs) ++run;
  return run;
}

/* Floats of a warp in shared memory: of each slot o and z, which begin at multiples of 16
 * bytes. */
static inline int gdn_post_part_floats(int dim) { return (GDN_POST_HEADS * dim + 3) / 4 * 4; }
static inline int gdn_post_warp_floats(int dim) { return GDN_POST_SLOTS * 2 * gdn_post_part_floats(dim); }

#endif

enum { WARPS = GDN_POST_WARPS, HEADS = GDN_POST_HEADS, SLOTS = GDN_POST_SLOTS };

#ifdef GDN_DV
#define DIM GDN_DV
#define V_HEADS GDN_HV
#define ELEMS_MAX ((GDN_DV + 127) / 128 * 4)
#define GATE GDN_GATE
#define OUTPUTS GDN_OUTPUTS
#else
#define DIM a->v_dim
#define V_HEADS a->v_heads
#define ELEMS_MAX 16
#define GATE ((int)a->gate)
#define OUTPUTS a->outputs
#endif

/* The slots of a warp: a head's row of o, and of z, begins every dim floats. */
typedef struct feed {
  float *slots;
  int64_t h0;
  int n_heads;
} feed;

KC_INLINE float *o_of(const feed *f, int slot, int dim) { return f->slots + slot * 2 * gdn_post_part_floats(dim); }
KC_INLINE float *z_of(const feed *f, int slot, int dim) { return o_of(f, slot, dim) + gdn_post_part_floats(dim); }

KC_INLINE void ask_row(float *to, const float *from, int dim) {
  if (dim % 4 == 0)
    for (int i = 4 * kc_lane; i < dim; i += 128) kc_copy16(to + i, from + i);
  else
    for (int i = kc_lane; i < dim; i += 32) kc_copy4(to + i, from + i);
}

/* Asks for token t; for none if it is not the run's. */
KC_INLINE void ask(const stk_gdn_post_args *a, const feed *f, int64_t t, int64_t t1, int slot, int dim) {
  KC_UNROLL for (int k = 0; k < HEADS; ++k) {
    if (t >= t1 || k >= f->n_heads) break;
    ask_row(o_of(f, slot, dim) + k * dim, a->o + ((f->h0 + k) * a->n_tokens + t) * dim, dim);
    ask_row(z_of(f, slot, dim) + k * dim, a->z + (t * a->v_heads + f->h0 + k) * dim, dim);
  }
  kc_copy_commit();
}

/* A lane's elements of a row; those beyond the end are 0, so that they add nothing. */
KC_INLINE void load(const float *row, float *x, int dim, int n, int group) {
  if (dim % 128 == 0) {
    kc_load_elements(row, x, n, group);
    return;
  }
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = kc_element(i, 1) < dim ? row[kc_element(i, 1)] : 0.0f;
}

KC_INLINE float squares(const float *x, int n) {
  float sum = 0.0f;
  KC_UNROLL for (int i = 0; i < n; i += 4) {
    float group = (x[i] * x[i] + x[i + 1] * x[i + 1]) + (x[i + 2] * x[i + 2] + x[i + 3] * x[i + 3]);
    sum = i ? sum + group : group;
  }
  return sum;
}

/* at: where the head's output begins. */
KC_INLINE void store(const stk_gdn_post_args *a, int64_t at, const float *y, int dim, int n, int group) {
  KC_UNROLL for (int i = 0; i < n; i += group) {
    const int e = kc_element(i, group);
    if (group == 4) {
      const kc4 four = {{y[i], y[i + 1], y[i + 2], y[i + 3]}};
      const kc2 halves = {{kc_half2(y[i], y[i + 1]), kc_half2(y[i + 2], y[i + 3])}};
      if (OUTPUTS & STK_POST_F32) kc_store4(a->y + at + e, four);
      if (OUTPUTS & STK_POST_F16) kc_store2((float *)(void *)(a->yh + at + e), halves);
    } else if (e < dim) {
      if (OUTPUTS & STK_POST_F32) a->y[at + e] = y[i];
      if (OUTPUTS & STK_POST_F16) a->yh[at + e] = kc_half(y[i]);
    }
  }
}

KC_INLINE void finish(const stk_gdn_post_args *a, int64_t at, const float *o, const float *z, const float *gain,
                      float inv, int dim, int n, int group) {
  float y[ELEMS_MAX];
  if (GATE == STK_GATE_SILU) kc_silu(z, y, n);
  else kc_sigmoid(z, y, n);
  KC_UNROLL for (int i = 0; i < n; ++i) y[i] = ((o[i] * inv) * gain[i]) * y[i];
  store(a, at, y, dim, n, group);
}

KC_KERNEL(gdn_post_cuda, stk_gdn_post_args, 32 * WARPS, 6) {
  const int dim = DIM, n = (dim + 127) / 128 * 4, group = dim % 128 == 0 ? 4 : 1, run = gdn_post_run(a->n_tokens, V_HEADS, kc_processors);
  const int64_t t0 = (int64_t)kc_block * run, t1 = t0 + run < a->n_tokens ? t0 + run : a->n_tokens;
  const int64_t h0 = ((int64_t)kc_block_y * WARPS + kc_warp) * HEADS;
  KC_SHARED(float, shared);
  const int left = (int)(a->v_heads - h0);
  const feed f = {shared + kc_warp * gdn_post_warp_floats(dim), h0, left < HEADS ? left : HEADS};
  float gain[ELEMS_MAX];
  int slot = 0;
  if (left <= 0) return;
  KC_UNROLL for (int k = 0; k < SLOTS; ++k) ask(a, &f, t0 + k, t1, k, dim);
  load(a->gain, gain, dim, n, group);
  for (int64_t t = t0; t < t1; ++t) {
    const float *o_row = o_of(&f, slot, dim), *z_row = z_of(&f, slot, dim);
    float o[HEADS][ELEMS_MAX], z[HEADS][ELEMS_MAX], sum[HEADS];
    kc_copy_wait(SLOTS - 1);
    kc_sync_warp();
    KC_UNROLL for (int k = 0; k < HEADS; ++k) {
      load(o_row + k * dim, o[k], dim, n, 1);
      sum[k] = squares(o[k], n);
      if (group != 1) load(o_row + k * dim, o[k], dim, n, group);
      load(z_row + k * dim, z[k], dim, n, group);
    }
    kc_sync_warp();
    ask(a, &f, t + SLOTS, t1, slot, dim);
    slot = slot + 1 < SLOTS ? slot + 1 : 0;
    kc_rsqrt_sums(sum, HEADS, 1.0f / (float)dim, a->eps);
    KC_UNROLL for (int k = 0; k < HEADS; ++k)
      if (k < f.n_heads) finish(a, (t * a->v_heads + h0 + k) * dim, o[k], z[k], gain, sum[k], dim, n, group);
  }
  kc_copy_wait(0);
}
