/* gdn_pre, the oracle: history and window are read through one function, and
 * every channel is convolved by itself. */
#include <stdbool.h>

#include "common/k_oracle.h"
#include "common/k_rows.h"
#include "gdn_pre/gdn_pre.h"

static int64_t n_channels(const stk_gdn_pre_args *a) {
  return 2 * (int64_t)a->k_heads * a->k_dim + (int64_t)a->v_heads * a->v_dim;
}

/* Raw value of channel c at window token t, and where it lies; t < 0 is in the history. */
static const void *raw_at(const stk_gdn_pre_args *a, int64_t t, int64_t c) {
  int64_t channels = n_channels(a);
  return t < 0 ? k_rows_at(a->history, (a->n_taps - 1 + t) * channels + c, a->rows)
               : k_rows_at(a->qkv, t * channels + c, a->rows);
}

static float raw(const stk_gdn_pre_args *a, int64_t t, int64_t c) { return k_rows_get(raw_at(a, t, c), 0, a->rows); }

static float conv(const stk_gdn_pre_args *a, int64_t t, int64_t c) {
  const float *w = a->conv_w + c * a->n_taps;
  float y = w[0] * raw(a, t - a->n_taps + 1, c);
  for (int64_t j = 1; j < a->n_taps; ++j) y = fmaf(w[j], raw(a, t - a->n_taps + 1 + j, c), y);
  return a->rows == STK_F16 ? ks_silu_half(y) : ks_silu(y);
}

/* Key of token t; the two before the window are in the first rows of kn. */
static void *key_row(const stk_gdn_pre_args *a, int64_t h, int64_t t) {
  return k_rows_into(a->kn, (h * (a->n_tokens + 2) + 2 + t) * a->k_dim, a->rows);
}

static void *tail_row(const stk_gdn_pre_args *a, int64_t h, int64_t row) {
  return k_rows_into(a->k_tail, (row * a->k_heads + h) * a->k_dim, a->rows);
}

/* to = the convolved channels from c on, normalised. */
static void unit_row(const stk_gdn_pre_args *a, int64_t t, int64_t c, float scale, void *to) {
  float x[STK_GDN_PRE_K_DIM_MAX];
  for (int64_t i = 0; i < a->k_dim; ++i) x[i] = conv(a, t, c + i);
  float inv = ks_rsqrt(ko_tree32(x, x, a->k_dim) + 1e-6f) * scale;
  for (int64_t i = 0; i < a->k_dim; ++i) k_rows_put(to, i, a->rows, x[i] * inv);
}

static void key_head(const stk_gdn_pre_args *a, int64_t t, int64_t h) {
  const int64_t dim = a->k_dim;
  void *q = k_rows_into(a->qn, (h * a->n_tokens + t) * dim, a->rows), *k = key_row(a, h, t);
  const void *before = key_row(a, h, t - 1);
  unit_row(a, t, h * dim, (float)(1.0 / sqrt((double)dim)), q);
  unit_row(a, t, (a->k_heads + h) * dim, 1.0f, k);
  float *dots = a->kq + (h * a->n_tokens + t) * 3;
  bool odd = (a->pos0 + t) % 2;
  dots[0] = ko_tree32_rows(k, q, a->rows, dim);
  dots[1] = odd ? ko_tree32_rows(before, k, a->rows, dim) : 0.0f;
  dots[2] = odd ? ko_tree32_rows(before, q, a->rows, dim) : 0.0f;
}

static void value_head(const stk_gdn_pre_args *a, int64_t t, int64_t h) {
  for (int64_t j = 0; j < a->v_dim; ++j)
    k_rows_put(a->vc, (h * a->n_tokens + t) * a->v_dim + j, a->rows,
               conv(a, t, 2 * (int64_t)a->k_heads * a->k_dim + h * a->v_dim + j));
}

static void gate(const stk_gdn_pre_args *a, int64_t t, int64_t h) {
  const float *ab = a->ab + t * 2 * a->v_heads;
  float g = -ks_exp(a->a_log[h]) * ks_softplus(ab[h] + a->dt_bias[h]);
  a->gb[(h * a->n_tokens + t) * 2] = ks_exp(g);
  a->gb[(h * a->n_tokens + t) * 2 + 1] = ks_sigmoid(ab[a->v_heads + h]);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_pre_args *a = args;
  const size_t key_bytes = k_rows_bytes(a->k_dim, a->rows);
  (void)n_parts;
  if (part != 0) return;
  for (int64_t h = 0; h < a->k_heads && a->kinds & STK_GDN_KEYS; ++h) {
    for (int64_t row = 0; row < 2; ++row)
      memcpy(key_row(a, h, row - 2), tail_row(a, h, row), key_bytes);
    for (int64_t t = 0; t < a->n_tokens; ++t) key_head(a, t, h);
    for (int64_t row = 0; row < 2; ++row)
      memcpy(tail_row(a, h, row), key_row(a, h, a->n_tokens - 2 + row), key_bytes);
  }
  for (int64_t t = 0; t < a->n_tokens; ++t)
    for (int64_t h = 0; h < a->v_heads; ++h) {
      if (a->kinds & STK_GDN_VALUES) value_head(a, t, h);
      if (a->kinds & STK_GDN_GATES) gate(a, t, h);
    }
  const int64_t channels = n_channels(a), keys = 2 * (int64_t)a->k_heads * a->k_dim;
  for (int64_t c = 0; c < channels; ++c) {
    if (!(a->kinds & (c < keys ? STK_GDN_KEYS : STK_GDN_VALUES))) continue;
    float next[STK_CONV_TAPS_MAX]; /* as they are: a NaN keeps its bits */
    const size_t bytes = k_rows_bytes(1, a->rows);
    for (int64_t j = 0; j < a->n_taps - 1; ++j)
      memcpy(&next[j], raw_at(a, a->n_tokens - (a->n_taps - 1) + j, c), bytes);
    for (int64_t j = 0; j < a->n_taps - 1; ++j)
      memcpy(k_rows_into(a->history, j * channels + c, a->rows), &next[j], bytes);
  }
}

STK_KERNEL(gdn_pre, oracle, "scalar", STK_GDN_PRE_CONTRACT, stk_gdn_pre_args, STK_EXACT, run);
