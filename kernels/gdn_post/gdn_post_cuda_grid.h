/* gdn_post_cuda_grid.h -- how the GPU kernel of gdn_post is laid over a window: what the
 * kernel and its plan must agree about. */
#ifndef GDN_POST_CUDA_GRID_H
#define GDN_POST_CUDA_GRID_H

#include "gdn_post/gdn_post.h"

/* A warp takes a run of tokens of HEADS heads. */
enum { GDN_POST_WARPS = 4, GDN_POST_HEADS = 4, GDN_POST_BLOCKS = 12 };

/* Blocks that the heads need. */
static inline int gdn_post_groups(int v_heads) {
  return (int)(((int64_t)v_heads + GDN_POST_WARPS * GDN_POST_HEADS - 1) / (GDN_POST_WARPS * GDN_POST_HEADS));
}

/* Tokens of a run, all of which are asked for at its begin: 4 KB of rows at a head
 * dimension of 128. Longer ones leave the chip uneven at the end, shorter ones begin too
 * often (NOTES.md). */
static inline int gdn_post_run_max(int row_bytes) { return row_bytes == 2 ? 2 : 1; }

/* 1 while the runs make at most BLOCKS blocks a processor. */
static inline int gdn_post_run(int n_tokens, int v_heads, int n_processors, int row_bytes) {
  return n_tokens <= n_processors * GDN_POST_BLOCKS / gdn_post_groups(v_heads) ? 1 : gdn_post_run_max(row_bytes);
}

/* Bytes of a token in shared memory: of each head a row of o and one of z. */
static inline int gdn_post_token_bytes(int dim, int row_bytes) { return GDN_POST_HEADS * 2 * dim * row_bytes; }

/* Bytes of a warp there. */
static inline int gdn_post_warp_bytes(int dim, int row_bytes) {
  return gdn_post_run_max(row_bytes) * gdn_post_token_bytes(dim, row_bytes);
}

#endif
