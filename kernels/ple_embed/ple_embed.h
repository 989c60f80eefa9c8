/* ple_embed: hashed n-gram embeddings of each token (per-layer embedding).
 *
 * With c_0 = x_t and c_j = x_{t-j}, except that c_j = eos if any of x_{t-1} ..
 * x_{t-j} is eos (tokens before the sequence count as eos):
 *
 *   m_1 = c_0 * mult[0];   m_n = m_{n-1} xor (c_{n-1} * mult[n-1])   (mod 2^64)
 *   head h of the n-grams of order n = 2 + h / heads_per_ngram:
 *   row = m_n mod head_rows[h] + head_offset[h]
 *   e[t][h*W .. h*W + W-1] = table[row]
 *
 * Shapes    ids          in   i32 [ngram_size - 1 + T]   the context, then the window
 *           mult         in   u64 [ngram_size] (as i64)
 *           head_rows, head_offset  in  i64 [n_heads], n_heads =
 *                        (ngram_size - 1) * heads_per_ngram
 *           shards       in   n_shards matrices [..][W], as stored; row r of the
 *                        table is row r % shard_rows of shard r / shard_rows
 *           e            out  f32 [T][n_heads * W]
 * Numerics  exact (integers and conversions).
 * Threads   parts cut tokens. */
#ifndef STK_PLE_EMBED_H
#define STK_PLE_EMBED_H

#include <strata/kernel.h>

#define STK_PLE_EMBED_CONTRACT 1u
enum { STK_NGRAM_MAX = 8 };

typedef struct stk_ple_embed_args {
  const int32_t *ids;
  const uint64_t *mult;
  const int64_t *head_rows, *head_offset;
  const stk_matrix *shards;
  float *e;
  int64_t shard_rows;
  int32_t n_tokens, ngram_size, heads_per_ngram, n_shards, width, eos;
  stk_dtype dtype;       /* tests only: of the shards they make */
  const void *test_data; /* tests only: what those shards point into */
} stk_ple_embed_args;

extern const stk_op stk_ple_embed_op;

#endif
