/* gdn_post_cuda_grid.h -- how the GPU kernel of gdn_post is laid over a window: what the
 * kernel and its plan must agree about. */
#ifndef GDN_POST_CUDA_GRID_H
#define GDN_POST_CUDA_GRID_H

#include "gdn_post/gdn_post.h"

/* A warp takes a run of tokens of HEADS heads; SLOTS tokens are on their way to it. */
enum { GDN_POST_WARPS = 4, GDN_POST_HEADS = 4, GDN_POST_SLOTS = 2, GDN_POST_RUN = 4, GDN_POST_FEW = 512 };

/* Tokens of a run: one where they are so few that processors would stay idle. */
static inline int gdn_post_run(int64_t n_tokens) { return n_tokens < GDN_POST_FEW ? 1 : GDN_POST_RUN; }

/* Floats of a warp in shared memory: of each slot o and z, which begin at multiples of 16
 * bytes. */
static inline int gdn_post_part_floats(int dim) { return (GDN_POST_HEADS * dim + 3) / 4 * 4; }
static inline int gdn_post_warp_floats(int dim) { return GDN_POST_SLOTS * 2 * gdn_post_part_floats(dim); }

#endif
