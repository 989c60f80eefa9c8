/* qsa_score: shapes, operation counts and test cases. */
#include "qsa_score/qsa_score.h"

#include <math.h>

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
  const stk_cache blocks = stk_qsa_score_blocks(a);
  size_t pages = (size_t)stk_cache_pages((a->pos0 + a->n_tokens) / a->ratio);
  tensors[0] = STK_TENSOR("iq", a->iq, T * (size_t)a->idx_heads * Di, STK_F32, STK_IN,
                          STK_FILL_UNIFORM, -2, 2);
  tensors[1] = STK_TENSOR("block_block", a->block_block, pages * stk_cache_page_bytes(&blocks) / 4,
                          STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[2] = STK_TENSOR("score", a->score, T * (size_t)a->score_stride, STK_F32, STK_OUT,
                          STK_FILL_NONE, 0, 0);
  tensors[3] = STK_TENSOR("block_pages", a->block_pages, pages * sizeof(uint8_t *), STK_U8, STK_IN,
                          STK_FILL_NONE, 0, 0);
  return 4;
}

static int64_t n_blocks(const stk_qsa_score_args *a) {
  return (a->pos0 + a->n_tokens) / a->ratio;
}

static void link(void *args) {
  stk_qsa_score_args *a = args;
  const stk_cache blocks = stk_qsa_score_blocks(a);
  stk_cache_fill_table(&blocks, n_blocks(a), a->block_block);
}

static size_t piece(const void *args, int32_t i, void **data) {
  const stk_qsa_score_args *a = args;
  const stk_cache blocks = stk_qsa_score_blocks(a);
  if (i >= stk_cache_pages(n_blocks(a))) return 0;
  *data = a->block_pages[i];
  return stk_cache_page_bytes(&blocks);
}

/* Every 37th block key has a NaN. */
static void prepare(void *args, uint64_t seed) {
  stk_qsa_score_args *a = args;
  const stk_cache blocks = stk_qsa_score_blocks(a);
  const int64_t n = n_blocks(a);
  link(a);
  for (int64_t b = (int64_t)(seed % 37); b < n; b += 37)
    ((float *)stk_cache_data(&blocks, 0, b))[b % a->idx_dim] = NAN;
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

#define CASE(T, pos, hi, di, r, b, stride)                                                  \
  {.n_tokens = T, .pos0 = pos, .idx_heads = hi, .idx_dim = di, .ratio = r, .budget = b,     \
   .score_stride = stride}

static const stk_qsa_score_args cases[] = {
    CASE(1, 300, 4, 128, 4, 256, 80),   CASE(8, 255, 4, 128, 4, 256, 65),
    CASE(3, 50, 3, 32, 3, 12, 17),      CASE(2, 3, 1, 64, 4, 256, 1),
    CASE(3, 2050, 4, 128, 4, 2048, 520), CASE(2, 1300, 2, 96, 1, 8, 1302),
};

static int32_t params(void *args, stk_param *params) {
  stk_qsa_score_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("pos0", a->pos0);
  params[n++] = STK_PARAM("Hi", a->idx_heads);
  params[n++] = STK_PARAM("Di", a->idx_dim);
  params[n++] = STK_PARAM("r", a->ratio);
  params[n++] = STK_PARAM("B", a->budget);
  return n;
}

static void derive(void *args) {
  stk_qsa_score_args *a = args;
  a->score_stride = ((int64_t)a->pos0 + a->n_tokens) / (a->ratio > 0 ? a->ratio : 1);
}

static const stk_qsa_score_args released = CASE(512, 32256, 4, 128, 4, 2048, 8192);

STK_OP(qsa_score, STK_QSA_SCORE_CONTRACT, stk_qsa_score_args, prepare, .params = params,
       .derive = derive, .released = &released, .link = link, .piece = piece);
