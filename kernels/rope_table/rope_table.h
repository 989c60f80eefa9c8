/* rope_table: cosines and sines of the rotary angles of a window's positions,
 * shared by every attention layer. A step above 1 serves blocks of tokens.
 *
 *   angle = inv_freq[i] * (float)(pos0 + t * pos_step)
 *   cos[t][i], sin[t][i]
 *
 * Shapes    inv_freq  in   f32 [n_pairs]    radians a token
 *           cos, sin  out  f32 [T][n_pairs]
 * Numerics  exact; the angle is one f32 product.
 * Threads   parts cut tokens. */
#ifndef STK_ROPE_TABLE_H
#define STK_ROPE_TABLE_H

#include <strata/kernel.h>

#define STK_ROPE_TABLE_CONTRACT 1u

typedef struct stk_rope_table_args {
  const float *inv_freq;
  float *cos, *sin;
  int32_t n_tokens, pos0, pos_step, n_pairs;
} stk_rope_table_args;

extern const stk_op stk_rope_table_op;

#endif
