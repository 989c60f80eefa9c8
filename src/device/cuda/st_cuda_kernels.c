/* The table of GPU kernels, made from kernels/cuda.inc. */
#include "device/cuda/st_cuda_kernels.h"

#include <string.h>

#define STK_CUDA(op, entry) extern const stk_cuda_kernel stk_cuda_##entry;
#include "cuda.inc"
#undef STK_CUDA

static const stk_cuda_kernel *const table[] = {
#define STK_CUDA(op, entry) &stk_cuda_##entry,
#include "cuda.inc"
#undef STK_CUDA
};

const stk_cuda_kernel *st_cuda_kernel_at(int32_t index) {
  return index >= 0 && index < (int32_t)(sizeof table / sizeof *table) ? table[index] : NULL;
}

const stk_cuda_kernel *st_cuda_kernel_of(const char *op, int32_t index) {
  const stk_cuda_kernel *kernel;
  for (int32_t i = 0; (kernel = st_cuda_kernel_at(i)); ++i)
    if (strcmp(op, kernel->op) == 0 && index-- == 0) return kernel;
  return NULL;
}
