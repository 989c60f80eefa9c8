/* A runner whose parts run at the same time, as the program runs them: what only goes
 * wrong when parts meet is not seen part by part. */
#ifndef LAB_TOGETHER_H
#define LAB_TOGETHER_H

#include "device/cpu/st_pool.h"
#include "lab/lab_case.h"

typedef struct lab_together {
  const stk_kernel *kernel;
  st_pool *pool;
} lab_together;

/* Borrows *together. Inputs are closed meanwhile; a floating-point mode that a thread of
 * the pool is left with becomes the caller's, and the thread's own one is put back. */
lab_runner lab_runner_together(const lab_together *together);

#endif
