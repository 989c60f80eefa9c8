/* qsa_attn, the oracle: one head of one token at a time. */
#include <stdlib.h>

#include "common/k_oracle.h"
#include "qsa_attn/qsa_attn.h"

typedef struct soft {
  float m, l, acc[STK_HEAD_DIM_MAX];
} soft;

static float larger(float a, float b) { return b < a ? a : b; }

static int64_t cell_of(const stk_qsa_attn_args *a, int64_t t, int64_t i) {
  return a->n_ids[t] ? a->ids[t * a->ids_stride + i] : i;
}

static void split(const stk_qsa_attn_args *a, int64_t t, int64_t h, int64_t begin, int64_t end, soft *s) {
  const int64_t D = a->head_dim, kv = h / (a->q_heads / a->kv_heads);
  const float *q = a->q + (t * a->q_heads + h) * D;
  for (int64_t tile = begin; tile < end; tile += STK_ATTN_TILE) {
    int64_t n = end - tile < STK_ATTN_TILE ? end - tile : STK_ATTN_TILE;
    float score[STK_ATTN_TILE], e[STK_ATTN_TILE] = {0};
    for (int64_t i = 0; i < n; ++i) {
      const float *key = a->k_cache + (cell_of(a, t, tile + i) * a->kv_heads + kv) * D;
      score[i] = ko_tree32(q, key, D) * (float)(1.0 / sqrt((double)D));
    }
    float m = tile == begin ? score[0] : s->m;
    for (int64_t i = 0; i < n; ++i) m = larger(m, score[i]);
    for (int64_t i = 0; i < n; ++i) e[i] = ks_exp(score[i] - m);
    float sum = ko_tree32(e, NULL, STK_ATTN_TILE);
    float f = tile == begin ? 0.0f : ks_exp(s->m - m);
    s->l = tile == begin ? sum : fmaf(s->l, f, sum);
    for (int64_t d = 0; d < D; ++d) {
      float acc = tile == begin ? 0.0f : s->acc[d] * f;
      for (int64_t i = 0; i < n; ++i)
        acc = fmaf(e[i], a->v_cache[(cell_of(a, t, tile + i) * a->kv_heads + kv) * D + d], acc);
      s->acc[d] = acc;
    }
    s->m = m;
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_attn_args *a = args;
  const int64_t D = a->head_dim;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->q_heads, 1, part, n_parts, &begin, &end);
  for (int64_t row = begin; row < end; ++row) {
    int64_t t = row / a->q_heads, h = row % a->q_heads;
    int64_t n = a->n_ids[t] ? llabs(a->n_ids[t]) : a->pos0 + t + 1;
    soft total, next;
    split(a, t, h, 0, n < STK_ATTN_SPLIT ? n : STK_ATTN_SPLIT, &total);
    for (int64_t from = STK_ATTN_SPLIT; from < n; from += STK_ATTN_SPLIT) {
      split(a, t, h, from, n - from < STK_ATTN_SPLIT ? n : from + STK_ATTN_SPLIT, &next);
      float m = larger(total.m, next.m), f = ks_exp(total.m - m), f2 = ks_exp(next.m - m);
      total.l = fmaf(next.l, f2, total.l * f);
      for (int64_t d = 0; d < D; ++d) total.acc[d] = fmaf(next.acc[d], f2, total.acc[d] * f);
      total.m = m;
    }
    float inv = a->n_ids[t] < 0 ? NAN : 1.0f / total.l;
    const float *gate = a->q_raw + row * 2 * D + D;
    for (int64_t d = 0; d < D; ++d) a->out[row * D + d] = (total.acc[d] * inv) * ks_sigmoid(gate[d]);
  }
}

STK_KERNEL(qsa_attn, oracle, "scalar", STK_QSA_ATTN_CONTRACT, stk_qsa_attn_args, STK_EXACT, run);
