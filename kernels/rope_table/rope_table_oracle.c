/* rope_table, the oracle. */
#include "common/k_oracle.h"
#include "rope_table/rope_table.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_rope_table_args *a = args;
  (void)n_parts;
  if (part != 0) return;
  for (int64_t t = 0; t < a->n_tokens; ++t)
    for (int64_t i = 0; i < a->n_pairs; ++i) {
      float angle = a->inv_freq[i] * (float)(a->pos0 + t * a->pos_step);
      ks_sincos(angle, &a->sin[t * a->n_pairs + i], &a->cos[t * a->n_pairs + i]);
    }
}

STK_KERNEL(rope_table, oracle, "scalar", STK_ROPE_TABLE_CONTRACT, stk_rope_table_args, STK_EXACT, run);
