/* Buffers of one kernel run, as the laboratory hands them out: inputs filled from
 * a seed, outputs poisoned, guard bytes on both sides of each. */
#ifndef LAB_CASE_H
#define LAB_CASE_H

#include <strata/kernel.h>

#include "core/st_error.h"

enum { LAB_GUARD_BYTES = 256 };

typedef struct lab_buffer {
  uint8_t *memory; /* [guard][n_bytes][guard] */
  uint8_t *data;
  size_t n_bytes;
} lab_buffer;

/* The args of one run and its buffers. */
typedef struct lab_case {
  const stk_op *op;
  void *args;
  stk_tensor tensors[STK_TENSORS_MAX];
  lab_buffer buffers[STK_TENSORS_MAX];
  int32_t n;
} lab_case;

/* shape: args whose sizes are set. The same seed gives the same inputs; poison is
 * the byte that fills outputs. UNSUPPORTED, with the op's own words, for a shape
 * that its contract refuses. */
strata_status lab_case_init(lab_case *c, const stk_op *op, const void *shape, uint64_t seed,
                            int poison, strata_error *err);
void lab_case_release(lab_case *c);

/* Runs all parts, the last one first. */
void lab_case_run(lab_case *c, const stk_kernel *kernel, int32_t n_parts);

/* Where two runs differ. */
typedef struct lab_difference {
  const char *tensor; /* NULL: they do not */
  bool guard;         /* written outside the tensor */
  size_t first, count, n;
  double max_abs;     /* of f32 tensors */
  double rel_l2;      /* of lab_case_compare_fast */
} lab_difference;

/* Compares every tensor of got with want, byte for byte, and the guards of got.
 * Tables of pointers (U8) are not compared. */
lab_difference lab_case_compare(const lab_case *want, const lab_case *got);

/* The comparison for a kernel of class fast: after the op's settle, which changes
 * both, each f32 or f16 output of got is within the op's bound of want's, by relative
 * L2 over its finite elements. An element that is finite in one only is a difference,
 * counted in count; which of NaN and infinities an overflow ends in depends on the
 * order of sums. All other tensors, and the guards, as in lab_case_compare. */
lab_difference lab_case_compare_fast(lab_case *want, lab_case *got);

/* splitmix64. */
uint64_t lab_random(uint64_t *state);

#endif
