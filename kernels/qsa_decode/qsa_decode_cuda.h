/* qsa_decode_cuda.h -- how qsa_decode's kernel for GPUs cuts its work. */
#ifndef QSA_DECODE_CUDA_H
#define QSA_DECODE_CUDA_H

#include "qsa_attn/qsa_attn_cuda.h"
#include "qsa_decode/qsa_decode.h"

/* A block has a split and some heads of a kv head. Two warps score a tile of the split; a
 * warp has 32 dimensions of all values. */
enum {
  QSA_DECODE_TILES = STK_ATTN_SPLIT / STK_ATTN_TILE,
  QSA_DECODE_TILE_WARPS = 2,
  QSA_DECODE_WARPS = QSA_DECODE_TILES * QSA_DECODE_TILE_WARPS,
  QSA_DECODE_BLOCKS = 192,           /* with fewer, heads are cut finer */
  QSA_DECODE_KEY_SLOTS = 4,          /* keys of a warp that are on their way */
  QSA_DECODE_FEED_BYTES = 128 * 1024 /* for keys and values of a block */
};

/* Heads of a block: few where there are few splits, since a processor's work ends with
 * its block; else as many as registers hold, since each group reads the rows again. */
static inline int qsa_decode_heads(const stk_qsa_decode_args *a) {
  const int64_t splits = (int64_t)a->n_tokens * a->kv_heads * stk_qsa_splits_max(a->budget, a->ratio);
  const int per_kv = a->q_heads / a->kv_heads, most = splits * 2 < QSA_DECODE_BLOCKS ? 2 : a->head_dim > 256 ? 3 : 6;
  const int groups = (per_kv + most - 1) / most;
  return (per_kv + groups - 1) / groups;
}

static inline int qsa_decode_groups(const stk_qsa_decode_args *a, int heads) {
  return (a->q_heads / a->kv_heads + heads - 1) / heads;
}

/* Places of the split's cells; scores, and weights of pairs of heads; and of each head
 * and tile the maximum, the factor for what was before it and the sum of its weights. A
 * multiple of 16. */
static inline int qsa_decode_split_bytes(int heads) {
  const int floats = heads * (STK_ATTN_SPLIT + 3 * QSA_DECODE_TILES) + (heads + heads % 2) * STK_ATTN_SPLIT;
  return STK_ATTN_SPLIT * (int)sizeof(qsa_cuda_place) + (floats + 3) / 4 * 4 * (int)sizeof(float);
}

static inline int qsa_decode_keys_bytes(int dim, int kind) {
  return QSA_DECODE_WARPS * QSA_DECODE_KEY_SLOTS * qsa_cuda_row_bytes(dim, kind);
}

/* A warp's part of a value, and the same in shared memory with the value's scales. */
static inline int qsa_decode_slice_bytes(int kind) { return stk_row_data_bytes(32, kind); }
static inline int qsa_decode_value_bytes(int dim, int kind) {
  return (qsa_decode_slice_bytes(kind) + 4 * qsa_cuda_scale_words(dim, kind) + 15) / 16 * 16;
}

/* Values that have a place there: 256, or fewer where there is no room, at least a tile. */
static inline int qsa_decode_value_slots(int dim, int kind) {
  const int room = QSA_DECODE_FEED_BYTES - qsa_decode_keys_bytes(dim, kind);
  int slots = STK_ATTN_SPLIT;
  while (slots > STK_ATTN_TILE && slots * (dim / 32) * qsa_decode_value_bytes(dim, kind) > room) slots /= 2;
  return slots;
}

static inline int qsa_decode_shared_bytes(int heads, int dim, int kind) {
  return qsa_decode_split_bytes(heads) + qsa_decode_keys_bytes(dim, kind) +
         dim / 32 * qsa_decode_value_slots(dim, kind) * qsa_decode_value_bytes(dim, kind);
}

#endif
