/* A captured call (src/runtime/st_trace.h), ready to be repeated: its op is known, its
 * args fit the op's contract, and its tensors are those that the op says. */
#ifndef LAB_TRACE_H
#define LAB_TRACE_H

#include "lab/lab_case.h"
#include "os/st_file.h"
#include "runtime/st_trace.h"

typedef struct lab_trace {
  const stk_op *op;
  st_trace call;
  void *shape; /* its args, with NULL pointers */
  st_mapping file;
} lab_trace;

/* FORMAT for a file that is not a whole, unchanged trace; UNSUPPORTED for one of an op, a
 * contract or an args struct that this program does not have, or of a shape that the
 * contract refuses. */
strata_status lab_trace_open(const char *path, lab_trace *out, strata_error *err);
/* The same for bytes in memory (aligned to 8), which are borrowed. */
strata_status lab_trace_read(const char *name, const uint8_t *data, size_t n_bytes, lab_trace *out,
                             strata_error *err);
void lab_trace_close(lab_trace *trace);

/* Buffers as lab_case_init makes them, the inputs being those of the call; tensors that
 * the call did not have are empty, their pointers NULL. */
strata_status lab_trace_case(const lab_trace *trace, lab_fill fill, lab_case *out, strata_error *err);

/* Two cases of the trace after runs of one kernel, over different poisons: lets the
 * outputs of c be what the call left, where the kernel wrote. */
void lab_trace_put_outputs(const lab_trace *trace, lab_case *c, const lab_case *other);

#endif
