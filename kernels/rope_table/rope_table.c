/* isa: scalar
 * rope_table -- once a window, so one angle at a time is enough. */
#include "rope_table/rope_table.h"

#include "common/k_math.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_rope_table_args *a = args;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->n_pairs, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    float position = (float)(a->pos0 + i / a->n_pairs * a->pos_step);
    ks_sincos(a->inv_freq[i % a->n_pairs] * position, &a->sin[i], &a->cos[i]);
  }
}

STK_KERNEL_LEVEL(rope_table, STK_ROPE_TABLE_CONTRACT, stk_rope_table_args, STK_EXACT, run);
