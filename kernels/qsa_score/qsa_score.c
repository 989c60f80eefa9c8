/* isa: scalar avx2 avx512
 * qsa_score -- a block key stays in registers' reach for all tokens and heads. */
#include "qsa_score/qsa_score.h"

#include <math.h>

#include "common/k_tree.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_score_args *a = args;
  const int64_t Di = a->idx_dim, first = stk_qsa_first_sparse(a->pos0, a->n_tokens, a->budget, a->ratio);
  const float scale = (float)(1.0 / sqrt((double)Di));
  if (first == a->n_tokens) return;
  int64_t begin, end;
  stk_slice((a->pos0 + a->n_tokens) / a->ratio, 16, part, n_parts, &begin, &end);
  for (int64_t b = begin; b < end; ++b) {
    /* Block b is complete once token (b+1)*ratio - 1 is there. */
    int64_t complete = (b + 1) * a->ratio - 1 - a->pos0;
    for (int64_t t = complete > first ? complete : first; t < a->n_tokens; ++t) {
      float sum = 0.0f;
      for (int64_t h = 0; h < a->idx_heads; ++h) {
        float dot = k_dot(a->iq + (t * a->idx_heads + h) * Di, a->block_keys + b * Di, Di);
        sum = sum + (dot <= 0.0f ? 0.0f : dot);
      }
      a->score[t * a->score_stride + b] = sum * scale;
    }
  }
}

STK_KERNEL_LEVEL(qsa_score, STK_QSA_SCORE_CONTRACT, stk_qsa_score_args, STK_EXACT, run);
