/* isa: scalar avx2 avx512 neon
 * qsa_prep -- token by token; blocks of index keys by the part that has their
 * last token, except what touches open_keys, which is the last part's. */
#include "qsa_prep/qsa_prep.h"

#include "common/k_cache_rows.h"
#include "common/k_norm.h"
#include "common/k_rope.h"

static void norm_rope(const float *x, const float *gain, float eps, int64_t dim, const float *cos,
                      const float *sin, int64_t n_pairs, float *y) {
  k_rms_norm(x, gain, eps, dim, y);
  k_rope(y, cos, sin, n_pairs);
}

static void keys_and_values(const stk_qsa_prep_args *a, int64_t t) {
  const int64_t D = a->head_dim, pairs = a->n_pairs;
  const stk_cache kv = stk_qsa_prep_kv(a);
  for (int64_t h = 0; h < a->kv_heads; ++h) {
    const int64_t from = (t * a->kv_heads + h) * D;
    float key[STK_QSA_HEAD_MAX];
    norm_rope(a->k_raw + from, a->k_gain, a->eps, D, a->cos + t * pairs, a->sin + t * pairs, pairs,
              key);
    k_cache_write(&kv, h, a->pos0 + t, key);
    k_cache_write(&kv, a->kv_heads + h, a->pos0 + t, a->v_raw + from);
  }
}

static void token(const stk_qsa_prep_args *a, int64_t t) {
  const int64_t D = a->head_dim, Di = a->idx_dim, pairs = a->n_pairs;
  const float *cos = a->cos + t * pairs, *sin = a->sin + t * pairs;
  if (a->kinds & STK_QSA_QUERIES)
    for (int64_t at = t * a->q_heads; at < (t + 1) * a->q_heads; ++at)
      norm_rope(a->q_raw + at * 2 * D, a->q_gain, a->eps, D, cos, sin, pairs, a->q + at * D);
  if (a->kinds & STK_QSA_KV) keys_and_values(a, t);
  if (a->kinds & STK_QSA_INDEX)
    for (int64_t h = 0; h < a->idx_heads; ++h)
      norm_rope(a->index_raw + (t * (a->idx_heads + 1) + h) * Di, a->iq_gain, a->eps, Di, cos, sin,
                pairs, a->iq + (t * a->idx_heads + h) * Di);
}

/* Raw index key at window token t; before the window it is in open_keys. */
static const float *raw_key(const stk_qsa_prep_args *a, int64_t t) {
  if (t < 0) return a->open_keys + (a->pos0 + t) % a->ratio * a->idx_dim;
  return a->index_raw + (t * (a->idx_heads + 1) + a->idx_heads) * a->idx_dim;
}

/* Block key number i of those that end in this window. */
static void block(const stk_qsa_prep_args *a, int64_t i) {
  const int64_t Di = a->idx_dim, index = stk_qsa_prep_first_block(a) + i;
  const int64_t t0 = index * a->ratio - a->pos0;
  const stk_cache blocks = stk_qsa_prep_blocks(a);
  float *key = stk_cache_data(&blocks, 0, index);
  for (int64_t d = 0; d < Di; d += VW) {
    vf sum = vf_load(raw_key(a, t0) + d);
    for (int64_t j = 1; j < a->ratio; ++j) sum = vf_add(sum, vf_load(raw_key(a, t0 + j) + d));
    vf_store(key + d, vf_mul(sum, vf_set1(1.0f / (float)a->ratio)));
  }
  norm_rope(key, a->ik_gain, a->eps, Di, a->block_cos + i * a->n_pairs,
            a->block_sin + i * a->n_pairs, a->n_pairs, key);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_prep_args *a = args;
  int64_t begin, end, n_blocks = stk_qsa_prep_n_blocks(a);
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) token(a, t);
  if (!(a->kinds & STK_QSA_BLOCKS)) return;
  if (n_blocks > 1) {
    stk_slice(n_blocks - 1, 1, part, n_parts, &begin, &end);
    for (int64_t i = begin; i < end; ++i) block(a, i + 1);
  }
  if (part != n_parts - 1) return;
  if (n_blocks > 0) block(a, 0);
  int64_t first = a->n_tokens > a->ratio ? a->n_tokens - a->ratio : 0;
  for (int64_t t = first; t < a->n_tokens; ++t)
    memcpy(a->open_keys + (a->pos0 + t) % a->ratio * a->idx_dim, raw_key(a, t),
           (size_t)a->idx_dim * sizeof(float));
}

STK_KERNEL_LEVEL(qsa_prep, STK_QSA_PREP_CONTRACT, stk_qsa_prep_args, STK_EXACT, run);
