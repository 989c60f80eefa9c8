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

static int32_t select_cells(const stk_qsa_topk_args *a, const float *score, int64_t n, int32_t *ids) {
  int64_t nb = n / a->ratio, wanted = a->budget / a->ratio;
  int32_t count = 0;
  int has_nan = 0;
  for (int64_t b = 0; b < nb; ++b) {
    int64_t rank = 0;
    has_nan |= score[b] != score[b];
    for (int64_t other = 0; other < nb && rank < wanted; ++other)
      rank += before(score[other], other, score[b], b);
    if (rank >= wanted) continue;
    for (int64_t j = 0; j < a->ratio; ++j) ids[count++] = (int32_t)(b * a->ratio + j);
  }
  for (int64_t cell = nb * a->ratio; cell < n; ++cell) ids[count++] = (int32_t)cell;
  return has_nan ? -count : count;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_topk_args *a = args;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) {
    int64_t n = a->pos0 + t + 1;
    int32_t *ids = a->ids + t * a->ids_stride;
    if (n > a->budget + a->ratio - 1) {
      a->n_ids[t] = select_cells(a, a->score + t * a->score_stride, n, ids);
    } else if (a->list_all) {
      for (int64_t cell = 0; cell < n; ++cell) ids[cell] = (int32_t)cell;
      a->n_ids[t] = (int32_t)n;
    }
  }
}

STK_KERNEL(qsa_topk, oracle, "scalar", STK_QSA_TOPK_CONTRACT, stk_qsa_topk_args, STK_EXACT, run);
