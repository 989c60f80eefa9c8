/* qsa_topk_cuda_grid.h -- how the GPU kernel of qsa_topk is laid over a window: what
 * the kernel and its plan must agree about. */
#ifndef QSA_TOPK_CUDA_GRID_H
#define QSA_TOPK_CUDA_GRID_H

#include "qsa_topk/qsa_topk.h"

enum {
  QSA_TOPK_BINS = 2048,
  QSA_TOPK_WARPS_MAX = 16,
  QSA_TOPK_FEW = 264,            /* tokens that leave a processor one or two blocks of threads */
  QSA_TOPK_HELD_FEW_MAX = 36864, /* keys that fit beside nothing else */
  QSA_TOPK_HELD_MAX = 16384      /* and with two others */
};

/* What a block of threads shares: the keys lie behind it. */
typedef struct qsa_topk_shared {
  int bins[QSA_TOPK_BINS];
  int totals[QSA_TOPK_WARPS_MAX]; /* of a warp's counts */
  int digit, n_wanted;            /* the bin that has the last selected key; how many of its keys are */
  int has_nan, filler;
} qsa_topk_shared;

static inline int32_t qsa_topk_threads(const stk_qsa_topk_args *a) { return a->n_tokens <= QSA_TOPK_FEW ? 512 : 256; }

/* How many of n keys stay in shared memory, a multiple of 4; the others are made of
 * their scores anew. */
static inline int32_t qsa_topk_held(const stk_qsa_topk_args *a, int32_t n) {
  const int32_t most = a->n_tokens <= QSA_TOPK_FEW ? QSA_TOPK_HELD_FEW_MAX : QSA_TOPK_HELD_MAX;
  return (n < most ? n : most) / 4 * 4;
}

#endif
