/* ple_embed: shapes, operation counts and test cases. */
#include "ple_embed/ple_embed.h"

static const char *check(const void *args) {
  const stk_ple_embed_args *a = args;
  if (a->n_tokens < 1 || a->width < 1 || a->heads_per_ngram < 1)
    return "ple_embed: n_tokens, width, heads_per_ngram: at least 1 expected";
  if (a->ngram_size < 2 || a->ngram_size > STK_NGRAM_MAX)
    return "ple_embed: ngram_size: 2 to 8 expected";
  if (a->n_shards < 1 || a->shard_rows < 1) return "ple_embed: shards: at least 1 row expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_ple_embed_args *a = args;
  size_t T = (size_t)a->n_tokens, context = (size_t)a->ngram_size - 1;
  size_t heads = context * (size_t)a->heads_per_ngram, W = (size_t)a->width;
  size_t shards = (size_t)a->n_shards;
  int32_t n = 0;
  tensors[n++] = STK_TENSOR("ids", a->ids, context + T, STK_I32, STK_IN, STK_FILL_INDEX, 0, 50);
  tensors[n++] =
      STK_TENSOR("mult", a->mult, context + 1, STK_I64, STK_IN, STK_FILL_INDEX, 0, 1e15);
  tensors[n++] = STK_TENSOR("head_rows", a->head_rows, heads, STK_I64, STK_IN, STK_FILL_NONE, 0, 0);
  tensors[n++] =
      STK_TENSOR("head_offset", a->head_offset, heads, STK_I64, STK_IN, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("table", a->test_data, shards * (size_t)a->shard_rows * W, a->dtype,
                            STK_IN, STK_FILL_UNIFORM, -1, 1);
  tensors[n++] = STK_TENSOR("shards", a->shards, shards * sizeof *a->shards, STK_U8, STK_IN,
                            STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("e", a->e, T * heads * W, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return n;
}

static void link(void *args) {
  stk_ple_embed_args *a = args;
  size_t bytes = (size_t)a->shard_rows * (size_t)a->width * stk_dtype_bytes(a->dtype);
  for (int32_t i = 0; i < a->n_shards; ++i)
    ((stk_matrix *)(uintptr_t)a->shards)[i] =
        (stk_matrix){(const void *)((uintptr_t)a->test_data + (size_t)i * bytes), a->dtype,
                     (int32_t)a->shard_rows, a->width};
}

/* One block of memory holds all shards, so they are of one type. */
static const char *shape(const void *args, void *out) {
  stk_ple_embed_args *s = out;
  const stk_ple_embed_args *a = args;
  *s = *a;
  s->dtype = a->shards->dtype;
  for (int32_t i = 0; i < a->n_shards; ++i)
    if (a->shards[i].dtype != s->dtype)
      return "ple_embed: shards of several types: one for all expected";
  return NULL;
}

/* The last shard may have fewer rows than the others. */
static size_t piece(const void *args, int32_t i, void **data) {
  const stk_ple_embed_args *a = args;
  if (i >= a->n_shards) return 0;
  const stk_matrix *m = &a->shards[i];
  *data = (void *)(uintptr_t)m->data;
  return (size_t)m->n_rows * (size_t)m->n_cols * stk_dtype_bytes(m->dtype);
}

static void prepare(void *args, uint64_t seed) {
  stk_ple_embed_args *a = args;
  const int64_t heads = (int64_t)(a->ngram_size - 1) * a->heads_per_ngram;
  const int64_t rows = a->n_shards * a->shard_rows / heads;
  (void)seed;
  for (int64_t h = 0; h < heads; ++h) {
    ((int64_t *)(uintptr_t)a->head_rows)[h] = rows;
    ((int64_t *)(uintptr_t)a->head_offset)[h] = h * rows;
  }
  link(a);
}

static void work(const void *args, stk_work *w) {
  const stk_ple_embed_args *a = args;
  double elems = (double)a->n_tokens * (a->ngram_size - 1) * a->heads_per_ngram * a->width;
  w->weight_bytes += elems * (double)stk_dtype_bytes(a->shards ? a->shards->dtype : a->dtype);
  w->io_bytes += 4.0 * elems;
}

static const stk_ple_embed_args cases[] = {
    {.n_tokens = 90, .ngram_size = 3, .heads_per_ngram = 8, .n_shards = 2, .shard_rows = 200, .width = 16, .eos = 7, .dtype = STK_BF16},
    {.n_tokens = 1, .ngram_size = 2, .heads_per_ngram = 1, .n_shards = 1, .shard_rows = 3, .width = 5, .eos = 1, .dtype = STK_F32},
    {.n_tokens = 40, .ngram_size = 5, .heads_per_ngram = 2, .n_shards = 3, .shard_rows = 40, .width = 33, .eos = 20, .dtype = STK_F16},
};

static int32_t params(void *args, stk_param *params) {
  stk_ple_embed_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("W", a->width);
  return n;
}

/* A thousandth of the released rows: 102 MB. */
static const stk_ple_embed_args released = {
    .n_tokens = 512, .ngram_size = 3, .heads_per_ngram = 8, .n_shards = 128, .shard_rows = 2500, .width = 160, .eos = 7, .dtype = STK_BF16};

STK_OP(ple_embed, STK_PLE_EMBED_CONTRACT, stk_ple_embed_args, prepare,
       .params = params, .released = &released, .shape = shape, .link = link, .piece = piece);
