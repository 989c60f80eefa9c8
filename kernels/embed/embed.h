/* embed: the first residual streams of each token.
 *
 *   r[t][c][:] = table[ids[t]][:]   for c < n_streams
 *
 * Shapes    ids    in   i32 [T]              each in 0 .. table.n_rows - 1
 *           table  in   f32, f16, bf16 [V][H], as stored
 *           r      out  f32 [T][S][H]
 * Numerics  exact: only conversions.
 * Threads   parts cut tokens. */
#ifndef STK_EMBED_H
#define STK_EMBED_H

#include <strata/kernel.h>

#define STK_EMBED_CONTRACT 1u

typedef struct stk_embed_args {
  const int32_t *ids;
  stk_matrix table;
  float *r;
  int32_t n_tokens, n_streams;
} stk_embed_args;

extern const stk_op stk_embed_op;

#endif
