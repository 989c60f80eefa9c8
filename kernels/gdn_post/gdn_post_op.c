/* gdn_post: shapes, operation counts and test cases. */
#include "gdn_post/gdn_post.h"

#include "common/k_rows.h"

static const char *check(const void *args) {
  const stk_gdn_post_args *a = args;
  if (a->n_tokens < 1 || a->v_heads < 1 || a->v_dim < 1)
    return "gdn_post: n_tokens, v_heads, v_dim: at least 1 expected";
  if (a->outputs < 1 || a->outputs > (STK_POST_F32 | STK_POST_F16))
    return "gdn_post: outputs: f32, f16 or both expected";
  if (a->gate != STK_GATE_SIGMOID && a->gate != STK_GATE_SILU)
    return "gdn_post: gate: sigmoid or silu expected";
  if (!k_rows_are_known(a->rows)) return "gdn_post: rows: f32 or f16 expected";
  if (a->rows == STK_F16 && a->v_dim > STK_POST_F16_DIM_MAX)
    return "gdn_post: v_dim: at most 512 expected with rows of f16";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_gdn_post_args *a = args;
  size_t n = (size_t)a->n_tokens * (size_t)a->v_heads * (size_t)a->v_dim;
  const stk_dtype rows = (stk_dtype)a->rows;
  tensors[0] = STK_TENSOR("o", a->o, n, rows, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[1] = STK_TENSOR("z", a->z, n, rows, STK_IN, STK_FILL_UNIFORM, -9, 9);
  tensors[2] = STK_TENSOR("gain", a->gain, a->v_dim, STK_F32, STK_IN, STK_FILL_UNIFORM, 0, 2);
  tensors[3] = STK_TENSOR("y", a->y, n, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[4] = STK_TENSOR("yh", a->yh, n, STK_F16, STK_OUT, STK_FILL_NONE, 0, 0);
  return 5;
}

static void work(const void *args, stk_work *w) {
  const stk_gdn_post_args *a = args;
  double elems = (double)a->n_tokens * a->v_heads * a->v_dim;
  w->flops += 26.0 * elems; /* two for the norm, three products, a sigmoid of 21 */
  w->io_bytes += elems * (2.0 * (double)k_rows_bytes(1, a->rows) + (a->outputs & STK_POST_F32 ? 4.0 : 0.0) +
                          (a->outputs & STK_POST_F16 ? 2.0 : 0.0));
}

static const stk_gdn_post_args cases[] = {
    {.n_tokens = 5, .v_heads = 6, .v_dim = 128, .eps = 1e-6f, .outputs = STK_POST_F32},
    {.n_tokens = 5, .v_heads = 6, .v_dim = 128, .eps = 1e-6f, .outputs = STK_POST_F16},
    {.n_tokens = 1, .v_heads = 48, .v_dim = 128, .eps = 1e-6f, .outputs = STK_POST_F32 | STK_POST_F16},
    {.n_tokens = 3, .v_heads = 1, .v_dim = 96, .eps = 1e-5f, .gate = STK_GATE_SILU, .outputs = STK_POST_F32},
    {.n_tokens = 514, .v_heads = 5, .v_dim = 128, .eps = 1e-6f, .outputs = STK_POST_F32 | STK_POST_F16},
    {.n_tokens = 2, .v_heads = 3, .v_dim = 35, .eps = 1e-5f, .gate = STK_GATE_SILU, .outputs = STK_POST_F16},
    {.n_tokens = 514, .v_heads = 5, .v_dim = 128, .eps = 1e-6f, .outputs = STK_POST_F16, .rows = STK_F16},
    {.n_tokens = 3, .v_heads = 6, .v_dim = 40, .eps = 1e-5f, .gate = STK_GATE_SILU, .outputs = STK_POST_F32, .rows = STK_F16},
    {.n_tokens = 3, .v_heads = 2, .v_dim = 35, .eps = 1e-6f, .outputs = STK_POST_F32 | STK_POST_F16, .rows = STK_F16},
};

static int32_t params(void *args, stk_param *params) {
  stk_gdn_post_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("Hv", a->v_heads);
  params[n++] = STK_PARAM("Dv", a->v_dim);
  params[n++] = (stk_param){"f32", &a->outputs, STK_POST_F32};
  params[n++] = STK_PARAM("rows", a->rows);
  return n;
}

static const stk_gdn_post_args released = {
    .n_tokens = 512, .v_heads = 48, .v_dim = 128, .eps = 1e-6f, .outputs = STK_POST_F16};

STK_OP(gdn_post, STK_GDN_POST_CONTRACT, stk_gdn_post_args, NULL,
       .params = params, .released = &released);
