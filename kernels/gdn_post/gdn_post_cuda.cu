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
#include "common/k_cuda_rows.h"
#include "gdn_post/gdn_post_cuda_grid.h"

enum { WARPS = GDN_POST_WARPS, HEADS = GDN_POST_HEADS, SLOTS = GDN_POST_SLOTS };

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

/* A warp's rows on their way. A slot has of each head a row of o and one of z, one behind
 * the other. Of each head's two rows a lane copies the same pieces of 16 bytes: next is
 * where they are, of the token to be asked for and the first head. */
enum { PIECES_MAX = ELEMS_MAX / 2 };
typedef struct feed {
  char *slots;
  int64_t h0, left; /* tokens not yet asked for */
  int n_heads;
  const char *next[PIECES_MAX];
  int64_t head_bytes[PIECES_MAX], token_bytes[PIECES_MAX]; /* from head to head, from token to token */
} feed;

/* Row k of o or z (which: 0 or 1) in a slot. */
KC_INLINE void *slot_row(const feed *f, int slot, int which, int k, int dim, int type) {
  return kc_row_into(f->slots + slot * gdn_post_slot_bytes(dim, kc_row_bytes(type)), (2 * k + which) * dim, type);
}

/* Rows in whole pieces of 16 bytes are asked for in few instructions. */
KC_INLINE int has_pieces(int dim, int type) { return dim * kc_row_bytes(type) % 16 == 0; }
KC_INLINE int row_pieces(int dim, int type) { return dim * kc_row_bytes(type) / 16; }
KC_INLINE int lane_pieces(int dim, int type) { return (2 * row_pieces(dim, type) + 31) / 32; }

KC_INLINE void feed_begin(feed *f, const stk_gdn_post_args *a, int64_t t0, int64_t t1, int dim, int type) {
  const int64_t row_bytes = dim * kc_row_bytes(type);
  f->left = t1 - t0;
  if (!has_pieces(dim, type)) return;
  KC_UNROLL for (int j = 0; j < lane_pieces(dim, type); ++j) {
    const int piece = 32 * j + kc_lane, n = row_pieces(dim, type), is_z = piece >= n;
    f->head_bytes[j] = is_z ? row_bytes : a->n_tokens * row_bytes;
    f->token_bytes[j] = is_z ? a->v_heads * row_bytes : row_bytes;
    f->next[j] = (const char *)(is_z ? a->z : a->o) + f->h0 * f->head_bytes[j] + t0 * f->token_bytes[j] +
                 16 * (is_z ? piece - n : piece);
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

/* Asks for the next token; for none if none is left. t: which one it is. */
KC_INLINE void ask(const stk_gdn_post_args *a, feed *f, int64_t t, int slot, int dim, int type) {
  const int n_heads = f->left > 0 ? f->n_heads : 0, n_pieces = 2 * row_pieces(dim, type);
  KC_UNROLL for (int k = 0; k < HEADS; ++k) {
    if (has_pieces(dim, type)) {
      char *to = (char *)slot_row(f, slot, 0, k, dim, type) + 16 * kc_lane;
      KC_UNROLL for (int j = 0; j < lane_pieces(dim, type); ++j)
        if (k < n_heads && (n_pieces % 32 == 0 || 32 * j + kc_lane < n_pieces))
          kc_copy16(to + 512 * j, f->next[j] + k * f->head_bytes[j]);
    } else if (k < n_heads) {
      const int64_t o = ((f->h0 + k) * a->n_tokens + t) * dim, z = (t * a->v_heads + f->h0 + k) * dim;
      ask_row(slot_row(f, slot, 0, k, dim, type), kc_row_at(a->o, o, type), dim, type);
      ask_row(slot_row(f, slot, 1, k, dim, type), kc_row_at(a->z, z, type), dim, type);
    }
  }
  if (has_pieces(dim, type))
    KC_UNROLL for (int j = 0; j < lane_pieces(dim, type); ++j) f->next[j] += f->token_bytes[j];
  --f->left;
  kc_copy_commit();
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

KC_KERNEL(gdn_post_cuda, stk_gdn_post_args, 32 * WARPS, 6) {
  const int type = ROW_TYPE, dim = DIM, n = (dim + 127) / 128 * 4, group = dim % 128 == 0 ? 4 : 1;
  const int run = gdn_post_run(a->n_tokens, V_HEADS, kc_processors);
  const int64_t t0 = (int64_t)kc_block * run, t1 = t0 + run < a->n_tokens ? t0 + run : a->n_tokens;
  const int64_t h0 = ((int64_t)kc_block_y * WARPS + kc_warp) * HEADS;
  KC_SHARED(char, shared);
  const int left = (int)(a->v_heads - h0);
  float gain[ELEMS_MAX];
  int slot = 0;
  feed f;
  if (left <= 0) return;
  f.slots = shared + kc_warp * SLOTS * gdn_post_slot_bytes(dim, kc_row_bytes(type));
  f.h0 = h0;
  f.n_heads = V_HEADS % HEADS == 0 || left > HEADS ? HEADS : left; /* a constant where it can be */
  feed_begin(&f, a, t0, t1, dim, type);
  KC_UNROLL for (int k = 0; k < SLOTS; ++k) ask(a, &f, t0 + k, k, dim, type);
  load(a->gain, gain, dim, n, group, STK_F32);
  for (int64_t t = t0; t < t1; ++t) {
    float o[HEADS][ELEMS_MAX], z[HEADS][ELEMS_MAX], sum[HEADS];
    kc_copy_wait(SLOTS - 1);
    kc_sync_warp();
    KC_UNROLL for (int k = 0; k < HEADS; ++k) {
      const void *o_row = slot_row(&f, slot, 0, k, dim, type);
      load(o_row, o[k], dim, n, 1, type);
      sum[k] = squares(o[k], n);
      if (group != 1) load(o_row, o[k], dim, n, group, type);
      load(slot_row(&f, slot, 1, k, dim, type), z[k], dim, n, group, type);
    }
    kc_sync_warp();
    ask(a, &f, t + SLOTS, slot, dim, type);
    slot = slot + 1 < SLOTS ? slot + 1 : 0;
    kc_rsqrt_sums(sum, HEADS, 1.0f / (float)dim, a->eps);
    KC_UNROLL for (int k = 0; k < HEADS; ++k)
      if (k < f.n_heads) finish(a, (t * a->v_heads + h0 + k) * dim, o[k], z[k], gain, sum[k], dim, n, group);
  }
  kc_copy_wait(0);
}
