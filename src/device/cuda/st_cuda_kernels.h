/* The GPU kernels that are linked in (kernels/cuda.inc). */
#ifndef ST_CUDA_KERNELS_H
#define ST_CUDA_KERNELS_H

#include <strata/kernel.h>

#include "core/st_error.h"

/* In the order of the list; NULL past the end. */
const stk_cuda_kernel *st_cuda_kernel_at(int32_t index);
/* The index-th of an op: the chosen one first; NULL past the end. */
const stk_cuda_kernel *st_cuda_kernel_of(const char *op, int32_t index);

#endif
