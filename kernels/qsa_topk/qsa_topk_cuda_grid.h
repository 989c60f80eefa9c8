/* qsa_topk_cuda_grid.h -- how the GPU kernel of qsa_topk is laid over a window: what
 * the kernel and its plan must agree about. */
#ifndef QSA_TOPK_CUDA_GRID_H
#define QSA_TOPK_CUDA_GRID_H

#include "qsa_topk/qsa_topk.h"

enum {
  QSA_TOPK_BINS = 2048,
  QSA_TOPK_WARPS_MAX = 32,
  QSA_TOPK_FEW = 264,              /* tokens that leave a processor one or two blocks of threads */
  QSA_TOPK_HELD_ALONE_MAX = 36864, /* keys that fit into a processor, from sm_80's 163 KB on */
  QSA_TOPK_HELD_MAX = 14336,       /* and into sm_90's beside those of two others */
  QSA_TOPK_LIST = 2048             /* keys that are looked at again by themselves */
};

/* What a block of threads shares: the keys lie behind it. */
typedef struct qsa_topk_shared {
  int bins[QSA_TOPK_BINS];
  unsigned list[QSA_TOPK_LIST];
  unsigned totals[QSA_TOPK_WARPS_MAX]; /* of a warp's counts */
  int digit, n_digit, n_wanted;   /* the bin that has the last selected key; its keys; how many of them are */
  int has_nan, n_listed, filler[3];
} qsa_topk_shared;

/* Blocks of keys of the window's last token. */
static inline int32_t qsa_topk_blocks(const stk_qsa_topk_args *a) { return (a->pos0 + a->n_tokens) / a->ratio; }

/* Whether a processor takes one token at a time: there are few of them, or it could not
 * hold the keys of several. */
static inline int qsa_topk_is_alone(const stk_qsa_topk_args *a) {
  return a->n_tokens <= QSA_TOPK_FEW || qsa_topk_blocks(a) > QSA_TOPK_HELD_MAX;
}

static inline int32_t qsa_topk_threads(const stk_qsa_topk_args *a) { return qsa_topk_is_alone(a) ? 1024 : 256; }

/* How many of n keys stay in shared memory, a multiple of 4; the others are made of
 * their scores anew. */
static inline int32_t qsa_topk_held(const stk_qsa_topk_args *a, int32_t n) {
  const int32_t most = qsa_topk_is_alone(a) ? QSA_TOPK_HELD_ALONE_MAX : QSA_TOPK_HELD_MAX;
  return (n < most ? n : most) / 4 * 4;
}

#endif
