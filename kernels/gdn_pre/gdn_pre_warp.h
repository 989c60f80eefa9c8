/* gdn_pre_warp.h -- what the GPU kernels of gdn_pre share: a warp's convolution of a
 * head's channels and the norms. Lane l holds channels l, l + 32, ..., so that the lanes
 * of the order tree32 are the warp's; or, where nothing is summed, groups of 4
 * neighbours, 128 apart. */
#ifndef GDN_PRE_WARP_H
#define GDN_PRE_WARP_H

#include "common/k_cuda.h"
#include "common/k_cuda_math.h"
#include "common/k_cuda_rows.h"
#include "gdn_pre/gdn_pre.h"

#ifdef GDN_HK
#define K_HEADS GDN_HK
#define V_HEADS GDN_HV
#else
#define K_HEADS a->k_heads
#define V_HEADS a->v_heads
#endif
#ifdef GDN_DK
#define K_DIM GDN_DK
#define V_DIM GDN_DV
#define TAPS GDN_TAPS
#define ROW_TYPE GDN_ROWS
#define ELEMS_MAX ((GDN_DK > GDN_DV ? GDN_DK : GDN_DV) / 32)
#define TAPS_MAX GDN_TAPS
#else
#define K_DIM a->k_dim
#define V_DIM a->v_dim
#define TAPS a->n_taps
#define ROW_TYPE a->rows
#define ELEMS_MAX 8
#define TAPS_MAX STK_CONV_TAPS_MAX
#endif

/* A lane's channels: their taps, and the rows before the next token, oldest first. n
 * (channels a lane), n_taps, group (neighbours) and type (of the rows) are constants where
 * these are inlined. */
typedef struct conv {
  const void *x; /* the window's rows at the lane's first channel */
  void *history;
  const float *taps;
  int64_t stride;
  float w[TAPS_MAX][ELEMS_MAX], row[TAPS_MAX][ELEMS_MAX];
} conv;

/* Channels of a raw row. */
KC_INLINE int64_t raw_channels(const stk_gdn_pre_args *a) {
  (void)a;
  return 2 * (int64_t)K_HEADS * K_DIM + (int64_t)V_HEADS * V_DIM;
}

/* Channel i of a lane, from its first one on: kc_element without the lane. */
KC_INLINE int channel(int i, int group) { return i / group * 32 * group + i % group; }

/* The raw row of token t, which may be in the history. */
KC_INLINE const void *raw_row(const conv *v, int n_taps, int64_t t, int type) {
  return t < 0 ? kc_row_at(v->history, (n_taps - 1 + t) * v->stride, type) : kc_row_at(v->x, t * v->stride, type);
}

KC_INLINE int taps_of(const stk_gdn_pre_args *a) {
  (void)a;
  return TAPS;
}

KC_INLINE int type_of(const stk_gdn_pre_args *a) {
  (void)a;
  return ROW_TYPE;
}

/* Channels of a lane in a key head and in a value head. */
KC_INLINE int key_elems(const stk_gdn_pre_args *a) {
  (void)a;
  return K_DIM / 32;
}
KC_INLINE int value_elems(const stk_gdn_pre_args *a) {
  (void)a;
  return V_DIM / 32;
}

/* A lane's elements of a row as they are. */
typedef struct row_bits {
  unsigned bits[ELEMS_MAX];
} row_bits;

/* The channels c0 on; nothing is read yet. */
KC_INLINE conv conv_at(const stk_gdn_pre_args *a, int64_t c0, int n_taps, int group, int type) {
  const int64_t c = c0 + kc_lane * group;
  conv v;
  v.stride = raw_channels(a);
  v.x = kc_row_at(a->qkv, c, type);
  v.history = kc_row_into(a->history, c, type);
  v.taps = a->conv_w + c * n_taps;
  return v;
}

/* Asks for what token t needs: taps, and the rows before it. */
KC_INLINE void conv_ask(conv *v, row_bits before[], int n, int n_taps, int group, int64_t t, int type) {
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j) {
    const void *row = raw_row(v, n_taps, t - (n_taps - 1) + j, type);
    KC_UNROLL for (int i = 0; i < n; ++i) before[j].bits[i] = kc_row_bits(row, channel(i, group), type);
  }
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const float *w = v->taps + channel(i, group) * n_taps;
    if (n_taps == 4) {
      const kc4 taps = kc_load4(w);
      KC_UNROLL for (int j = 0; j < 4; ++j) v->w[j][i] = taps.v[j];
    } else {
      KC_UNROLL for (int j = 0; j < n_taps; ++j) v->w[j][i] = w[j];
    }
  }
}

/* Waits for the rows: those of f16 are widened. */
KC_INLINE void conv_begin(conv *v, const row_bits before[], int n, int n_taps, int type) {
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i) v->row[j][i] = kc_row_of_bits(before[j].bits[i], type);
}

/* The convolution of the token whose row is x, and on to the next. */
KC_INLINE void conv_token(conv *v, const float *x, int n, int n_taps, float *sum) {
  const int last = n_taps - 1;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    sum[i] = v->w[0][i] * v->row[0][i];
    KC_UNROLL for (int j = 1; j < last; ++j) sum[i] = ks_fma(v->w[j][i], v->row[j][i], sum[i]);
    sum[i] = ks_fma(v->w[last][i], x[i], sum[i]);
    KC_UNROLL for (int j = 0; j < last - 1; ++j) v->row[j][i] = v->row[j + 1][i];
    v->row[last - 1][i] = x[i];
  }
}

/* y[i] = silu(sum[i]), i < n. */
KC_INLINE void conv_silu(const float *sum, float *y, int n, int type) {
  if (type == STK_F16) kc_silu_half(sum, y, n);
  else kc_silu(sum, y, n);
}

/* The window's last rows are the new history: all are read before one is written. */
KC_INLINE void conv_advance(const conv *v, int64_t T, int n, int n_taps, int group, int type) {
  row_bits row[TAPS_MAX];
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i)
      row[j].bits[i] = kc_row_bits(raw_row(v, n_taps, T - (n_taps - 1) + j, type), channel(i, group), type);
  KC_UNROLL for (int j = 0; j < n_taps - 1; ++j)
    KC_UNROLL for (int i = 0; i < n; ++i)
      kc_row_put_bits(v->history, j * v->stride + channel(i, group), type, row[j].bits[i]);
}

/* The lane's part of tree32 of x * y. */
KC_INLINE float tree_lane(const float *x, const float *y, int n) {
  float sum = 0.0f;
  KC_UNROLL for (int i = 0; i < n; i += 4) {
    float s[4];
    KC_UNROLL for (int j = 0; j < 4; ++j) s[j] = i + j < n ? x[i + j] * y[i + j] : 0.0f;
    float group = (s[0] + s[1]) + (s[2] + s[3]);
    sum = i ? sum + group : group;
  }
  return sum;
}

KC_INLINE void scale(float *x, float factor, int n) {
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = x[i] * factor;
}

KC_INLINE void store_row(void *to, const float *x, int n, int type) { kc_row_store_elements(to, x, n, 1, type); }
KC_INLINE void load_row(const void *from, float *x, int n, int type) { kc_row_load_elements(from, x, n, 1, type); }

KC_INLINE void load_bits(const void *from, row_bits *x, int n, int type) {
  KC_UNROLL for (int i = 0; i < n; ++i) x->bits[i] = kc_row_bits(from, 32 * i + kc_lane, type);
}
KC_INLINE void store_bits(void *to, const row_bits *x, int n, int type) {
  KC_UNROLL for (int i = 0; i < n; ++i) kc_row_put_bits(to, 32 * i + kc_lane, type, x->bits[i]);
}

/* x as a row of the type reads. */
KC_INLINE void round_row(float *x, int n, int type) {
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = kc_row_round(x[i], type);
}

KC_INLINE void copy_row(const float *from, float *to, int n) {
  KC_UNROLL for (int i = 0; i < n; ++i) to[i] = from[i];
}

/* What a token's gates of head h are made from, and they: decay and write strength. */
typedef struct gate_inputs {
  float a, b;
} gate_inputs;

KC_INLINE gate_inputs gate_at(const stk_gdn_pre_args *a, int64_t t, int h) {
  const float *ab = a->ab + t * 2 * a->v_heads + h;
  const gate_inputs g = {ab[0], ab[a->v_heads]};
  return g;
}
KC_INLINE kc2 gate_open(const stk_gdn_pre_args *a, int h, gate_inputs g) {
  const float rate = -ks_exp(a->a_log[h]);
  const kc2 decay_beta = {{ks_exp(rate * ks_softplus(g.a + a->dt_bias[h])), ks_sigmoid(g.b)}};
  return decay_beta;
}

#endif
