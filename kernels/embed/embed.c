/* isa: scalar
 * embed -- one row is widened once and copied to the other streams. */
#include "embed/embed.h"

#include <string.h>

#include "common/k_weight.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_embed_args *a = args;
  const int64_t n_cols = a->table.n_cols;
  const size_t elem = stk_dtype_bytes(a->table.dtype);
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) {
    const uint8_t *row = (const uint8_t *)a->table.data + (size_t)a->ids[t] * (size_t)n_cols * elem;
    float *first = a->r + t * a->n_streams * n_cols;
    for (int64_t d = 0; d < n_cols; ++d) first[d] = k_weight(row + (size_t)d * elem, a->table.dtype);
    for (int32_t c = 1; c < a->n_streams; ++c)
      memcpy(first + c * n_cols, first, (size_t)n_cols * sizeof *first);
  }
}

STK_KERNEL_LEVEL(embed, STK_EMBED_CONTRACT, stk_embed_args, STK_EXACT, run);
