/* embed: shapes, byte counts and test cases. */
#include "embed/embed.h"

static const char *check(const void *args) {
  const stk_embed_args *a = args;
  if (a->n_tokens < 1) return "embed: n_tokens: at least 1 expected";
  if (a->n_streams < 1) return "embed: n_streams: at least 1 expected";
  if (a->table.n_rows < 1 || a->table.n_cols < 1) return "embed: table: at least 1 x 1 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_embed_args *a = args;
  size_t n_rows = (size_t)a->table.n_rows, n_cols = (size_t)a->table.n_cols;
  tensors[0] = STK_TENSOR("ids", a->ids, a->n_tokens, STK_I32, STK_IN, STK_FILL_INDEX, 0, n_rows);
  tensors[1] = STK_TENSOR("table", a->table.data, n_rows * n_cols, a->table.dtype, STK_IN,
                          STK_FILL_UNIFORM, -1, 1);
  tensors[2] = STK_TENSOR("r", a->r, (size_t)a->n_tokens * (size_t)a->n_streams * n_cols, STK_F32,
                          STK_OUT, STK_FILL_NONE, 0, 0);
  return 3;
}

static void work(const void *args, stk_work *w) {
  const stk_embed_args *a = args;
  double row = a->table.n_cols;
  w->weight_bytes += a->n_tokens * row * (double)stk_dtype_bytes(a->table.dtype);
  w->io_bytes += a->n_tokens * row * 4.0 * a->n_streams;
}

static const stk_embed_args cases[] = {
    {.table = {NULL, STK_BF16, 50, 256}, .n_tokens = 5, .n_streams = 4},
    {.table = {NULL, STK_F16, 7, 33}, .n_tokens = 1, .n_streams = 1},
    {.table = {NULL, STK_F32, 3, 100}, .n_tokens = 9, .n_streams = 3},
};

static int32_t params(void *args, stk_param *params) {
  stk_embed_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("S", a->n_streams);
  params[n++] = STK_PARAM("V", a->table.n_rows);
  params[n++] = STK_PARAM("H", a->table.n_cols);
  return n;
}

/* A sixteenth of the released rows: 79 MB. */
static const stk_embed_args released = {
    .table = {NULL, STK_BF16, 15520, 2560}, .n_tokens = 512, .n_streams = 4};

STK_OP(embed, STK_EMBED_CONTRACT, stk_embed_args, NULL, .params = params, .released = &released);
