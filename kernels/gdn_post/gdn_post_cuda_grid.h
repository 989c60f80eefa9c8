/* gdn_post_cuda_grid.h -- how the GPU kernel of gdn_post is laid over a window: what the
 * kernel and its plan must agree about. */
#ifndef GDN_POST_CUDA_GRID_H
#define GDN_POST_CUDA_GRID_H

#include "gdn_post/gdn_post.h"

/* A warp takes a run of tokens of HEADS heads; SLOTS tokens are on their way to it. */
enum { GDN_POST_WARPS = 4, GDN_POST_HEADS = 4, GDN_POST_SLOTS = 2, GDN_POST_BLOCKS = 12, GDN_POST_RUN = 4 };

/* Blocks that the heads need. */
static inline int gdn_post_groups(int v_heads) {
  return (int)(((int64_t)v_heads + GDN_POST_WARPS * GDN_POST_HEADS - 1) / (GDN_POST_WARPS * GDN_POST_HEADS));
}

/* Tokens of a run: as few as make at most BLOCKS blocks a processor, of which it holds half
 * at a time, so that there is a second turn to even out the first; and at most RUN, with
 * which there are many turns. */
static inline int gdn_post_run(int n_tokens, int v_heads, int n_processors) {
  const int runs = n_processors * GDN_POST_BLOCKS / gdn_post_groups(v_heads);
  int run = 1;
  while (run < GDN_POST_RUN && n_tokens > run * runs) ++run;
  return run;
}

/* Bytes of a slot in shared memory: of each head a row of o and one of z. */
static inline int gdn_post_slot_bytes(int dim, int row_bytes) { return GDN_POST_HEADS * 2 * dim * row_bytes; }

#endif
