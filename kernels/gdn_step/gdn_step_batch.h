/* gdn_step_batch: gdn_step for several sequences in one launch, on a GPU. Each
 * sequence has args, state and position of its own; heads, dimensions and rows are the
 * same for all. steps lies in the device's memory. Numerics are gdn_step's. */
#ifndef STK_GDN_STEP_BATCH_H
#define STK_GDN_STEP_BATCH_H

#include "gdn_step/gdn_step.h"

typedef struct stk_gdn_step_batch_args {
  const stk_gdn_step_args *steps; /* [n_steps] */
  int32_t n_steps;
} stk_gdn_step_batch_args;

/* Not in the list of ops: its args are a list. plan takes the first of them. */
extern const stk_cuda_kernel stk_cuda_gdn_step_batch_cuda;

#endif
