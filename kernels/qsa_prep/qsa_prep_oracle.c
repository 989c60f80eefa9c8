/* qsa_prep, the oracle. */
#include "common/k_oracle.h"
#include "qsa_prep/qsa_prep.h"

static void rope(float *x, const float *cos, const float *sin, int64_t n_pairs) {
  for (int64_t i = 0; i < n_pairs; ++i) {
    float low = x[i], high = x[i + n_pairs];
    x[i] = fmaf(-high, sin[i], low * cos[i]);
    x[i + n_pairs] = fmaf(low, sin[i], high * cos[i]);
  }
}

static void token(const stk_qsa_prep_args *a, int64_t t) {
  const int64_t D = a->head_dim, Di = a->idx_dim, pairs = a->n_pairs;
  const float *cos = a->cos + t * pairs, *sin = a->sin + t * pairs;
  for (int64_t h = 0; h < a->q_heads; ++h) {
    float *q = a->q + (t * a->q_heads + h) * D;
    ko_rms_norm(a->q_raw + (t * a->q_heads + h) * 2 * D, a->q_gain, a->eps, D, q);
    rope(q, cos, sin, pairs);
  }
  for (int64_t h = 0; h < a->kv_heads; ++h) {
    int64_t from = (t * a->kv_heads + h) * D, to = ((a->pos0 + t) * a->kv_heads + h) * D;
    ko_rms_norm(a->k_raw + from, a->k_gain, a->eps, D, a->k_cache + to);
    rope(a->k_cache + to, cos, sin, pairs);
    memcpy(a->v_cache + to, a->v_raw + from, (size_t)D * sizeof(float));
  }
  for (int64_t h = 0; h < a->idx_heads; ++h) {
    float *iq = a->iq + (t * a->idx_heads + h) * Di;
    ko_rms_norm(a->index_raw + (t * (a->idx_heads + 1) + h) * Di, a->iq_gain, a->eps, Di, iq);
    rope(iq, cos, sin, pairs);
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_prep_args *a = args;
  const int64_t Di = a->idx_dim;
  (void)n_parts;
  if (part != 0) return;
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    int64_t pos = a->pos0 + t, block = pos / a->ratio;
    token(a, t);
    memcpy(a->open_keys + pos % a->ratio * Di,
           a->index_raw + (t * (a->idx_heads + 1) + a->idx_heads) * Di, (size_t)Di * sizeof(float));
    if (pos % a->ratio != a->ratio - 1) continue;
    float *key = a->block_keys + block * Di;
    for (int64_t i = 0; i < Di; ++i) {
      float sum = a->open_keys[i];
      for (int64_t j = 1; j < a->ratio; ++j) sum = sum + a->open_keys[j * Di + i];
      key[i] = sum * (1.0f / (float)a->ratio);
    }
    ko_rms_norm(key, a->ik_gain, a->eps, Di, key);
    int64_t new_block = block - stk_qsa_prep_first_block(a);
    rope(key, a->block_cos + new_block * a->n_pairs, a->block_sin + new_block * a->n_pairs,
         a->n_pairs);
  }
}

STK_KERNEL(qsa_prep, oracle, "scalar", STK_QSA_PREP_CONTRACT, stk_qsa_prep_args, STK_EXACT, run);
