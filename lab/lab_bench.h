/* Timing two kernels of an op, or two chains of them, side by side.
 *
 * A batch is the rule's number of calls in a row, on sets of buffers that together are
 * larger than the last-level cache and are taken in turn, as are an arm's copies of its
 * kernel, from batch to batch too. All arms work on the same sets; before a batch, untimed, whatever a kernel
 * updates is put back, and outputs are poisoned. After a batch the sets must hold what
 * lab_expected.h says, and every thread its floating-point mode.
 *
 * In a chain each stage reads what the stages before it wrote, tensors being matched
 * by name; base ran them all once, and no arm changes that: parity was proved before. */
#ifndef LAB_BENCH_H
#define LAB_BENCH_H

#include "device/cpu/st_pool.h"
#include "lab/lab_case.h"
#include "lab/lab_copies.h"
#include "lab/lab_expected.h"
#include "lab/lab_rounds.h"
#include "lab/lab_shape.h"
#include "lab/lab_trace.h"

/* What outputs hold before a batch. */
enum { LAB_POISON = 0xa5 };

/* One stage: args of the wanted size, or a captured call, and the kernels of the arms. */
typedef struct lab_bench_stage {
  const stk_op *op;
  const lab_args *args;   /* inputs from the seed */
  const lab_trace *trace; /* inputs of this call instead, in all sets; NULL: none */
  lab_copies kernels[LAB_ARMS]; /* no cand: a null run */
  double bound;                 /* of a fast candidate, else 0 */
} lab_bench_stage;

typedef struct lab_bench lab_bench;

/* The output of a stage that a later stage's input takes: the tensor of that name, type
 * and size; -1 if there is none. */
int32_t lab_bench_output(const lab_case *c, const stk_tensor *input);

/* Borrows stages' ops and kernels and the pool. cache_bytes: of the last level; calls: of
 * a batch, as the rule has it. */
strata_status lab_bench_new(const lab_bench_stage *stages, int32_t n_stages, st_pool *pool, size_t cache_bytes,
                            int32_t calls, uint64_t seed, lab_bench **out, strata_error *err);
void lab_bench_free(lab_bench **bench);

int32_t lab_bench_sets(const lab_bench *bench);
int32_t lab_bench_calls(const lab_bench *bench);  /* of a batch: every set has one at least */
size_t lab_bench_bytes(const lab_bench *bench); /* of all sets */
/* Operations and bytes of a batch of one stage (-1: of all). */
stk_work lab_bench_work(const lab_bench *bench, int32_t stage);

/* Rounds of one stage (-1: all stages one after the other) until the rule is content
 * or seconds are over. NOMEM. */
strata_status lab_bench_measure(lab_bench *bench, int32_t stage, const lab_rule *rule, double seconds,
                                lab_samples *samples, strata_error *err);

#endif
