/* A side of a comparison on a GPU.
 *
 * A candidate is one CUDA C file that begins one of the op's entries, such as
 * gdn_scan_cuda: its launch, and the options it is compiled with at each shape, are
 * those that the built-in kernel of that entry plans. */
#ifndef LAB_CUDA_SIDE_H
#define LAB_CUDA_SIDE_H

#include "device/cuda/st_cuda.h"
#include "device/cuda/st_cuda_kernels.h"
#include "lab/lab_case.h"
#include "lab/lab_side.h"

typedef struct lab_cuda_kernel {
  st_cuda *cuda; /* borrowed */
  const stk_cuda_kernel *plan;
  const char *name; /* of the source, for messages; borrowed */
  char *text;
} lab_cuda_kernel;

/* Reads the frozen source and finds the entry that it begins. ARG: none of the op's. */
strata_status lab_cuda_kernel_open(st_cuda *cuda, const lab_side *side, lab_cuda_kernel *out, strata_error *err);
void lab_cuda_kernel_close(lab_cuda_kernel *kernel);

/* The module and the launch for args of a shape. UNSUPPORTED, with the plan's words, if
 * the kernel does not take it. */
strata_status lab_cuda_kernel_module(const lab_cuda_kernel *kernel, const void *args, st_cuda_module **out,
                                     stk_cuda_launch *launch, strata_error *err);

/* Runs a case on the device: all buffers, guards too, to it and back. */
lab_runner lab_cuda_runner(const lab_cuda_kernel *kernel);

/* In a child: opens the device, compiles the side at the op's released shape, and notes
 * what came of it. */
strata_status lab_cuda_side_compile(lab_side *side, strata_error *err);

#endif
