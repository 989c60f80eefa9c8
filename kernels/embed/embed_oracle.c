/* embed, the oracle. */
#include "common/k_oracle.h"
#include "embed/embed.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_embed_args *a = args;
  int64_t begin, end, n_cols = a->table.n_cols;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t)
    for (int64_t c = 0; c < a->n_streams; ++c)
      for (int64_t d = 0; d < n_cols; ++d)
        a->r[(t * a->n_streams + c) * n_cols + d] = ko_element(&a->table, a->ids[t], d);
}

STK_KERNEL(embed, oracle, "scalar", STK_EMBED_CONTRACT, stk_embed_args, STK_EXACT, run);
