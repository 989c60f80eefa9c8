/* qsa_topk, the oracle: a block is selected if fewer than budget / ratio blocks
 * come before it. */
#include "common/k_oracle.h"
#include "qsa_topk/qsa_topk.h"

/* Does block x (score sx) come before block y (score sy)? */
static int before(float sx, int64_t x, float sy, int64_t y) {
  int nan_x = sx != sx, nan_y = sy != sy;
  if (nan_x != nan_y) return nan_y;
  if (!nan_x && sx != sy) return sx > sy;
  return x < y;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_topk_args *a = args;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) {
    int64_t n = a->pos0 + t + 1, nb = n / a->ratio;
    const float *score = a->score + t * a->score_stride;
    int32_t *ids = a->ids + t * a->ids_stride, count = 0;
    if (n > a->budget + a->ratio - 1) {
      for (int64_t b = 0; b < nb; ++b) {
        int64_t rank = 0;
        for (int64_t other = 0; other < nb && rank < a->budget / a->ratio; ++other)
          rank += before(score[other], other, score[b], b);
        if (rank >= a->budget / a->ratio) continue;
        for (int64_t j = 0; j < a->ratio; ++j) ids[count++] = (int32_t)(b * a->ratio + j);
      }
      for (int64_t cell = nb * a->ratio; cell < n; ++cell) ids[count++] = (int32_t)cell;
    }
    for (int64_t b = 0; b < nb && count > 0; ++b)
      if (score[b] != score[b]) count = -count;
    a->n_ids[t] = count;
  }
}

STK_KERNEL(qsa_topk, oracle, "scalar", STK_QSA_TOPK_CONTRACT, stk_qsa_topk_args, STK_EXACT, run);
