/* Buffers of one kernel run, as the laboratory hands them out: inputs filled from
 * a seed, outputs poisoned, guard bytes and a closed page on both sides of each. */
#ifndef LAB_CASE_H
#define LAB_CASE_H

#include <strata/kernel.h>

#include "core/st_error.h"
#include "os/st_guarded.h"

enum { LAB_GUARD_BYTES = 256 };

/* What buffers hold before a run. The same seed gives the same inputs. */
typedef struct lab_fill {
  uint64_t seed;
  uint8_t poison; /* each byte of an output */
  uint8_t guard;  /* each byte around a tensor */
  uint8_t unread; /* each byte of a tensor that must not be read (STK_FILL_UNREAD) */
  bool tiny;      /* f32, f16 and bf16 tensors hold stretches of subnormal numbers */
} lab_fill;

/* The args of one run and its buffers. */
typedef struct lab_case {
  const stk_op *op;
  void *args;
  lab_fill fill;
  stk_tensor tensors[STK_TENSORS_MAX];
  st_guarded buffers[STK_TENSORS_MAX];
  int32_t n;
} lab_case;

/* shape: args whose sizes are set. UNSUPPORTED, with the op's own words, for a shape
 * that its contract refuses. */
strata_status lab_case_init(lab_case *c, const stk_op *op, const void *shape, lab_fill fill,
                            strata_error *err);
void lab_case_release(lab_case *c);

/* Fills the same buffers anew, as if the case had been made with this fill. */
void lab_case_refill(lab_case *c, const void *shape, lab_fill fill);

/* Runs all parts, the last one first. */
void lab_case_run(lab_case *c, const stk_kernel *kernel, int32_t n_parts);

/* Whatever can run a case: a kernel of the CPU's, part by part on this thread, or one
 * on a device, which copies the buffers there and back and knows no parts. */
typedef struct lab_runner {
  strata_status (*run)(const void *self, lab_case *c, int32_t n_parts, strata_error *err);
  const void *self;
} lab_runner;

/* Cannot fail. */
lab_runner lab_runner_of(const stk_kernel *kernel);

/* As many parts as a run on n_threads is cut into: several a thread where there are
 * tokens enough. */
int32_t lab_case_parts(const lab_case *c, int32_t n_threads);

/* Whoever writes into a closed input dies of it. */
void lab_case_close_inputs(lab_case *c);
void lab_case_open_inputs(lab_case *c);

/* What can be wrong with the bytes of one tensor, the worst last. */
typedef enum lab_byte_word {
  LAB_EQUAL,
  LAB_WRONG_BYTES,
  LAB_BEYOND_BOUND, /* of a fast kernel */
  LAB_NOT_A_NUMBER, /* NaN where the other has numbers */
  LAB_UNWRITTEN,    /* still poison where the other has written */
  LAB_OUTSIDE,      /* bytes around the tensor were written */
} lab_byte_word;

/* Where two runs differ. */
typedef struct lab_difference {
  const char *tensor; /* NULL: they do not */
  lab_byte_word word;
  size_t first, count, n; /* elements; of LAB_OUTSIDE bytes, first from the tensor's start or its end */
  bool before;            /* of LAB_OUTSIDE: it lies before the tensor */
  double max_abs;         /* of f32 and f16 tensors */
  double rel_l2;          /* of finite elements; likewise */
} lab_difference;

/* Tensor i of got beside want's: byte for byte, or, with a bound > 0 and for f32 and
 * f16 outputs, by relative L2 over the finite elements, where an element that is finite
 * in one only is a difference: which of NaN and infinities an overflow ends in depends
 * on the order of sums. The word is LAB_EQUAL if nothing is wrong. Tables of pointers (U8)
 * are equal. */
lab_difference lab_case_compare_tensor(const lab_case *want, const lab_case *got, int32_t i,
                                       double bound);

/* The first tensor that differs, byte for byte. */
lab_difference lab_case_compare(const lab_case *want, const lab_case *got);

/* The comparison for a kernel of class fast: after the op's settle, which changes
 * both, each f32 or f16 output of got within the op's bound; all else as in
 * lab_case_compare. */
lab_difference lab_case_compare_fast(lab_case *want, lab_case *got);

/* One line: "o differs, first at 3, 1 of 12, at most 0.5". */
void lab_difference_describe(const lab_difference *d, double bound, char *text, size_t n_bytes);

/* Element i of f32 or f16, and any element set to the value of its type nearest to one,
 * which is not a NaN (I32, I64, U8: towards 0). */
double lab_number_get(const void *numbers, stk_dtype dtype, size_t i);
void lab_number_put(void *numbers, stk_dtype dtype, size_t i, double value);

/* splitmix64. */
uint64_t lab_random(uint64_t *state);

#endif
