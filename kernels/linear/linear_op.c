/* linear: shapes, operation counts and test cases. */
#include "linear/linear.h"

static const char *check(const void *args) {
  const stk_linear_args *a = args;
  if (a->n_tokens < 1) return "linear: n_tokens: at least 1 expected";
  if (a->n_outs < 1 || a->n_outs > STK_LINEAR_OUTS_MAX) return "linear: n_outs: 1 to 5 expected";
  for (int32_t o = 0; o < a->n_outs; ++o) {
    const stk_linear_out *out = &a->out[o];
    if (out->w.n_rows < 1 || out->w.n_cols < 1) return "linear: w: at least 1 x 1 expected";
    if (out->w.n_cols != a->out[0].w.n_cols) return "linear: w: the same n_cols in all expected";
    if (out->w.dtype != STK_F32 && out->w.dtype != STK_F16 && out->w.dtype != STK_BF16)
      return "linear: w: f32, f16 or bf16 expected";
    if (out->y_stride < out->w.n_rows) return "linear: y_stride: at least n_rows expected";
  }
  if (a->x_stride < a->out[0].w.n_cols) return "linear: x_stride: at least n_cols expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_linear_args *a = args;
  static const char *const w_name[] = {"w0", "w1", "w2", "w3", "w4"};
  static const char *const y_name[] = {"y0", "y1", "y2", "y3", "y4"};
  int32_t n = 0;
  tensors[n++] = (stk_tensor){"x", (void **)&a->x, (size_t)a->n_tokens * (size_t)a->x_stride,
                              STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2};
  for (int32_t o = 0; o < a->n_outs; ++o) {
    stk_linear_out *out = &a->out[o];
    tensors[n++] = (stk_tensor){w_name[o], (void **)&out->w.data,
                                (size_t)out->w.n_rows * (size_t)out->w.n_cols, out->w.dtype,
                                STK_IN, STK_FILL_UNIFORM, -1, 1};
    tensors[n++] = (stk_tensor){y_name[o], (void **)&out->y,
                                (size_t)(a->n_tokens - 1) * (size_t)out->y_stride + (size_t)out->w.n_rows,
                                STK_F32, STK_OUT, STK_FILL_NONE, 0, 0};
  }
  return n;
}

/* Field by field: a matrix in args has bytes that nobody set. */
static const char *shape(const void *args, void *out) {
  const stk_linear_args *a = args;
  stk_linear_args *s = out;
  s->x_stride = a->x_stride;
  s->n_tokens = a->n_tokens;
  s->n_outs = a->n_outs;
  for (int32_t o = 0; o < a->n_outs; ++o) {
    const stk_linear_out *from = &a->out[o];
    s->out[o].y_stride = from->y_stride;
    s->out[o].scale = from->scale;
    s->out[o].act = from->act;
    s->out[o].w.dtype = from->w.dtype;
    s->out[o].w.n_rows = from->w.n_rows;
    s->out[o].w.n_cols = from->w.n_cols;
  }
  return NULL;
}

static void work(const void *args, stk_work *w) {
  const stk_linear_args *a = args;
  for (int32_t o = 0; o < a->n_outs; ++o) {
    const stk_matrix *m = &a->out[o].w;
    double elems = (double)m->n_rows * m->n_cols;
    w->flops += 2.0 * a->n_tokens * elems;
    w->weight_bytes += elems * (double)stk_dtype_bytes(m->dtype);
    w->io_bytes += 4.0 * a->n_tokens * m->n_rows;
  }
  w->io_bytes += 4.0 * a->n_tokens * a->out[0].w.n_cols;
}

#define OUT(dtype_, n, k, stride, scale_, act_) \
  {.w = {NULL, dtype_, n, k}, .y_stride = stride, .scale = scale_, .act = act_}

static const stk_linear_args cases[] = {
    {.n_tokens = 1, .x_stride = 1, .n_outs = 1, .out = {OUT(STK_BF16, 1, 1, 1, 1, STK_ACT_NONE)}},
    {.n_tokens = 1, .x_stride = 256, .n_outs = 3,
     .out = {OUT(STK_BF16, 130, 256, 130, 1, STK_ACT_NONE),
             OUT(STK_F16, 6, 256, 9, 0.25f, STK_ACT_SILU),
             OUT(STK_F32, 77, 256, 77, 1, STK_ACT_SILU)}},
    {.n_tokens = 1, .x_stride = 700, .n_outs = 2,
     .out = {OUT(STK_BF16, 96, 641, 96, 1, STK_ACT_NONE), OUT(STK_F32, 33, 641, 33, 1, STK_ACT_NONE)}},
    {.n_tokens = 2, .x_stride = 33, .n_outs = 3,
     .out = {OUT(STK_BF16, 5, 33, 5, 1, STK_ACT_NONE), OUT(STK_F16, 65, 33, 65, 1, STK_ACT_NONE),
             OUT(STK_F32, 40, 33, 44, 0.5f, STK_ACT_NONE)}},
    {.n_tokens = 37, .x_stride = 1100, .n_outs = 2,
     .out = {OUT(STK_BF16, 140, 1024, 140, 0.25f, STK_ACT_SILU),
             OUT(STK_F16, 4, 1024, 4, 1, STK_ACT_NONE)}},
    {.n_tokens = 203, .x_stride = 300, .n_outs = 5,
     .out = {OUT(STK_BF16, 32, 300, 32, 1, STK_ACT_NONE), OUT(STK_F32, 64, 300, 70, 1, STK_ACT_NONE),
             OUT(STK_F16, 31, 300, 31, 1, STK_ACT_NONE), OUT(STK_BF16, 1, 300, 1, 1, STK_ACT_NONE),
             OUT(STK_BF16, 17, 300, 17, 2.0f, STK_ACT_SILU)}},
};

static int32_t params(void *args, stk_param *params) {
  static const char *const rows[] = {"N0", "N1", "N2", "N3", "N4"};
  stk_linear_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("K", a->out[0].w.n_cols);
  for (int32_t o = 0; o < a->n_outs; ++o) params[n++] = STK_PARAM(rows[o], a->out[o].w.n_rows);
  return n;
}

/* All matrices have the columns of the first one; rows are dense. */
static void derive(void *args) {
  stk_linear_args *a = args;
  a->x_stride = a->out[0].w.n_cols;
  for (int32_t o = 0; o < a->n_outs; ++o) {
    a->out[o].w.n_cols = a->out[0].w.n_cols;
    a->out[o].y_stride = a->out[o].w.n_rows;
  }
}

/* What a gated delta net layer reads from its input: q, k and v; z; a; b. */
static const stk_linear_args released = {
    .n_tokens = 512, .x_stride = 2560, .n_outs = 4,
    .out = {OUT(STK_BF16, 10240, 2560, 10240, 1, STK_ACT_NONE),
            OUT(STK_BF16, 6144, 2560, 6144, 1, STK_ACT_NONE),
            OUT(STK_BF16, 48, 2560, 48, 1, STK_ACT_NONE),
            OUT(STK_BF16, 48, 2560, 48, 1, STK_ACT_NONE)}};

STK_OP(linear, STK_LINEAR_CONTRACT, stk_linear_args, NULL,
       .params = params, .derive = derive, .released = &released, .shape = shape);
