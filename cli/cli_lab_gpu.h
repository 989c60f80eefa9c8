/* The GPU of strata lab's commands, and the sources of --kernels. */
#ifndef CLI_LAB_GPU_H
#define CLI_LAB_GPU_H

#include <stdio.h>

#include "cli_args.h"
#include "lab/lab_cuda.h"

#define CLI_OPTION_KERNELS(args)                                          \
  {                                                                       \
    0, "kernels", "DIR", CLI_TEXT, offsetof(args, kernels), 0, 0, NULL,   \
        "cuda: sources in place of the built-in ones of the same name"    \
  }

/* The sources of folder `dir`, which the caller closes; NULL for a NULL dir. A folder that
 * cannot be used, or one without --backend cuda, is a bad argument (ARG), whatever is wrong
 * with it. */
strata_status cli_lab_sources(const char *dir, const char *backend, st_cuda_sources **out, strata_error *err);

/* The first GPU, with these sources (borrowed; NULL: none). A line on out says of each what
 * it replaces; out NULL: no line. */
strata_status cli_lab_gpu(const st_cuda_sources *sources, FILE *out, st_cuda **cuda, strata_error *err);

#endif
