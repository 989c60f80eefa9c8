/* Every GPU kernel is compiled, for the chips that the toolkit knows; without the
 * toolkit the test says so. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "device/cuda/st_cuda.h"
#include "device/cuda/st_cuda_api.h"
#include "device/cuda/st_cuda_kernels.h"
#include "gdn_decode/gdn_decode.h"
#include "gdn_step/gdn_step_batch.h"
#include "kreg/st_kreg.h"
#include "kreg/st_source.h"

static const int chips[][2] = {{8, 0}, {9, 0}, {10, 0}};
enum { N_CHIPS = sizeof chips / sizeof *chips };

static st_cuda_nvrtc nvrtc;
static bool is_open;
static strata_error why;

static int open_nvrtc(void **state) {
  (void)state;
  is_open = st_cuda_nvrtc_open(&nvrtc, &why) == STRATA_OK;
  return 0;
}

static int close_nvrtc(void **state) {
  (void)state;
  if (is_open) st_cuda_nvrtc_close(&nvrtc);
  return 0;
}

static void skip_without(void) {
  if (is_open) return;
  print_message("%s\n", why.message);
  skip();
}

static void compile(const stk_cuda_kernel *kernel, const char *options, int major, int minor) {
  st_source text;
  st_cuda_cubin cubin;
  strata_error err;
  char arch[16];
  assert_true(st_source_find(kernel->source, &text));
  const st_cuda_source source = {kernel->source, text.text, kernel->entry, options};
  st_cuda_arch_name(major, minor, arch, sizeof arch);
  if (st_cuda_compile(&nvrtc, &source, arch, &cubin, &err) != STRATA_OK) fail_msg("%s: %s", arch, err.message);
  assert_memory_equal(cubin.bytes, "\177ELF", 4);
  st_cuda_cubin_release(&cubin);
}

/* With the options of the released shape, which are those that matter. */
static void test_compiles(void **state) {
  const stk_cuda_kernel *kernel = *state;
  const stk_op *op = st_kreg_op((st_op)st_kreg_op_by_name(kernel->op));
  stk_cuda_launch launch;
  skip_without();
  const char *refused = kernel->plan(op->released, &launch);
  if (refused) fail_msg("%s", refused);
  for (int i = 0; i < N_CHIPS; ++i)
    if (st_cuda_nvrtc_knows(&nvrtc, chips[i][0], chips[i][1])) compile(kernel, launch.options, chips[i][0], chips[i][1]);
    else print_message("NVRTC does not know sm_%d%d\n", chips[i][0], chips[i][1]);
}

static void compile_everywhere(const stk_cuda_kernel *kernel, const char *options, int least_major) {
  skip_without();
  for (int i = 0; i < N_CHIPS; ++i)
    if (chips[i][0] >= least_major && st_cuda_nvrtc_knows(&nvrtc, chips[i][0], chips[i][1]))
      compile(kernel, options, chips[i][0], chips[i][1]);
}

/* Kernels outside the list of ops. */
static void test_batch(void **state) {
  (void)state;
  compile_everywhere(&stk_cuda_gdn_step_batch_cuda, "-DGDN_DK=128", 8);
}

/* Clusters came with compute capability 9.0. */
static void test_decode(void **state) {
  (void)state;
  compile_everywhere(&stk_cuda_gdn_decode_cuda, "-DGDN_DK=128 -DGDN_DV=128 -DGDN_TAPS=4 -DGDN_RATIO=3", 9);
}

/* A source that does not compile: the message names file, line and what is wrong. */
static void test_error(void **state) {
  const st_cuda_source source = {"idea.cu", "extern \"C\" __global__ void f() {\n  x = 1;\n}\n", "f", ""};
  st_cuda_cubin cubin;
  strata_error err;
  (void)state;
  skip_without();
  assert_int_equal(st_cuda_compile(&nvrtc, &source, "sm_80", &cubin, &err), STRATA_FORMAT);
  assert_non_null(strstr(err.message, "idea.cu(2)"));
  assert_non_null(strstr(err.message, "\"x\" is undefined"));
  assert_null(cubin.bytes);
}

/* What a module's key depends on. */
static void test_key(void **state) {
  const st_cuda_source one = {"a.cu", "text", "f", ""}, other = {"a.cu", "text2", "f", ""}, option = {"a.cu", "text", "f", "-DX"};
  char key[5][65];
  strata_error err;
  (void)state;
  skip_without();
  assert_int_equal(st_cuda_compile_key(&nvrtc, &one, "sm_80", key[0], &err), STRATA_OK);
  assert_int_equal(st_cuda_compile_key(&nvrtc, &one, "sm_80", key[1], &err), STRATA_OK);
  assert_int_equal(st_cuda_compile_key(&nvrtc, &other, "sm_80", key[2], &err), STRATA_OK);
  assert_int_equal(st_cuda_compile_key(&nvrtc, &option, "sm_80", key[3], &err), STRATA_OK);
  assert_int_equal(st_cuda_compile_key(&nvrtc, &one, "sm_90a", key[4], &err), STRATA_OK);
  assert_string_equal(key[0], key[1]);
  for (int i = 2; i < 5; ++i) assert_string_not_equal(key[0], key[i]);
}

int main(void) {
  enum { KERNELS_MAX = 128 };
  struct CMUnitTest tests[KERNELS_MAX + 4] = {cmocka_unit_test(test_error), cmocka_unit_test(test_key),
                                              cmocka_unit_test(test_batch), cmocka_unit_test(test_decode)};
  const stk_cuda_kernel *kernel;
  size_t n = 4;
  for (int32_t i = 0; (kernel = st_cuda_kernel_at(i)) && i < KERNELS_MAX; ++i)
    tests[n++] = (struct CMUnitTest){kernel->entry, test_compiles, NULL, NULL, (void *)(uintptr_t)kernel};
  return _cmocka_run_group_tests("nvrtc", tests, n, open_nvrtc, close_nvrtc);
}
