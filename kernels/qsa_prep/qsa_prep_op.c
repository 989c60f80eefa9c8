/* qsa_prep: shapes, operation counts and test cases. */
#include "qsa_prep/qsa_prep.h"

#include <math.h>

static const char *check(const void *args) {
  const stk_qsa_prep_args *a = args;
  if (a->n_tokens < 1 || a->pos0 < 0 || a->pos0 > INT32_MAX - a->n_tokens)
    return "qsa_prep: n_tokens, pos0: a window below 2^31 expected";
  if (a->kv_heads < 1 || a->q_heads < 1 || a->q_heads % a->kv_heads)
    return "qsa_prep: q_heads: a multiple of kv_heads expected";
  if (a->head_dim < 32 || a->head_dim % 32 || a->head_dim > STK_QSA_HEAD_MAX)
    return "qsa_prep: head_dim: a multiple of 32, at most 512, expected";
  if (a->idx_dim < 32 || a->idx_dim % 32) return "qsa_prep: idx_dim: a multiple of 32 expected";
  if (a->idx_heads < 1 || a->ratio < 1) return "qsa_prep: idx_heads, ratio: at least 1 expected";
  if (a->n_pairs < 1 || 2 * (int64_t)a->n_pairs > a->head_dim || 2 * (int64_t)a->n_pairs > a->idx_dim)
    return "qsa_prep: n_pairs: at most half of head_dim and idx_dim expected";
  if (a->kv_kind < 0 || a->kv_kind >= STK_KV_KINDS) return "qsa_prep: kv_kind: 0 to 2 expected";
  if (a->kinds < 1 || a->kinds > STK_QSA_ALL) return "qsa_prep: kinds: 1 to 15 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_qsa_prep_args *a = args;
  size_t T = (size_t)a->n_tokens, D = (size_t)a->head_dim, Di = (size_t)a->idx_dim;
  size_t hq = (size_t)a->q_heads, hkv = (size_t)a->kv_heads, hi = (size_t)a->idx_heads;
  size_t pairs = (size_t)a->n_pairs, ratio = (size_t)a->ratio;
  size_t new_blocks = (size_t)stk_qsa_prep_n_blocks(a);
  const stk_cache kv = stk_qsa_prep_kv(a), blocks = stk_qsa_prep_blocks(a);
  const size_t kv_pages = (size_t)stk_cache_pages((int64_t)a->pos0 + a->n_tokens);
  const size_t block_pages = (size_t)stk_cache_pages((a->pos0 + a->n_tokens) / a->ratio);
  int32_t n = 0;
#define IN(field, n_, low, high) \
  tensors[n++] = STK_TENSOR(#field, a->field, n_, STK_F32, STK_IN, STK_FILL_UNIFORM, low, high)
#define OUT(field, n_) \
  tensors[n++] = STK_TENSOR(#field, a->field, n_, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0)
  IN(q_raw, T * hq * 2 * D, -3, 3);
  IN(k_raw, T * hkv * D, -3, 3);
  IN(v_raw, T * hkv * D, -3, 3);
  IN(index_raw, T * (hi + 1) * Di, -3, 3);
  IN(q_gain, D, 0, 2);
  IN(k_gain, D, 0, 2);
  IN(iq_gain, Di, 0, 2);
  IN(ik_gain, Di, 0, 2);
  IN(cos, T * pairs, -1, 1);
  IN(sin, T * pairs, -1, 1);
  IN(block_cos, new_blocks * pairs, -1, 1);
  IN(block_sin, new_blocks * pairs, -1, 1);
  OUT(q, T * hq * D);
  OUT(iq, T * hi * Di);
  OUT(kv_block, kv_pages * stk_cache_page_bytes(&kv) / 4);
  if (a->kv_kind != STK_KV_F32) tensors[n - 1].dtype = STK_I32;
  OUT(block_block, block_pages * stk_cache_page_bytes(&blocks) / 4);
#undef IN
#undef OUT
  tensors[n++] = STK_TENSOR("open_keys", a->open_keys, ratio * Di, STK_F32, STK_INOUT,
                            STK_FILL_UNIFORM, -3, 3);
  tensors[n++] = STK_TENSOR("kv_pages", a->kv_pages, kv_pages * sizeof(uint8_t *), STK_U8, STK_IN,
                            STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("block_pages", a->block_pages, block_pages * sizeof(uint8_t *), STK_U8,
                            STK_IN, STK_FILL_NONE, 0, 0);
  return n;
}

static void link(void *args) {
  stk_qsa_prep_args *a = args;
  const stk_cache kv = stk_qsa_prep_kv(a), blocks = stk_qsa_prep_blocks(a);
  stk_cache_fill_table(&kv, (int64_t)a->pos0 + a->n_tokens, a->kv_block);
  stk_cache_fill_table(&blocks, (a->pos0 + a->n_tokens) / a->ratio, a->block_block);
}

/* The pages of the key-value cache, then those of the block keys. */
static size_t piece(const void *args, int32_t i, void **data) {
  const stk_qsa_prep_args *a = args;
  const stk_cache kv = stk_qsa_prep_kv(a), blocks = stk_qsa_prep_blocks(a);
  const int64_t kv_pages = stk_cache_pages((int64_t)a->pos0 + a->n_tokens);
  if (i >= kv_pages + stk_cache_pages((a->pos0 + a->n_tokens) / a->ratio)) return 0;
  *data = i < kv_pages ? a->kv_pages[i] : a->block_pages[i - kv_pages];
  return stk_cache_page_bytes(i < kv_pages ? &kv : &blocks);
}

/* Some groups of values that a q8 cache must tell apart: zeros, values too small
 * for a scale, too large for one, a NaN, an infinity. */
static void prepare(void *args, uint64_t seed) {
  static const float odd[] = {0.0f, 1e-7f, 9e6f, NAN, INFINITY, -0.0f};
  stk_qsa_prep_args *a = args;
  const int64_t groups = a->n_tokens * (int64_t)a->kv_heads * a->head_dim / 32;
  float *v = (float *)(uintptr_t)a->v_raw;
  for (int64_t i = (int64_t)(seed % 7); i < groups; i += 7)
    for (int64_t j = 0; j < 32; ++j)
      if (j == 5 || i % 6 < 3) v[i * 32 + j] = odd[i % 6];
  link(a);
}

static void work(const void *args, stk_work *w) {
  const stk_qsa_prep_args *a = args;
  const stk_cache kv = stk_qsa_prep_kv(a);
  double queries = a->kinds & STK_QSA_QUERIES ? (double)a->q_heads * a->head_dim : 0;
  double values = a->kinds & STK_QSA_KV ? (double)a->kv_heads * a->head_dim : 0;
  double index = a->kinds & STK_QSA_INDEX ? (double)a->idx_heads * a->idx_dim : 0;
  double keys = a->kinds & STK_QSA_BLOCKS ? (double)a->idx_dim : 0;
  w->flops += a->n_tokens * 6.0 * (queries + values + index + keys);
  w->state_bytes += a->n_tokens * 4.0 * keys / a->ratio;
  if (values > 0) w->state_bytes += a->n_tokens * (double)stk_cache_row_bytes(&kv);
  w->io_bytes += a->n_tokens * 4.0 * (2.0 * queries + 2.0 * values + 2.0 * index + keys);
}

#define CASE(T, pos, hq, hkv, d, hi, di, r, pairs, kv, kinds_)                                     \
  {.n_tokens = T, .pos0 = pos, .q_heads = hq, .kv_heads = hkv, .head_dim = d, .idx_heads = hi,    \
   .idx_dim = di, .ratio = r, .n_pairs = pairs, .kv_kind = kv, .kinds = kinds_, .eps = 1e-6f}

static const stk_qsa_prep_args cases[] = {
    CASE(1, 0, 12, 1, 256, 4, 128, 4, 32, STK_KV_F32, STK_QSA_ALL),
    CASE(1, 7, 12, 1, 256, 4, 128, 4, 32, STK_KV_Q8, STK_QSA_ALL),
    CASE(37, 2, 24, 2, 256, 4, 128, 4, 32, STK_KV_F32, STK_QSA_ALL),
    CASE(37, 250, 24, 2, 256, 4, 128, 4, 32, STK_KV_Q8, STK_QSA_ALL),
    CASE(5, 259, 4, 4, 64, 2, 32, 4, 16, STK_KV_F16, STK_QSA_ALL),
    CASE(3, 1, 3, 1, 96, 1, 64, 7, 5, STK_KV_Q8, STK_QSA_ALL),
    CASE(30, 1020, 6, 3, 160, 1, 64, 1, 5, STK_KV_F16, STK_QSA_ALL),
    CASE(9, 250, 12, 2, 256, 4, 128, 4, 32, STK_KV_Q8, STK_QSA_QUERIES),
    CASE(9, 250, 12, 2, 256, 4, 128, 4, 32, STK_KV_Q8, STK_QSA_KV),
    CASE(9, 250, 12, 2, 256, 4, 128, 4, 32, STK_KV_Q8, STK_QSA_INDEX),
    CASE(9, 250, 12, 2, 256, 4, 128, 4, 32, STK_KV_Q8, STK_QSA_BLOCKS),
};

static int32_t params(void *args, stk_param *params) {
  stk_qsa_prep_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("pos0", a->pos0);
  params[n++] = STK_PARAM("Hq", a->q_heads);
  params[n++] = STK_PARAM("Hkv", a->kv_heads);
  params[n++] = STK_PARAM("D", a->head_dim);
  params[n++] = STK_PARAM("Hi", a->idx_heads);
  params[n++] = STK_PARAM("Di", a->idx_dim);
  params[n++] = STK_PARAM("r", a->ratio);
  params[n++] = STK_PARAM("pairs", a->n_pairs);
  params[n++] = STK_PARAM("kv", a->kv_kind);
  return n;
}

static const stk_qsa_prep_args released =
    CASE(512, 2048, 24, 2, 256, 4, 128, 4, 32, STK_KV_F32, STK_QSA_ALL);

STK_OP(qsa_prep, STK_QSA_PREP_CONTRACT, stk_qsa_prep_args, prepare, .params = params,
       .released = &released, .link = link, .piece = piece);
