/* qsa_prep: shapes, operation counts and test cases. */
#include "qsa_prep/qsa_prep.h"

static const char *check(const void *args) {
  const stk_qsa_prep_args *a = args;
  if (a->n_tokens < 1 || a->pos0 < 0 || a->pos0 > INT32_MAX - a->n_tokens)
    return "qsa_prep: n_tokens, pos0: a window below 2^31 expected";
  if (a->kv_heads < 1 || a->q_heads < 1 || a->q_heads % a->kv_heads)
    return "qsa_prep: q_heads: a multiple of kv_heads expected";
  if (a->head_dim < 32 || a->head_dim % 32 || a->idx_dim < 32 || a->idx_dim % 32)
    return "qsa_prep: head_dim, idx_dim: multiples of 32 expected";
  if (a->idx_heads < 1 || a->ratio < 1) return "qsa_prep: idx_heads, ratio: at least 1 expected";
  if (a->n_pairs < 1 || 2 * a->n_pairs > a->head_dim || 2 * a->n_pairs > a->idx_dim)
    return "qsa_prep: n_pairs: at most half of head_dim and idx_dim expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_qsa_prep_args *a = args;
  size_t T = (size_t)a->n_tokens, D = (size_t)a->head_dim, Di = (size_t)a->idx_dim;
  size_t hq = (size_t)a->q_heads, hkv = (size_t)a->kv_heads, hi = (size_t)a->idx_heads;
  size_t pairs = (size_t)a->n_pairs, cells = (size_t)a->pos0 + T;
  size_t new_blocks = (size_t)stk_qsa_prep_n_blocks(a), ratio = (size_t)a->ratio;
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
  OUT(k_cache, cells * hkv * D);
  OUT(v_cache, cells * hkv * D);
  OUT(block_keys, cells / ratio * Di);
#undef IN
#undef OUT
  tensors[n++] = STK_TENSOR("open_keys", a->open_keys, ratio * Di, STK_F32, STK_INOUT,
                            STK_FILL_UNIFORM, -3, 3);
  return n;
}

static void work(const void *args, stk_work *w) {
  const stk_qsa_prep_args *a = args;
  double attention = (double)(a->q_heads + a->kv_heads) * a->head_dim;
  double index = (a->idx_heads + 1.0) * a->idx_dim, values = (double)a->kv_heads * a->head_dim;
  w->flops += a->n_tokens * 6.0 * (attention + index);
  w->state_bytes += a->n_tokens * 4.0 * (2.0 * values + (double)a->idx_dim / a->ratio);
  w->io_bytes += a->n_tokens * 4.0 * (2.0 * attention + 2.0 * index + values);
}

#define CASE(T, pos, hq, hkv, d, hi, di, r, pairs)                                       \
  {.n_tokens = T, .pos0 = pos, .q_heads = hq, .kv_heads = hkv, .head_dim = d,            \
   .idx_heads = hi, .idx_dim = di, .ratio = r, .n_pairs = pairs, .eps = 1e-6f}

static const stk_qsa_prep_args cases[] = {
    CASE(1, 0, 12, 1, 256, 4, 128, 4, 32), CASE(1, 7, 12, 1, 256, 4, 128, 4, 32),
    CASE(37, 2, 24, 2, 256, 4, 128, 4, 32), CASE(5, 259, 4, 4, 64, 2, 32, 4, 16),
    CASE(3, 1, 3, 1, 96, 1, 64, 7, 5),
};

STK_OP(qsa_prep, STK_QSA_PREP_CONTRACT, stk_qsa_prep_args, NULL);
