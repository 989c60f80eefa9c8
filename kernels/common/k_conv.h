/* k_conv.h -- causal depthwise convolution over tokens, for a run of channels
 * that one part owns, with rows before the window taken from a history.
 *
 * Tap j of token t reads row t - (n_taps - 1 - j) * dilation; the history has
 * (n_taps - 1) * dilation rows, oldest first. Both are rows of one type (k_rows.h), a
 * constant where these are inlined. */
#ifndef K_CONV_H
#define K_CONV_H

#include "common/k_simd.h"
#include "common/k_vmath.h"
#include "common/k_vrows.h"

enum { K_CONV_RUN = 1024, K_CONV_TAPS = 16 };

typedef struct k_conv {
  const void *x;    /* [T][stride], the window's raw rows, at the first channel */
  const float *w;   /* [channels][n_taps], at the first channel */
  void *history;    /* [(n_taps-1)*dilation][stride], at the first channel */
  int64_t stride;
  int32_t n_tokens, n_taps, dilation;
} k_conv;

/* Raw row of channels c.. at window token t, which may be in the history. */
K_INLINE const void *k_conv_row(const k_conv *v, int64_t t, int64_t c, int32_t type) {
  int64_t before = (int64_t)(v->n_taps - 1) * v->dilation;
  return t < 0 ? k_rows_at(v->history, (before + t) * v->stride + c, type) : k_rows_at(v->x, t * v->stride + c, type);
}

/* The taps of n <= K_CONV_RUN channels from c on, tap-major. */
K_INLINE void k_conv_taps(const k_conv *v, int64_t c, int n, float taps[K_CONV_TAPS][K_CONV_RUN]) {
  for (int j = 0; j < v->n_taps; ++j)
    for (int i = 0; i < n; ++i) taps[j][i] = v->w[(c + i) * v->n_taps + j];
}

/* Element i of y is silu(conv of channel c + i at token t), i < n (silu_half where the rows
 * are f16); channel c has its taps at column tap of taps. y is a row of type y_type. */
K_INLINE void k_conv_token(const k_conv *v, int64_t t, int64_t c, int n,
                           float taps[K_CONV_TAPS][K_CONV_RUN], int tap, int32_t type, void *y, int32_t y_type) {
  const void *row[K_CONV_TAPS];
  for (int j = 0; j < v->n_taps; ++j)
    row[j] = k_conv_row(v, t - (int64_t)(v->n_taps - 1 - j) * v->dilation, c, type);
  int i = 0;
  for (; i + VW <= n; i += VW) {
    vf sum = vf_mul(vf_load(taps[0] + tap + i), kv_rows_load(row[0], i, type));
    for (int j = 1; j < v->n_taps; ++j)
      sum = vf_fma(vf_load(taps[j] + tap + i), kv_rows_load(row[j], i, type), sum);
    kv_rows_store(y, i, y_type, type == STK_F16 ? kv_silu_half(sum) : kv_silu(sum));
  }
  for (; i < n; ++i) {
    float sum = taps[0][tap + i] * k_rows_get(row[0], i, type);
    for (int j = 1; j < v->n_taps; ++j) sum = ks_fma(taps[j][tap + i], k_rows_get(row[j], i, type), sum);
    k_rows_put(y, i, y_type, type == STK_F16 ? ks_silu_half(sum) : ks_silu(sum));
  }
}

/* Advances the history of n channels from c on past the window. Rows move
 * towards the old end, so ascending order never reads what it has written. */
K_INLINE void k_conv_advance(const k_conv *v, int64_t c, int64_t n, int32_t type) {
  int64_t before = (int64_t)(v->n_taps - 1) * v->dilation;
  for (int64_t j = 0; j < before; ++j)
    memcpy(k_rows_into(v->history, j * v->stride + c, type), k_conv_row(v, v->n_tokens - before + j, c, type),
           k_rows_bytes(n, type));
}

#endif
