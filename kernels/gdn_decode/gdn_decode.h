/* gdn_decode: gdn_pre, gdn_step and gdn_post of one token in one launch, on a GPU.
 *
 * Args are those of the three ops with n_tokens = 1 and equal heads, dimensions and rows;
 * pre.kinds is STK_GDN_ALL. What one hands to the next (qn, kn, vc, gb, kq, o) stays
 * inside and is neither read nor written, so those pointers may be NULL. Written are
 * history, k_tail, state, and y, yh as post.outputs says. Bytes are those of the
 * three ops. */
#ifndef STK_GDN_DECODE_H
#define STK_GDN_DECODE_H

#include "gdn_post/gdn_post.h"
#include "gdn_pre/gdn_pre.h"
#include "gdn_step/gdn_step.h"

typedef struct stk_gdn_decode_args {
  stk_gdn_pre_args pre;
  stk_gdn_step_args step;
  stk_gdn_post_args post;
} stk_gdn_decode_args;

/* Not in the list of ops: its oracle is the three ops' oracles. */
extern const stk_cuda_kernel stk_cuda_gdn_decode_cuda;

#endif
