/* qsa_attn_cuda.h -- how the attention kernels for GPUs cut their work: for the
 * kernels and for the plans that launch them. */
#ifndef QSA_ATTN_CUDA_H
#define QSA_ATTN_CUDA_H

#ifndef __CUDACC__
#include <stdio.h>
#endif

#include "qsa_attn/qsa_attn.h"

/* A block attends for two tokens, each with two warps. A tile goes through shared
 * memory in pieces; STAGES of them are there at a time. */
enum {
  QSA_CUDA_TOKENS = 2,
  QSA_CUDA_TOKEN_WARPS = 2,
  QSA_CUDA_WARPS = QSA_CUDA_TOKENS * QSA_CUDA_TOKEN_WARPS,
  QSA_CUDA_STAGES = 2
};

/* Where a cell's key lies; its value is at a fixed distance. */
typedef struct qsa_cuda_place {
  const uint8_t *data, *scales;
} qsa_cuda_place;

/* What a warp does, kept until it is done. */
typedef struct qsa_cuda_task {
  int32_t t, head, n_heads, is_nan; /* head: the first one */
} qsa_cuda_task;

/* Heads of a warp: of each, a lane holds dim / 32 numbers twice. */
static inline int qsa_cuda_heads(int per_kv, int dim) {
  const int most = QSA_CUDA_TOKEN_WARPS * (dim <= 256 ? 6 : 3), groups = (per_kv + most - 1) / most;
  return ((per_kv + groups - 1) / groups + QSA_CUDA_TOKEN_WARPS - 1) / QSA_CUDA_TOKEN_WARPS;
}

/* Blocks that the heads of one kv head need. */
static inline int qsa_cuda_groups(int per_kv, int heads) {
  return (per_kv + QSA_CUDA_TOKEN_WARPS * heads - 1) / (QSA_CUDA_TOKEN_WARPS * heads);
}

/* Words of 4 bytes that hold a row's scales, wherever in the first they begin. */
static inline int qsa_cuda_scale_words(int dim, int kind) {
  return (stk_row_scale_bytes(dim, kind) + 2) / 4;
}

/* A row in shared memory: its data, its scales' words, to whole units of 16 bytes. */
static inline int qsa_cuda_row_bytes(int dim, int kind) {
  return (stk_row_data_bytes(dim, kind) + 4 * qsa_cuda_scale_words(dim, kind) + 15) / 16 * 16;
}

/* Rows of a piece. Each piece costs a barrier, so a whole tile where its rows are short. */
static inline int qsa_cuda_piece(int dim, int kind) {
  return qsa_cuda_row_bytes(dim, kind) <= 544 ? STK_ATTN_TILE : STK_ATTN_TILE / 2;
}

/* Floats of a warp: the scores of its heads for a tile, their weights, and the sums of
 * the splits that are done. */
static inline int qsa_cuda_warp_floats(int heads, int dim) {
  return 2 * heads * STK_ATTN_TILE + heads * dim;
}

static inline int qsa_cuda_shared_bytes(int heads, int dim, int kind) {
  return QSA_CUDA_TOKENS * QSA_CUDA_STAGES * qsa_cuda_piece(dim, kind) * qsa_cuda_row_bytes(dim, kind) +
         QSA_CUDA_TOKENS * 2 * STK_ATTN_TILE * (int)sizeof(qsa_cuda_place) +
         QSA_CUDA_WARPS * ((int)sizeof(qsa_cuda_task) + qsa_cuda_warp_floats(heads, dim) * (int)sizeof(float));
}

static inline int64_t qsa_cuda_token_blocks(int64_t n_tokens) {
  return (n_tokens + QSA_CUDA_TOKENS - 1) / QSA_CUDA_TOKENS;
}

#ifndef __CUDACC__
static inline const char *qsa_cuda_plan(const stk_qsa_attn_args *a, int64_t token_blocks, stk_cuda_launch *launch) {
  const int per_kv = a->q_heads / a->kv_heads, heads = qsa_cuda_heads(per_kv, a->head_dim);
  const int64_t rows = (int64_t)a->kv_heads * qsa_cuda_groups(per_kv, heads);
  if (rows > 65535) return "qsa attention: q_heads: fewer expected on a GPU";
  *launch = (stk_cuda_launch){.grid = {(uint32_t)token_blocks, (uint32_t)rows, 1}, .block = 32 * QSA_CUDA_WARPS};
  launch->shared_bytes = (uint32_t)qsa_cuda_shared_bytes(heads, a->head_dim, a->kv_kind);
  snprintf(launch->options, sizeof launch->options, "-DQSA_DIM=%d -DQSA_HEADS=%d -DQSA_KIND=%d", a->head_dim,
           heads, a->kv_kind);
  return NULL;
}
#endif

#endif
