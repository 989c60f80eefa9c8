/* The oracle's steps of qsa_attn, qsa_flash, qsa_decode and qsa_merge: one head of
 * one token at a time, as the contract (qsa_attn.h) says it. */
#ifndef QSA_ATTN_PLAIN_H
#define QSA_ATTN_PLAIN_H

#include <math.h>

#include "common/k_oracle.h"
#include "qsa_attn/qsa_attn.h"

typedef struct plain_soft {
  float m, l, acc[STK_HEAD_DIM_MAX];
} plain_soft;

static inline float plain_larger(float a, float b) { return b < a ? a : b; }

static inline float plain_largest(const float score[STK_ATTN_TILE], int64_t n) {
  float lane[STK_ATTN_TILE];
  for (int64_t i = 0; i < STK_ATTN_TILE; ++i) lane[i] = i < n ? score[i] : score[0];
  for (int half = 16; half; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] = plain_larger(lane[i], lane[i + half]);
  return lane[0];
}

/* Places begin .. end - 1 of a list; ids NULL: the list is 0, 1, 2, ... */
static inline void plain_split(const stk_qsa_attn_args *a, int64_t t, int64_t h, const int32_t *ids,
                               int64_t begin, int64_t end, plain_soft *s) {
  const int64_t D = a->head_dim, kv = h / (a->q_heads / a->kv_heads);
  const float *q = a->q + (t * a->q_heads + h) * D;
  const stk_cache cache = stk_qsa_attn_kv(a);
  for (int64_t tile = begin; tile < end; tile += STK_ATTN_TILE) {
    int64_t n = end - tile < STK_ATTN_TILE ? end - tile : STK_ATTN_TILE;
    float score[STK_ATTN_TILE], e[STK_ATTN_TILE] = {0}, key[STK_HEAD_DIM_MAX];
    for (int64_t i = 0; i < n; ++i) {
      int64_t cell = ids ? ids[tile + i] : tile + i;
      for (int64_t d = 0; d < D; ++d) key[d] = ko_cache_get(&cache, kv, cell, d);
      score[i] = ko_fma32(q, key, D) * (float)(1.0 / sqrt((double)D));
    }
    float m = plain_largest(score, n);
    if (tile > begin) m = plain_larger(s->m, m);
    for (int64_t i = 0; i < n; ++i) e[i] = ks_exp(score[i] - m);
    float sum = ko_tree32(e, NULL, STK_ATTN_TILE);
    float f = tile == begin ? 0.0f : ks_exp(s->m - m);
    s->l = tile == begin ? sum : fmaf(s->l, f, sum);
    for (int64_t d = 0; d < D; ++d) {
      float acc = tile == begin ? 0.0f : s->acc[d] * f;
      for (int64_t i = 0; i < n; ++i)
        acc = fmaf(e[i], ko_cache_get(&cache, a->kv_heads + kv, ids ? ids[tile + i] : tile + i, d), acc);
      s->acc[d] = acc;
    }
    s->m = m;
  }
}

/* Adds a later split. */
static inline void plain_merge(plain_soft *total, const plain_soft *next, int64_t dim) {
  float m = plain_larger(total->m, next->m);
  float f = ks_exp(total->m - m), f2 = ks_exp(next->m - m);
  total->l = fmaf(next->l, f2, total->l * f);
  for (int64_t d = 0; d < dim; ++d) total->acc[d] = fmaf(next->acc[d], f2, total->acc[d] * f);
  total->m = m;
}

/* The output of row t * Hq + h. */
static inline void plain_finish(const stk_qsa_attn_args *a, int64_t row, const plain_soft *s, int is_nan) {
  const int64_t D = a->head_dim;
  const float *gate = a->q_raw + row * 2 * D + D;
  float inv = is_nan ? NAN : 1.0f / s->l;
  for (int64_t d = 0; d < D; ++d) {
    float y = (s->acc[d] * inv) * ks_sigmoid(gate[d]);
    if (a->outputs & STK_ATTN_F32) a->out[row * D + d] = y;
    if (a->outputs & STK_ATTN_F16) a->out_half[row * D + d] = (uint16_t)ks_to_half(y);
  }
}

/* A whole row; ids NULL: the list is derived. */
static inline void plain_row(const stk_qsa_attn_args *a, int64_t row, const int32_t *ids, int64_t n,
                             int is_nan) {
  const int64_t t = row / a->q_heads, h = row % a->q_heads;
  plain_soft total, next;
  plain_split(a, t, h, ids, 0, n < STK_ATTN_SPLIT ? n : STK_ATTN_SPLIT, &total);
  for (int64_t from = STK_ATTN_SPLIT; from < n; from += STK_ATTN_SPLIT) {
    plain_split(a, t, h, ids, from, n - from < STK_ATTN_SPLIT ? n : from + STK_ATTN_SPLIT, &next);
    plain_merge(&total, &next, a->head_dim);
  }
  plain_finish(a, row, &total, is_nan);
}

#endif
