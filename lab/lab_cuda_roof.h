/* lab_roof on a GPU: the times of a kernel beside the floor that the device's ceilings
 * put under them. */
#ifndef LAB_CUDA_ROOF_H
#define LAB_CUDA_ROOF_H

#include "device/cuda/st_cuda.h"
#include "lab/lab_roof.h"

/* A graph of so many launches is timed. */
enum { LAB_CUDA_ROOF_LAUNCHES = 36 };

/* How many sets of buffers a row's launches go through in turn: as many as are together
 * twice the second-level cache, so that a launch finds little of its own there; at least
 * 2, at most a launch each. */
int32_t lab_cuda_roof_sets(double set_bytes, double cache_bytes);

/* Times kernel, of the request's op, one row after the other: each row is n_rounds graphs.
 * The request's own kernel is not looked at, and warm must be false. Statuses as
 * lab_roof_op's; UNSUPPORTED also, with the plan's words, for a shape that the kernel
 * refuses. */
strata_status lab_cuda_roof_op(st_cuda *cuda, const lab_ceilings *ceilings, const stk_cuda_kernel *kernel,
                               const lab_roof_request *request, int32_t n_rounds,
                               lab_roof_row rows[LAB_ROOF_ROWS_MAX], int32_t *n_rows, strata_error *err);

#endif
