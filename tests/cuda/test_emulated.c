/* Every GPU kernel of the exact class, run thread by thread on the CPU over the
 * cases of its op: the oracle's bytes, whatever order the threads run in. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "kreg/st_kreg.h"
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
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

static void run_case(const emulated *e, const stk_op *op, int32_t index, cuda_order order) {
  const void *shape = (const char *)op->cases + (size_t)index * op->args_bytes;
  const lab_fill fill = {.seed = 1 + (uint64_t)order, .poison = 0x5a, .guard = 0x5e, .unread = 0xff};
  stk_cuda_launch launch;
  strata_error err;
  lab_case want, got;
  if (e->kernel->plan(shape, &launch)) return;
  if (lab_case_init(&want, op, shape, fill, &err) != STRATA_OK ||
      lab_case_init(&got, op, shape, fill, &err) != STRATA_OK)
    fail_msg("%s", err.message);
  lab_case_run(&want, op->oracle, 1);
  const char *wrong = cuda_emulate(e->entry, got.args, &launch, order);
  if (wrong) fail_msg("case %d: %s", index, wrong);
  lab_difference d = lab_case_compare(&want, &got);
  if (d.tensor) {
    char text[256];
    lab_difference_describe(&d, 0, text, sizeof text);
    fail_msg("case %d: %s", index, text);
  }
  lab_case_release(&want);
  lab_case_release(&got);
}

static void test_kernel(void **state) {
  const emulated *e = *state;
  const stk_op *op = st_kreg_op((st_op)st_kreg_op_by_name(e->kernel->op));
  assert_int_equal(e->kernel->contract, op->contract);
  assert_int_equal(e->kernel->args_bytes, op->args_bytes);
  for (int32_t c = 0; c < op->n_cases; ++c)
    for (int order = CUDA_ASCENDING; order <= CUDA_SHUFFLED; ++order) run_case(e, op, c, (cuda_order)order);
}

int main(void) {
  struct CMUnitTest tests[N_KERNELS];
  for (int i = 0; i < N_KERNELS; ++i)
    tests[i] = (struct CMUnitTest){kernels[i].kernel->entry, test_kernel, NULL, NULL, (void *)(uintptr_t)&kernels[i]};
  return cmocka_run_group_tests_name("emulated", tests, NULL, NULL);
}
