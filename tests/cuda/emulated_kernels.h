/* The GPU kernels of kernels/cuda.inc, linked in as C, and one of them beside its oracle. */
#ifndef EMULATED_KERNELS_H
#define EMULATED_KERNELS_H

#include <stdio.h>

#include "lab/lab_case.h"
#include "tests/cuda/cuda_emulator.h"

typedef struct emulated {
  const stk_cuda_kernel *kernel;
  cuda_entry *entry;
} emulated;

#define STK_CUDA(op, entry) extern const stk_cuda_kernel stk_cuda_##entry; cuda_entry entry;
#include "cuda.inc"
#undef STK_CUDA

static const emulated kernels[] = {
#define STK_CUDA(op, entry) {&stk_cuda_##entry, entry},
#include "cuda.inc"
#undef STK_CUDA
};
/* Chips for plans: the H200's, and one of two processors, where runs are long. */
static const stk_cuda_chip big_chip = {132, 227 << 10}, small_chip = {2, 227 << 10};

enum { N_KERNELS = sizeof kernels / sizeof *kernels, EMULATED_TEXT = 512 };

/* What went wrong, in text; empty if the kernel left the oracle's bytes. */
static inline void emulated_compare(const emulated *e, const stk_op *op, const void *shape, const stk_cuda_launch *launch,
                                    cuda_order order, uint64_t seed, char text[EMULATED_TEXT]) {
  const lab_fill fill = {.seed = seed, .poison = 0x5a, .guard = 0x5e, .unread = 0xff};
  lab_case want = {0}, got = {0};
  strata_error err;
  text[0] = 0;
  if (lab_case_init(&want, op, shape, fill, &err) != STRATA_OK ||
      lab_case_init(&got, op, shape, fill, &err) != STRATA_OK) {
    snprintf(text, EMULATED_TEXT, "%s", err.message);
  } else {
    lab_case_run(&want, op->oracle, 1);
    const char *wrong = cuda_emulate(e->entry, got.args, launch, order);
    const lab_difference d = lab_case_compare(&want, &got);
    if (wrong) snprintf(text, EMULATED_TEXT, "%s", wrong);
    else if (d.tensor) lab_difference_describe(&d, 0, text, EMULATED_TEXT);
  }
  lab_case_release(&want);
  lab_case_release(&got);
}

#endif
