/* qsa_score: shapes, operation counts and test cases. */
#include "qsa_score/qsa_score.h"

static const char *check(const void *args) {
  const stk_qsa_score_args *a = args;
  if (a->n_tokens < 1 || a->pos0 < 0 || a->pos0 > INT32_MAX - a->n_tokens)
    return "qsa_score: n_tokens, pos0: a window below 2^31 expected";
  if (a->idx_heads < 1 || a->idx_dim < 32 || a->idx_dim % 32)
    return "qsa_score: idx_dim: a multiple of 32 expected";
  if (a->ratio < 1 || a->budget < a->ratio || a->budget % a->ratio)
    return "qsa_score: budget: a multiple of ratio expected";
  if (a->score_stride < (a->pos0 + a->n_tokens) / a->ratio)
    return "qsa_score: score_stride: at least the number of blocks expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_qsa_score_args *a = args;
  size_t T = (size_t)a->n_tokens, Di = (size_t)a->idx_dim;
  size_t blocks = (size_t)((a->pos0 + a->n_tokens) / a->ratio);
  tensors[0] = STK_TENSOR("iq", a->iq, T * (size_t)a->idx_heads * Di, STK_F32, STK_IN,
                          STK_FILL_UNIFORM, -2, 2);
  tensors[1] =
      STK_TENSOR("block_keys", a->block_keys, blocks * Di, STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[2] = STK_TENSOR("score", a->score, T * (size_t)a->score_stride, STK_F32, STK_OUT,
                          STK_FILL_NONE, 0, 0);
  return 3;
}

static void work(const void *args, stk_work *w) {
  const stk_qsa_score_args *a = args;
  int32_t first = stk_qsa_first_sparse(a->pos0, a->n_tokens, a->budget, a->ratio);
  double rows = a->n_tokens - first;
  double blocks = ((double)a->pos0 + (first + a->n_tokens + 1) / 2.0) / a->ratio;
  w->flops += rows * blocks * 2.0 * a->idx_heads * a->idx_dim;
  if (rows > 0) w->state_bytes += 4.0 * blocks * a->idx_dim;
  w->io_bytes += rows * 4.0 * (blocks + (double)a->idx_heads * a->idx_dim);
}

static const stk_qsa_score_args cases[] = {
    {.n_tokens = 1, .pos0 = 300, .idx_heads = 4, .idx_dim = 128, .ratio = 4, .budget = 256, .score_stride = 80},
    {.n_tokens = 8, .pos0 = 255, .idx_heads = 4, .idx_dim = 128, .ratio = 4, .budget = 256, .score_stride = 65},
    {.n_tokens = 3, .pos0 = 50, .idx_heads = 3, .idx_dim = 32, .ratio = 3, .budget = 12, .score_stride = 17},
    {.n_tokens = 2, .pos0 = 3, .idx_heads = 1, .idx_dim = 64, .ratio = 4, .budget = 256, .score_stride = 1},
};

STK_OP(qsa_score, STK_QSA_SCORE_CONTRACT, stk_qsa_score_args, NULL);
