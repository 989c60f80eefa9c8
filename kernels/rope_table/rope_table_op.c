/* rope_table: shapes, operation counts and test cases. */
#include "rope_table/rope_table.h"

static const char *check(const void *args) {
  const stk_rope_table_args *a = args;
  if (a->n_tokens < 1 || a->n_pairs < 1) return "rope_table: n_tokens, n_pairs: at least 1 expected";
  if (a->pos0 < 0 || a->pos_step < 1 ||
      a->pos0 + (int64_t)a->n_tokens * a->pos_step > INT32_MAX)
    return "rope_table: pos0, pos_step: positions below 2^31 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_rope_table_args *a = args;
  size_t n = (size_t)a->n_tokens * (size_t)a->n_pairs;
  tensors[0] =
      STK_TENSOR("inv_freq", a->inv_freq, a->n_pairs, STK_F32, STK_IN, STK_FILL_UNIFORM, 0, 1);
  tensors[1] = STK_TENSOR("cos", a->cos, n, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[2] = STK_TENSOR("sin", a->sin, n, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return 3;
}

static void work(const void *args, stk_work *w) {
  const stk_rope_table_args *a = args;
  double n = (double)a->n_tokens * a->n_pairs;
  w->flops += 60.0 * n;
  w->io_bytes += 8.0 * n;
}

static const stk_rope_table_args cases[] = {
    {.n_tokens = 1, .pos0 = 0, .pos_step = 1, .n_pairs = 32},
    {.n_tokens = 7, .pos0 = 262137, .pos_step = 1, .n_pairs = 32},
    {.n_tokens = 3, .pos0 = 1984, .pos_step = 4, .n_pairs = 5},
};

static int32_t params(void *args, stk_param *params) {
  stk_rope_table_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("pos0", a->pos0);
  params[n++] = STK_PARAM("step", a->pos_step);
  params[n++] = STK_PARAM("pairs", a->n_pairs);
  return n;
}

static const stk_rope_table_args released = {.n_tokens = 512, .pos_step = 1, .n_pairs = 32};

STK_OP(rope_table, STK_ROPE_TABLE_CONTRACT, stk_rope_table_args, NULL,
       .params = params, .released = &released);
