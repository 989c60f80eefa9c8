/* qsa_score, the oracle. */
#include "common/k_oracle.h"
#include "qsa_score/qsa_score.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_score_args *a = args;
  const int64_t Di = a->idx_dim;
  const stk_cache blocks = stk_qsa_score_blocks(a);
  (void)n_parts;
  if (part != 0) return;
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    int64_t n = a->pos0 + t + 1;
    if (n <= a->budget + a->ratio - 1) continue;
    for (int64_t b = 0; b < n / a->ratio; ++b) {
      float sum = 0.0f;
      for (int64_t h = 0; h < a->idx_heads; ++h) {
        float dot = ko_fma32(a->iq + (t * a->idx_heads + h) * Di, stk_cache_data(&blocks, 0, b), Di);
        sum = sum + (dot <= 0.0f ? 0.0f : dot);
      }
      a->score[t * a->score_stride + b] = sum * (float)(1.0 / sqrt((double)Di));
    }
  }
}

STK_KERNEL(qsa_score, oracle, "scalar", STK_QSA_SCORE_CONTRACT, stk_qsa_score_args, STK_EXACT, run);
