/* isa: scalar
 * ple_embed -- a token's rows lie anywhere in the table: what counts is how many
 * cache misses are in flight, so the rows are hashed first and then copied. */
#include "ple_embed/ple_embed.h"

#include <string.h>

#include "common/k_weight.h"

/* m_2 .. m_ngram_size of the token at ids[0], whose context is before it. */
static void hashes(const stk_ple_embed_args *a, const int32_t *ids, uint64_t m[STK_NGRAM_MAX]) {
  int cut = 0;
  uint64_t value = (uint64_t)(int64_t)ids[0] * a->mult[0];
  for (int32_t j = 1; j < a->ngram_size; ++j) {
    cut |= ids[-j] == a->eos;
    value ^= (uint64_t)(int64_t)(cut ? a->eos : ids[-j]) * a->mult[j];
    m[j - 1] = value;
  }
}

static const uint8_t *row_address(const stk_ple_embed_args *a, int64_t row, stk_dtype *dtype) {
  const stk_matrix *shard = &a->shards[row / a->shard_rows];
  *dtype = shard->dtype;
  return (const uint8_t *)shard->data +
         (size_t)(row % a->shard_rows) * (size_t)a->width * stk_dtype_bytes(shard->dtype);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_ple_embed_args *a = args;
  const int32_t heads = (a->ngram_size - 1) * a->heads_per_ngram;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) {
    uint64_t m[STK_NGRAM_MAX];
    hashes(a, a->ids + a->ngram_size - 1 + t, m);
    for (int pass = 0; pass < 2; ++pass)
      for (int32_t h = 0; h < heads; ++h) {
        uint64_t hash = m[h / a->heads_per_ngram];
        int64_t row = (int64_t)(hash % (uint64_t)a->head_rows[h]) + a->head_offset[h];
        stk_dtype dtype;
        const uint8_t *from = row_address(a, row, &dtype);
        float *to = a->e + (t * heads + h) * a->width;
        if (pass == 0) __builtin_prefetch(from);
        else
          for (int32_t i = 0; i < a->width; ++i)
            to[i] = k_weight(from + (size_t)i * stk_dtype_bytes(dtype), dtype);
      }
  }
}

STK_KERNEL_LEVEL(ple_embed, STK_PLE_EMBED_CONTRACT, stk_ple_embed_args, STK_EXACT, run);
