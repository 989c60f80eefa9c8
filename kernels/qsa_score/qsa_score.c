/* isa: scalar avx2 avx512 neon
 * qsa_score -- VW block keys meet one index query at a time, so their VW sums are
 * reduced together and the query stays in registers; the keys, at most 16 KiB, stay
 * in the first-level cache for all heads and tokens. */
#include "qsa_score/qsa_score.h"

#include <math.h>

#include "common/k_tree.h"

/* Scores of the blocks whose keys are given, of token t. dim is a constant where it
 * is common. max(0, -0) may be -0 here: added to a sum from +0 it changes nothing. */
K_INLINE vf score_blocks(const stk_qsa_score_args *a, int64_t t, const float *const key[VW],
                         int64_t dim, vf scale) {
  vf sum = vf_zero();
  for (int64_t h = 0; h < a->idx_heads; ++h) {
    const float *q = a->iq + (t * a->idx_heads + h) * dim;
    vf dots[VW];
    K_UNROLL for (int j = 0; j < VW; ++j) dots[j] = k_lanes_fold(k_fma_lanes(q, key[j], dim));
    sum = vf_add(sum, vf_max(vf_zero(), k_sum_each(dots)));
  }
  return vf_mul(sum, scale);
}

/* How many blocks token t sees whole. */
static int64_t n_complete(const stk_qsa_score_args *a, int64_t t) {
  return ((int64_t)a->pos0 + t + 1) / a->ratio;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_score_args *a = args;
  const stk_cache blocks = stk_qsa_score_blocks(a);
  const int64_t Di = a->idx_dim, first = stk_qsa_first_sparse(a->pos0, a->n_tokens, a->budget, a->ratio);
  const vf scale = vf_set1((float)(1.0 / sqrt((double)Di)));
  if (first == a->n_tokens) return;
  int64_t begin, end;
  stk_slice(((int64_t)a->pos0 + a->n_tokens) / a->ratio, 16, part, n_parts, &begin, &end);
  for (int64_t b = begin; b < end; b += VW) {
    const float *key[VW];
    for (int64_t j = 0; j < VW; ++j) key[j] = stk_cache_data(&blocks, 0, b + j < end ? b + j : end - 1);
    for (int64_t t = first; t < a->n_tokens; ++t) {
      int64_t n = n_complete(a, t) < end ? n_complete(a, t) - b : end - b;
      if (n <= 0) continue;
      float *out = a->score + t * a->score_stride + b, some[VW];
      vf score = Di == 128 ? score_blocks(a, t, key, 128, scale) : score_blocks(a, t, key, Di, scale);
      if (n >= VW) {
        vf_store(out, score);
      } else {
        vf_store(some, score);
        memcpy(out, some, (size_t)n * sizeof *some);
      }
    }
  }
}

STK_KERNEL_LEVEL(qsa_score, STK_QSA_SCORE_CONTRACT, stk_qsa_score_args, STK_EXACT, run);
