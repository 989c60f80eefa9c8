/* ple_embed, the oracle: each head's row from the definition. */
#include "common/k_oracle.h"
#include "ple_embed/ple_embed.h"

/* c_j of window token t. */
static int64_t context(const stk_ple_embed_args *a, int64_t t, int64_t j) {
  const int32_t *x = a->ids + a->ngram_size - 1 + t;
  for (int64_t back = 1; back <= j; ++back)
    if (x[-back] == a->eos) return a->eos;
  return x[-j];
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_ple_embed_args *a = args;
  const int64_t heads = (int64_t)(a->ngram_size - 1) * a->heads_per_ngram;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      int64_t order = 2 + h / a->heads_per_ngram;
      uint64_t m = 0;
      for (int64_t j = 0; j < order; ++j) m ^= (uint64_t)context(a, t, j) * a->mult[j];
      int64_t row = (int64_t)(m % (uint64_t)a->head_rows[h]) + a->head_offset[h];
      for (int64_t i = 0; i < a->width; ++i)
        a->e[(t * heads + h) * a->width + i] =
            ko_element(&a->shards[row / a->shard_rows], row % a->shard_rows, i);
    }
}

STK_KERNEL(ple_embed, oracle, "scalar", STK_PLE_EMBED_CONTRACT, stk_ple_embed_args, STK_EXACT, run);
