/* qsa_attn: shapes, operation counts and test cases; and what qsa_flash, qsa_decode
 * and qsa_merge have in common with it. */
#include "qsa_attn/qsa_attn.h"

#include "common/k_oracle.h"

const char *stk_qsa_attn_check(const void *args) {
  const stk_qsa_attn_args *a = args;
  if (a->n_tokens < 1 || a->pos0 < 0 || a->pos0 > INT32_MAX - a->n_tokens)
    return "qsa attention: n_tokens, pos0: a window below 2^31 expected";
  if (a->kv_heads < 1 || a->q_heads < 1 || a->q_heads % a->kv_heads)
    return "qsa attention: q_heads: a multiple of kv_heads expected";
  if (a->head_dim < 32 || a->head_dim % 32 || a->head_dim > STK_HEAD_DIM_MAX)
    return "qsa attention: head_dim: a multiple of 32, at most 512, expected";
  if (a->ratio < 1 || a->budget < a->ratio || a->budget % a->ratio)
    return "qsa attention: budget: a multiple of ratio expected";
  if (a->ids_stride < (int64_t)a->budget + a->ratio - 1)
    return "qsa attention: ids_stride: at least budget + ratio - 1 expected";
  if (a->kv_kind < 0 || a->kv_kind >= STK_KV_KINDS)
    return "qsa attention: kv_kind: 0 to 2 expected";
  if (a->outputs < 1 || a->outputs > (STK_ATTN_F32 | STK_ATTN_F16))
    return "qsa attention: outputs: 1 to 3 expected";
  return NULL;
}

int32_t stk_qsa_attn_inputs(stk_qsa_attn_args *a, stk_tensor *tensors, int32_t n) {
  const stk_cache cache = stk_qsa_attn_kv(a);
  const size_t T = (size_t)a->n_tokens, values = T * (size_t)a->q_heads * (size_t)a->head_dim;
  const size_t pages = (size_t)stk_cache_pages((int64_t)a->pos0 + a->n_tokens);
  tensors[n++] = STK_TENSOR("q", a->q, values, STK_F32, STK_IN, STK_FILL_UNIFORM, -3, 3);
  tensors[n++] = STK_TENSOR("kv_block", a->kv_block, pages * stk_cache_page_bytes(&cache) / 4,
                            a->kv_kind == STK_KV_F32 ? STK_F32 : STK_I32, STK_IN, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("kv_pages", a->kv_pages, pages * sizeof(uint8_t *), STK_U8, STK_IN,
                            STK_FILL_NONE, 0, 0);
  /* Beyond what a list has, and of tokens whose list is derived, nobody may read. */
  tensors[n++] = STK_TENSOR("ids", a->ids, T * (size_t)a->ids_stride, STK_I32, STK_IN,
                            STK_FILL_UNREAD, 0, 0);
  tensors[n++] = STK_TENSOR("n_ids", a->n_ids, T, STK_I32, STK_IN, STK_FILL_NONE, 0, 0);
  return n;
}

int32_t stk_qsa_attn_outputs(stk_qsa_attn_args *a, stk_tensor *tensors, int32_t n) {
  const size_t values = (size_t)a->n_tokens * (size_t)a->q_heads * (size_t)a->head_dim;
  tensors[n++] = STK_TENSOR("q_raw", a->q_raw, 2 * values, STK_F32, STK_IN, STK_FILL_UNIFORM, -4, 4);
  tensors[n++] = STK_TENSOR("out", a->out, values, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("out_half", a->out_half, values, STK_F16, STK_OUT, STK_FILL_NONE, 0, 0);
  return n;
}

static uint32_t next_random(uint64_t *random) {
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*random >> 32);
}

/* budget / ratio of the token's complete blocks, ascending, and the tail. */
static int32_t random_list(const stk_qsa_attn_args *a, int64_t n, uint64_t *random, int32_t *ids) {
  const int64_t n_blocks = n / a->ratio;
  int64_t wanted = a->budget / a->ratio;
  int32_t count = 0;
  for (int64_t b = 0; b < n_blocks; ++b) {
    if ((int64_t)((uint64_t)next_random(random) * (uint64_t)(n_blocks - b) >> 32) >= wanted) continue;
    --wanted;
    for (int64_t j = 0; j < a->ratio; ++j) ids[count++] = (int32_t)(b * a->ratio + j);
  }
  for (int64_t cell = n_blocks * a->ratio; cell < n; ++cell) ids[count++] = (int32_t)cell;
  return count;
}

void stk_qsa_attn_lists(stk_qsa_attn_args *a, uint64_t seed, int list_all) {
  int32_t *n_ids = (int32_t *)(uintptr_t)a->n_ids;
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    int32_t *ids = (int32_t *)(uintptr_t)a->ids + t * a->ids_stride;
    const int64_t n = a->pos0 + t + 1;
    n_ids[t] = -1;
    if (!stk_qsa_attn_is_dense(a, t)) {
      int32_t count = random_list(a, n, &seed, ids);
      n_ids[t] = t % 8 == 5 ? -count : count; /* one that came from a NaN */
    } else if (list_all) {
      for (int64_t i = 0; i < n; ++i) ids[i] = (int32_t)i;
      n_ids[t] = (int32_t)n;
    }
  }
}

void stk_qsa_attn_cache(stk_qsa_attn_args *a, uint64_t seed) {
  const stk_cache cache = stk_qsa_attn_kv(a);
  const int64_t rows = (int64_t)a->pos0 + a->n_tokens;
  float x[STK_HEAD_DIM_MAX];
  stk_qsa_attn_link(a);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t plane = 0; plane < cache.n_planes; ++plane) {
      for (int64_t d = 0; d < cache.dim; ++d)
        x[d] = (float)((double)next_random(&seed) * (4.0 / 4294967296.0) - 2.0);
      ko_cache_put(&cache, plane, row, x);
    }
}

/* A token's cells are those of its list; those of the last token's, at least, have
 * to be read. */
void stk_qsa_attn_work(const void *args, stk_work *w) {
  const stk_qsa_attn_args *a = args;
  const stk_cache cache = stk_qsa_attn_kv(a);
  double D = a->head_dim, cells = 0, last = 0;
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    int64_t n = (int64_t)a->pos0 + t + 1;
    last = stk_qsa_attn_is_dense(a, t) ? (double)n : (double)(a->budget + n % a->ratio);
    cells += last;
  }
  w->flops += cells * a->q_heads * (4.0 * D + 40.0);
  w->state_bytes += last * (double)stk_cache_row_bytes(&cache);
  w->io_bytes += 12.0 * a->n_tokens * a->q_heads * D;
}

int32_t stk_qsa_attn_params(void *args, stk_param *params) {
  stk_qsa_attn_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("pos0", a->pos0);
  params[n++] = STK_PARAM("Hq", a->q_heads);
  params[n++] = STK_PARAM("Hkv", a->kv_heads);
  params[n++] = STK_PARAM("D", a->head_dim);
  params[n++] = STK_PARAM("B", a->budget);
  params[n++] = STK_PARAM("r", a->ratio);
  params[n++] = STK_PARAM("kv", a->kv_kind);
  params[n++] = (stk_param){"f16", &a->outputs, STK_ATTN_F16};
  return n;
}

void stk_qsa_attn_derive(void *args) {
  stk_qsa_attn_args *a = args;
  a->ids_stride = (int64_t)a->budget + a->ratio - 1;
}

/* The routes leave out pointers that others have: all of them go. */
const char *stk_qsa_attn_shape(const void *args, void *shape) {
  stk_qsa_attn_args *s = shape;
  *s = *(const stk_qsa_attn_args *)args;
  s->q = s->q_raw = NULL;
  s->kv_pages = NULL;
  s->kv_block = NULL;
  s->ids = s->n_ids = NULL;
  s->out = s->partial = NULL;
  s->out_half = NULL;
  return NULL;
}

void stk_qsa_attn_link(void *args) {
  stk_qsa_attn_args *a = args;
  const stk_cache cache = stk_qsa_attn_kv(a);
  stk_cache_fill_table(&cache, (int64_t)a->pos0 + a->n_tokens, a->kv_block);
}

size_t stk_qsa_attn_piece(const void *args, int32_t i, void **data) {
  const stk_qsa_attn_args *a = args;
  const stk_cache cache = stk_qsa_attn_kv(a);
  if (i >= stk_cache_pages((int64_t)a->pos0 + a->n_tokens)) return 0;
  *data = a->kv_pages[i];
  return stk_cache_page_bytes(&cache);
}

static const char *check(const void *args) { return stk_qsa_attn_check(args); }

static int32_t tensors(void *args, stk_tensor *tensors) {
  return stk_qsa_attn_outputs(args, tensors, stk_qsa_attn_inputs(args, tensors, 0));
}

static void prepare(void *args, uint64_t seed) {
  stk_qsa_attn_lists(args, seed, 1);
  stk_qsa_attn_cache(args, seed);
}

static void work(const void *args, stk_work *w) { stk_qsa_attn_work(args, w); }

static const stk_qsa_attn_args cases[] = {
    STK_QSA_CASE(1, 0, 12, 1, 256, 4, 4, STK_KV_F32, STK_ATTN_F32),
    STK_QSA_CASE(4, 30, 3, 1, 256, 36, 4, STK_KV_F16, STK_ATTN_F32 | STK_ATTN_F16),
    STK_QSA_CASE(3, 300, 4, 2, 128, 260, 4, STK_KV_Q8, STK_ATTN_F16),
    STK_QSA_CASE(5, 600, 5, 1, 96, 513, 3, STK_KV_Q8, STK_ATTN_F32),
};

static const stk_qsa_attn_args released =
    STK_QSA_CASE(512, 2048, 24, 2, 256, 2048, 4, STK_KV_F32, STK_ATTN_F32);

STK_OP(qsa_attn, STK_QSA_ATTN_CONTRACT, stk_qsa_attn_args, prepare, .params = stk_qsa_attn_params,
       .derive = stk_qsa_attn_derive, .released = &released, .shape = stk_qsa_attn_shape,
       .link = stk_qsa_attn_link, .piece = stk_qsa_attn_piece);
