/* isa: cuda
 * gdn_post -- a warp four heads of a token, or of two, which are asked for into shared
 * memory at once; other warps work meanwhile. For the norm lane l reads elements l,
 * l + 32, ... of a head, so that the lanes of the order tree32 are the warp's; for the
 * gate four neighbours, so that they leave in one store. Square root and division of the
 * four norms are made once, in different lanes.
 *
 * Grid: runs of tokens, and in each the heads WARPS * HEADS at a time: blocks that are at work
 * together then share whole rows of z and of the output. */
#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
#include "common/k_cuda_rows.h"
#include "gdn_post/gdn_post_cuda_grid.h"

enum { WARPS = GDN_POST_WARPS, HEADS = GDN_POST_HEADS };

#ifdef GDN_DV
#define DIM GDN_DV
#define V_HEADS GDN_HV
#define ELEMS_MAX ((GDN_DV + 127) / 128 * 4)
#define GATE GDN_GATE
#define OUTPUTS GDN_OUTPUTS
#define ROW_TYPE GDN_ROWS
#else
#define DIM a->v_dim
#define V_HEADS a->v_heads
#define ELEMS_MAX 16
#define GATE ((int)a->gate)
#define OUTPUTS a->outputs
#define ROW_TYPE a->rows
#endif

/* Of the heads h0 on, n_heads (at most HEADS), the rows on their way to shared memory: of
 * a token, of each head a row of o and one of z, one behind the other. */
typedef struct rows {
  char *shared;
  int64_t h0;
  int n_heads;
} rows;

/* Row k of o or z (which: 0 or 1) of token i of the run. */
KC_INLINE void *row_of(const rows *r, int i, int which, int k, int dim, int type) {
  return kc_row_into(r->shared + i * gdn_post_token_bytes(dim, kc_row_bytes(type)), (2 * k + which) * dim, type);
}

/* Rows of whole pieces of 16 bytes: of each head's two rows a lane copies the same pieces. */
KC_INLINE void ask_pieces(const stk_gdn_post_args *a, const rows *r, int64_t t, int i, int dim, int type) {
  const int row_bytes = dim * kc_row_bytes(type), n = row_bytes / 16;
  KC_UNROLL for (int j = 0; j < 2 * n; j += 32) {
    const int piece = j + kc_lane, is_z = piece >= n;
    const int64_t head_bytes = is_z ? row_bytes : a->n_tokens * (int64_t)row_bytes;
    const int64_t token_bytes = is_z ? a->v_heads * (int64_t)row_bytes : row_bytes;
    const char *from = (const char *)(is_z ? a->z : a->o) + r->h0 * head_bytes + t * token_bytes + 16 * (is_z ? piece - n : piece);
    char *to = (char *)row_of(r, i, 0, 0, dim, type) + 16 * piece;
    KC_UNROLL for (int k = 0; k < HEADS; ++k)
      if (k < r->n_heads && (2 * n % 32 == 0 || piece < 2 * n)) kc_copy16(to + 2 * k * row_bytes, from + k * head_bytes);
  }
}

/* A row that is not whole pieces; halves of an odd number cannot be copied in the
 * background. */
KC_INLINE void ask_row(void *to, const void *from, int dim, int type) {
  const int n_bytes = dim * kc_row_bytes(type);
  if (n_bytes % 4 == 0)
    for (int i = 4 * kc_lane; i < n_bytes; i += 128) kc_copy4((char *)to + i, (const char *)from + i);
  else
    for (int i = kc_lane; i < dim; i += 32) ((uint16_t *)to)[i] = ((const uint16_t *)from)[i];
}

/* Asks for token t, number i of the run. */
KC_INLINE void ask(const stk_gdn_post_args *a, const rows *r, int64_t t, int i, int dim, int type) {
  if (dim * kc_row_bytes(type) % 16 == 0) {
    ask_pieces(a, r, t, i, dim, type);
    return;
  }
  KC_UNROLL for (int k = 0; k < HEADS; ++k) {
    const int64_t o = ((r->h0 + k) * a->n_tokens + t) * dim, z = (t * a->v_heads + r->h0 + k) * dim;
    if (k >= r->n_heads) break;
    ask_row(row_of(r, i, 0, k, dim, type), kc_row_at(a->o, o, type), dim, type);
    ask_row(row_of(r, i, 1, k, dim, type), kc_row_at(a->z, z, type), dim, type);
  }
}

/* A lane's elements of a row; those beyond the end are 0, so that they add nothing. */
KC_INLINE void load(const void *row, float *x, int dim, int n, int group, int type) {
  if (dim % 128 == 0) {
    kc_row_load_elements(row, x, n, group, type);
    return;
  }
  KC_UNROLL for (int i = 0; i < n; ++i)
    x[i] = kc_element(i, 1) < dim ? kc_row_load(row, kc_element(i, 1), type) : 0.0f;
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

KC_KERNEL(gdn_post_cuda, stk_gdn_post_args, 32 * WARPS, 7) {
  const int type = ROW_TYPE, dim = DIM, n = (dim + 127) / 128 * 4, group = dim % 128 == 0 ? 4 : 1;
  const int row_bytes = kc_row_bytes(type), run_max = gdn_post_run_max(row_bytes);
  const int run = gdn_post_run(a->n_tokens, V_HEADS, kc_processors, row_bytes);
  const int groups = gdn_post_groups(V_HEADS), t0 = kc_block / groups * run;
  const int n_tokens = a->n_tokens - t0 < run ? a->n_tokens - t0 : run;
  const int h0 = (kc_block % groups * WARPS + kc_warp) * HEADS, left = V_HEADS - h0;
  KC_SHARED(char, shared);
  float gain[ELEMS_MAX];
  if (left <= 0) return;
  const rows r = {shared + kc_warp * gdn_post_warp_bytes(dim, row_bytes), h0,
                  V_HEADS % HEADS == 0 || left > HEADS ? HEADS : left}; /* a constant where it can be */
  KC_UNROLL for (int i = 0; i < run_max; ++i) {
    if (i < n_tokens) ask(a, &r, t0 + i, i, dim, type);
    kc_copy_commit();
  }
  load(a->gain, gain, dim, n, group, STK_F32);
  for (int i = 0; i < n_tokens; ++i) {
    float o[HEADS][ELEMS_MAX], z[HEADS][ELEMS_MAX], sum[HEADS];
    if (i + 1 < run_max) kc_copy_wait(1);
    else kc_copy_wait(0);
    kc_sync_warp();
    KC_UNROLL for (int k = 0; k < HEADS; ++k) {
      const void *o_row = row_of(&r, i, 0, k, dim, type);
      load(o_row, o[k], dim, n, 1, type);
      sum[k] = squares(o[k], n);
      if (group != 1) load(o_row, o[k], dim, n, group, type);
      load(row_of(&r, i, 1, k, dim, type), z[k], dim, n, group, type);
    }
    kc_rsqrt_sums(sum, HEADS, 1.0f / (float)dim, a->eps);
    KC_UNROLL for (int k = 0; k < HEADS; ++k)
      if (k < r.n_heads)
        finish(a, ((t0 + i) * (int64_t)V_HEADS + h0 + k) * dim, o[k], z[k], gain, sum[k], dim, n, group);
  }
}
