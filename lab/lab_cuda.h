/* The laboratory on a GPU: cases in the device's memory, the parity suite, times. */
#ifndef LAB_CUDA_H
#define LAB_CUDA_H

#include "device/cuda/st_cuda.h"
#include "lab/lab_case.h"
#include "lab/lab_check.h"
#include "lab/lab_shape.h"

/* A case in the device's memory: every tensor with its guard bytes on both sides. A
 * table of pointers (U8) leads into the device's copy of what the host's leads into. */
typedef struct lab_cuda_case {
  lab_args args; /* the pointers are the device's */
  void *memory[STK_TENSORS_MAX];
  int32_t n;
} lab_cuda_case;

/* Takes what host's buffers hold. */
strata_status lab_cuda_case_init(st_cuda *cuda, const lab_case *host, lab_cuda_case *out, strata_error *err);
void lab_cuda_case_release(st_cuda *cuda, lab_cuda_case *c);
/* Copies host's buffers and guards to the device, or the device's to host; of a table
 * only the guards come back. */
strata_status lab_cuda_case_upload(st_cuda *cuda, const lab_case *host, lab_cuda_case *c, strata_error *err);
strata_status lab_cuda_case_download(st_cuda *cuda, const lab_cuda_case *c, lab_case *host, strata_error *err);

/* The table of pointers that is host's tensor i, as the device needs it, into out. The
 * tensors lie in memory, each behind LAB_GUARD_BYTES; what leads into none of them
 * becomes NULL. */
void lab_cuda_table(const lab_case *host, int32_t i, void *const memory[STK_TENSORS_MAX], void **out);

/* The parity suite of the GPU kernels of the ops whose names begin with what (NULL:
 * all): every case against the oracle, n_repeats times the same bytes, two poisons,
 * guards; and the released shape against the best CPU kernel. Counts as lab_check
 * does. */
strata_status lab_cuda_check(st_cuda *cuda, const char *what, int32_t n_repeats, lab_report *report, void *user,
                             int32_t *n_passed, int32_t *n_failed, strata_error *err);

/* Seconds of a launch. */
typedef struct lab_cuda_times {
  double best, median;
} lab_cuda_times;

/* Over n_rounds graphs, each of which runs every one of the cases once, in turn. */
strata_status lab_cuda_time(st_cuda *cuda, const st_cuda_module *module, const stk_cuda_launch *launch,
                            const lab_cuda_case *cases, int32_t n_cases, int32_t n_rounds, lab_cuda_times *out,
                            strata_error *err);

#endif
