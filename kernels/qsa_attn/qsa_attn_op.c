/* qsa_attn: shapes, operation counts and test cases. */
#include "qsa_attn/qsa_attn.h"

#include <math.h>

static const char *check(const void *args) {
  const stk_qsa_attn_args *a = args;
  if (a->n_tokens < 1 || a->pos0 < 0 || a->pos0 > INT32_MAX - a->n_tokens)
    return "qsa_attn: n_tokens, pos0: a window below 2^31 expected";
  if (a->kv_heads < 1 || a->q_heads < 1 || a->q_heads % a->kv_heads)
    return "qsa_attn: q_heads: a multiple of kv_heads expected";
  if (a->head_dim < 32 || a->head_dim % 32 || a->head_dim > STK_HEAD_DIM_MAX)
    return "qsa_attn: head_dim: a multiple of 32, at most 512, expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_qsa_attn_args *a = args;
  size_t T = (size_t)a->n_tokens, rows = T * (size_t)a->q_heads, D = (size_t)a->head_dim;
  size_t cells = ((size_t)a->pos0 + T) * (size_t)a->kv_heads * D;
  tensors[0] = STK_TENSOR("q", a->q, rows * D, STK_F32, STK_IN, STK_FILL_UNIFORM, -3, 3);
  tensors[1] = STK_TENSOR("q_raw", a->q_raw, rows * 2 * D, STK_F32, STK_IN, STK_FILL_UNIFORM, -4, 4);
  tensors[2] = STK_TENSOR("k_cache", a->k_cache, cells, STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[3] = STK_TENSOR("v_cache", a->v_cache, cells, STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[4] = STK_TENSOR("ids", a->ids, T * (size_t)a->ids_stride, STK_I32, STK_IN, STK_FILL_NONE,
                          0, 0);
  tensors[5] = STK_TENSOR("n_ids", a->n_ids, T, STK_I32, STK_IN, STK_FILL_NONE, 0, 0);
  tensors[6] = STK_TENSOR("out", a->out, rows * D, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return 7;
}

/* Every second token gets a list, ascending with gaps, its length varied so
 * that the last tile and the last split are seen full and short; the others
 * attend to everything, their ids poisoned. */
static void prepare(void *args, uint64_t seed) {
  stk_qsa_attn_args *a = args;
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    int32_t *ids = (int32_t *)(uintptr_t)a->ids + t * a->ids_stride;
    int64_t n = a->pos0 + t + 1, count = 0;
    for (int64_t i = 0; i < a->ids_stride; ++i) ids[i] = -1;
    if (t % 2 == 0)
      for (int64_t cell = 0; cell < n && count < a->ids_stride - t; ++cell)
        if ((cell * 2654435761u + seed) % 7 < 5) ids[count++] = (int32_t)cell;
    ((int32_t *)(uintptr_t)a->n_ids)[t] = (int32_t)(t % 4 == 2 ? -count : count);
  }
}

static void work(const void *args, stk_work *w) {
  const stk_qsa_attn_args *a = args;
  double D = a->head_dim, cells = 0;
  for (int64_t t = 0; t < a->n_tokens; ++t)
    cells += a->n_ids && a->n_ids[t] ? fabs((double)a->n_ids[t]) : (double)(a->pos0 + t + 1);
  w->flops += cells * a->q_heads * (4.0 * D + 40.0);
  /* The cells of the last token's list at least; a longer window reads more. */
  double last = cells / a->n_tokens;
  w->state_bytes += 8.0 * last * a->kv_heads * D;
  w->io_bytes += 12.0 * a->n_tokens * a->q_heads * D;
}

#define CASE(T, pos, hq, hkv, d, stride) \
  {.n_tokens = T, .pos0 = pos, .q_heads = hq, .kv_heads = hkv, .head_dim = d, .ids_stride = stride}

static const stk_qsa_attn_args cases[] = {
    CASE(1, 0, 12, 1, 256, 4),    CASE(4, 30, 12, 1, 256, 40), CASE(3, 300, 24, 2, 256, 260),
    CASE(5, 254, 5, 1, 96, 250),  CASE(2, 600, 7, 7, 32, 513), CASE(1, 511, 4, 2, 160, 512),
};

STK_OP(qsa_attn, STK_QSA_ATTN_CONTRACT, stk_qsa_attn_args, prepare);
