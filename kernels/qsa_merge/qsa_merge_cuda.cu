/* isa: cuda
 * qsa_merge -- a block a row (head of a token), a thread a dimension. A warp has the
 * maxima and sums of 32 splits in its lanes: the running maximum goes through them
 * first, then the lanes make their factors at the same time, then the sums follow.
 *
 * Grid: rows. */
#include "qsa_attn/qsa_attn_lanes.h"
#include "qsa_merge/qsa_merge.h"

enum { SPLITS = 32, AHEAD = 8 };

/* What is there before a split, and the factors for it and for the split: lane j has
 * those of split j. */
typedef struct factors {
  float old, more;
} factors;

/* count splits, of which lane j has maximum mine; *m: before them, and after. */
KC_INLINE factors make_factors(float mine, int count, int is_first, float *m) {
  float from = 0.0f, to = 0.0f;
  factors f;
  for (int j = 0; j < count; ++j) {
    const float next = kc_shuffle(mine, j), joined = is_first && j == 0 ? next : kc_larger(*m, next);
    if (kc_lane == j) {
      from = *m;
      to = joined;
    }
    *m = joined;
  }
  f.old = ks_exp(from - to);
  f.more = ks_exp(mine - to);
  return f;
}

KC_KERNEL(qsa_merge_cuda, stk_qsa_merge_args, STK_HEAD_DIM_MAX, 1) {
  const int64_t row = kc_block, t = row / a->q_heads, dim = a->head_dim, d = kc_thread;
  const int n = (int)((stk_qsa_n_cells(a, t) + STK_ATTN_SPLIT - 1) / STK_ATTN_SPLIT);
  const int is_nan = !stk_qsa_attn_is_dense(a, t) && a->n_ids[t] < 0;
  const float gate = a->q_raw[(2 * row + 1) * dim + d];
  float m = 0.0f, l = 0.0f, acc = 0.0f, open;
  for (int s = 0; s < n; s += SPLITS) {
    const int count = n - s < SPLITS ? n - s : SPLITS;
    const float *part = stk_qsa_partial(a, row, s), *mine = part + (kc_lane < count ? kc_lane : 0) * (dim + 2) + dim;
    const float own_l = mine[1];
    const factors f = make_factors(mine[0], count, s == 0, &m);
    for (int i = 0; i < count; i += AHEAD) {
      float more[AHEAD];
      KC_UNROLL for (int j = 0; j < AHEAD; ++j) more[j] = part[(i + j < count ? i + j : i) * (dim + 2) + d];
      KC_UNROLL for (int j = 0; j < AHEAD; ++j) {
        const float old = kc_shuffle(f.old, i + j), weight = kc_shuffle(f.more, i + j);
        const float more_l = kc_shuffle(own_l, i + j);
        if (i + j >= count) continue;
        acc = s + i + j ? ks_fma(more[j], weight, acc * old) : more[j];
        l = s + i + j ? ks_fma(more_l, weight, l * old) : more_l;
      }
    }
  }
  kc_sigmoid(&gate, &open, 1);
  store_output(a, row * dim + d, (acc * (1.0f / l)) * open, is_nan);
}
