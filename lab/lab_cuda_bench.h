/* lab_bench on a GPU: the same sets, batches and rounds; a batch is a graph of
 * its calls, timed by events. */
#ifndef LAB_CUDA_BENCH_H
#define LAB_CUDA_BENCH_H

#include "lab/lab_bench.h"
#include "lab/lab_ceilings.h"
#include "lab/lab_cuda_side.h"

/* One stage; cand without a plan: a null run. */
typedef struct lab_cuda_stage {
  const stk_op *op;
  const lab_args *args;
  lab_cuda_kernel kernel[LAB_ARMS];
  double bound;
} lab_cuda_stage;

typedef struct lab_cuda_bench lab_cuda_bench;

/* Borrows the stages and the device. calls: of a batch, as the rule has it. */
strata_status lab_cuda_bench_new(st_cuda *cuda, const lab_cuda_stage *stages, int32_t n_stages, int32_t calls,
                                 uint64_t seed, lab_cuda_bench **out, strata_error *err);
void lab_cuda_bench_free(lab_cuda_bench **bench);
int32_t lab_cuda_bench_sets(const lab_cuda_bench *bench);
int32_t lab_cuda_bench_calls(const lab_cuda_bench *bench);
size_t lab_cuda_bench_bytes(const lab_cuda_bench *bench);
stk_work lab_cuda_bench_work(const lab_cuda_bench *bench, int32_t stage);
strata_status lab_cuda_bench_measure(lab_cuda_bench *bench, int32_t stage, const lab_rule *rule, double seconds,
                                     lab_samples *samples, strata_error *err);

/* The first GPU's ceilings, measured now in a child (so that the caller stays free of
 * the driver): f32 multiply-adds, and bytes of a copy within its memory, both directions
 * counted, which stands for all traffic. machine has the GPU's name and cache. */
strata_status lab_cuda_ceilings(lab_ceilings *out, strata_error *err);

#endif
