/* qsa_decode_cuda.h -- how qsa_decode's kernel for GPUs cuts its work. */
#ifndef QSA_DECODE_CUDA_H
#define QSA_DECODE_CUDA_H

#include "qsa_attn/qsa_attn_cuda.h"
#include "qsa_decode/qsa_decode.h"

/* A block has a split and some heads of a kv head; a warp has a tile of the split. */
enum {
  QSA_DECODE_WARPS = STK_ATTN_SPLIT / STK_ATTN_TILE,
  QSA_DECODE_BLOCKS = 192 /* with fewer, heads are cut finer */
};

/* Heads of a block: few where there are few splits, since a processor's work ends with
 * its block; else as many as registers hold, since each group reads the rows again. */
static inline int qsa_decode_heads(const stk_qsa_decode_args *a) {
  const int64_t splits = a->n_tokens * a->kv_heads * stk_qsa_splits_max(a->budget, a->ratio);
  const int per_kv = a->q_heads / a->kv_heads, most = a->head_dim > 256 || splits * 2 < QSA_DECODE_BLOCKS ? 3 : 6;
  const int groups = (per_kv + most - 1) / most;
  return (per_kv + groups - 1) / groups;
}

static inline int qsa_decode_groups(const stk_qsa_decode_args *a, int heads) {
  return (a->q_heads / a->kv_heads + heads - 1) / heads;
}

/* Places of the split's cells; scores, and weights of pairs of heads; and of each head
 * and tile the maximum, the factor for what was before it and the sum of its weights. */
static inline int qsa_decode_shared_bytes(int heads) {
  return STK_ATTN_SPLIT * (int)sizeof(qsa_cuda_place) +
         (heads * (STK_ATTN_SPLIT + 3 * QSA_DECODE_WARPS) + (heads + heads % 2) * STK_ATTN_SPLIT) * (int)sizeof(float);
}

/* The kernel with clusters: a split's eight blocks have a tile each, and an eighth of
 * the dimensions. Heads of a cluster: in pairs, so perhaps one more than there are. */
static inline int qsa_cluster_heads(const stk_qsa_decode_args *a) {
  const int per_kv = a->q_heads / a->kv_heads, most = a->head_dim <= 256 ? 12 : 6;
  const int groups = (per_kv + most - 1) / most, heads = (per_kv + groups - 1) / groups;
  return heads + heads % 2;
}

static inline int qsa_cluster_slice_bytes(int dim, int kind) {
  return stk_row_data_bytes(dim, kind) / QSA_DECODE_WARPS;
}

/* What a split needs, its values' slices and their scales. */
static inline int qsa_cluster_shared_bytes(int heads, int dim, int kind) {
  return qsa_decode_shared_bytes(heads) +
         STK_ATTN_SPLIT * (qsa_cluster_slice_bytes(dim, kind) + (int)sizeof(float));
}

/* Outside the list of kernels, since clusters came with compute capability 9.0; args
 * and results are those of qsa_decode. */
extern const stk_cuda_kernel stk_cuda_qsa_decode_cuda_cluster;

#endif
