/* gdn_pre_cuda_grid.h -- how the GPU kernel of gdn_pre is laid over a window: what the
 * kernel and its plan must agree about. */
#ifndef GDN_PRE_CUDA_GRID_H
#define GDN_PRE_CUDA_GRID_H

#include "gdn_pre/gdn_pre.h"

/* A warp takes a run of tokens of a key head, of a value head, or of some heads' gates.
 * SLOTS rows of raw channels, not fewer than a run has, are on their way to it at a time. */
enum {
  GDN_PRE_WARPS = 4,
  GDN_PRE_RUN = 16,
  GDN_PRE_SHORT_RUN = 4,
  GDN_PRE_FEW = 256, /* tokens of which short runs keep more processors busy */
  GDN_PRE_GATE_HEADS = 8,
  GDN_PRE_SLOTS = 16
};

/* Only the first run may look back into the history, which it also writes: the second one
 * begins at token run - 1 or run. */
static inline int gdn_pre_run(int64_t n_tokens, int n_taps) {
  return n_tokens < GDN_PRE_FEW && n_taps <= GDN_PRE_SHORT_RUN ? GDN_PRE_SHORT_RUN : GDN_PRE_RUN;
}

/* Floats of a warp in shared memory. */
static inline int gdn_pre_warp_floats(int k_dim, int v_dim) { return GDN_PRE_SLOTS * (k_dim < v_dim ? v_dim : k_dim); }

#endif
