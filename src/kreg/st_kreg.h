/* The registry of built-in kernels, and the choice of one variant an op. */
#ifndef ST_KREG_H
#define ST_KREG_H

#include <strata/kernel.h>

#include "core/st_error.h"
#include "os/st_cpu.h"

typedef enum st_op {
#define STK_ROW(op, levels) ST_OP_##op,
#define STK_TAG(op, level, tag)
#include "ops.inc"
#undef STK_TAG
#undef STK_ROW
  ST_OPS
} st_op;

const stk_op *st_kreg_op(st_op op);
/* -1 if there is no such op. */
int st_kreg_op_by_name(const char *name);

/* Variants of an op: one a CPU level, the plainest first, then the tagged ones;
 * NULL past the end. The oracle is not among them. */
const stk_kernel *st_kreg_variant(st_op op, int32_t index);

/* A chosen kernel for each op: a value that is passed, never a global. */
typedef struct st_kernel_set {
  const stk_kernel *kernel[ST_OPS];
} st_kernel_set;

/* For each op, its best untagged variant that needs at most this CPU level. */
void st_kernel_set_choose(st_kernel_set *set, st_cpu_level level);

#endif
