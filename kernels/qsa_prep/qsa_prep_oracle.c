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

static void queries(const stk_qsa_prep_args *a, int64_t t) {
  const int64_t D = a->head_dim, pairs = a->n_pairs;
  for (int64_t h = 0; h < a->q_heads; ++h) {
    float *q = a->q + (t * a->q_heads + h) * D;
    ko_rms_norm(a->q_raw + (t * a->q_heads + h) * 2 * D, a->q_gain, a->eps, D, q);
    rope(q, a->cos + t * pairs, a->sin + t * pairs, pairs);
  }
}

static void keys_and_values(const stk_qsa_prep_args *a, int64_t t) {
  const int64_t D = a->head_dim, pairs = a->n_pairs;
  const stk_cache kv = stk_qsa_prep_kv(a);
  for (int64_t h = 0; h < a->kv_heads; ++h) {
    float key[STK_QSA_HEAD_MAX];
    ko_rms_norm(a->k_raw + (t * a->kv_heads + h) * D, a->k_gain, a->eps, D, key);
    rope(key, a->cos + t * pairs, a->sin + t * pairs, pairs);
    ko_cache_put(&kv, h, a->pos0 + t, key);
    ko_cache_put(&kv, a->kv_heads + h, a->pos0 + t, a->v_raw + (t * a->kv_heads + h) * D);
  }
}

static void index_queries(const stk_qsa_prep_args *a, int64_t t) {
  const int64_t Di = a->idx_dim, pairs = a->n_pairs;
  for (int64_t h = 0; h < a->idx_heads; ++h) {
    float *iq = a->iq + (t * a->idx_heads + h) * Di;
    ko_rms_norm(a->index_raw + (t * (a->idx_heads + 1) + h) * Di, a->iq_gain, a->eps, Di, iq);
    rope(iq, a->cos + t * pairs, a->sin + t * pairs, pairs);
  }
}

static void block_key(const stk_qsa_prep_args *a, int64_t t) {
  const int64_t Di = a->idx_dim, pos = a->pos0 + t, block = pos / a->ratio;
  const stk_cache blocks = stk_qsa_prep_blocks(a);
  memcpy(a->open_keys + pos % a->ratio * Di,
         a->index_raw + (t * (a->idx_heads + 1) + a->idx_heads) * Di, (size_t)Di * sizeof(float));
  if (pos % a->ratio != a->ratio - 1) return;
  float *key = stk_cache_data(&blocks, 0, block);
  for (int64_t i = 0; i < Di; ++i) {
    float sum = a->open_keys[i];
    for (int64_t j = 1; j < a->ratio; ++j) sum = sum + a->open_keys[j * Di + i];
    key[i] = sum * (1.0f / (float)a->ratio);
  }
  ko_rms_norm(key, a->ik_gain, a->eps, Di, key);
  int64_t at = (block - stk_qsa_prep_first_block(a)) * a->n_pairs;
  rope(key, a->block_cos + at, a->block_sin + at, a->n_pairs);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_prep_args *a = args;
  (void)n_parts;
  if (part != 0) return;
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    if (a->kinds & STK_QSA_QUERIES) queries(a, t);
    if (a->kinds & STK_QSA_KV) keys_and_values(a, t);
    if (a->kinds & STK_QSA_INDEX) index_queries(a, t);
    if (a->kinds & STK_QSA_BLOCKS) block_key(a, t);
  }
}

STK_KERNEL(qsa_prep, oracle, "scalar", STK_QSA_PREP_CONTRACT, stk_qsa_prep_args, STK_EXACT, run);
