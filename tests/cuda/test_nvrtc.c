/* Every GPU kernel is compiled, for the chips that the toolkit knows; without the
 * toolkit the test says so. NVRTC_CHIP=90 in the environment: for this one only, and one
 * type of rows or cache; the compiler sees the whole source with each. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#include "common/k_cache.h"
#include "device/cuda/st_cuda.h"
#include "device/cuda/st_cuda_api.h"
#include "device/cuda/st_cuda_kernels.h"
#include "gdn_decode/gdn_decode.h"
#include "gdn_step/gdn_step_batch.h"
#include "kreg/st_kreg.h"
#include "kreg/st_source.h"

static const int chips[][2] = {{8, 0}, {9, 0}, {10, 0}}; /* as {major, minor} */
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

static const char *only_chip(void) { return getenv("NVRTC_CHIP"); }

static bool is_wanted(const int chip[2]) {
  return !only_chip() || atoi(only_chip()) == 10 * chip[0] + chip[1];
}

static void skip_without(void) {
  if (is_open) return;
  print_message("%s\n", why.message);
  skip();
}

static void compile(const stk_cuda_kernel *kernel, const char *options, int major, int minor) {
  st_cuda_source source;
  st_cuda_cubin cubin;
  strata_error err;
  char arch[16];
  assert_int_equal(st_cuda_source_of(kernel, NULL, options, &source, &err), STRATA_OK);
  st_cuda_arch_name(major, minor, arch, sizeof arch);
  if (st_cuda_compile(&nvrtc, &source, arch, &cubin, &err) != STRATA_OK) fail_msg("%s: %s", arch, err.message);
  assert_memory_equal(cubin.bytes, "\177ELF", 4);
  st_cuda_cubin_release(&cubin);
}

/* Generations of chips. */
enum { AMPERE = 8, HOPPER = 9, BLACKWELL = 10 };

/* With the options that its plan gives for args, on chips of these generations. */
static void compile_for(const stk_cuda_kernel *kernel, const void *args, int first, int last) {
  stk_cuda_launch launch;
  const char *refused = kernel->plan(args, &(stk_cuda_chip){132, 227 << 10}, &launch);
  if (refused) fail_msg("%s", refused);
  for (int i = 0; i < N_CHIPS; ++i) {
    if (chips[i][0] < first || chips[i][0] > last || !is_wanted(chips[i])) continue;
    if (st_cuda_nvrtc_knows(&nvrtc, chips[i][0], chips[i][1])) compile(kernel, launch.options, chips[i][0], chips[i][1]);
    else print_message("NVRTC does not know sm_%d%d\n", chips[i][0], chips[i][1]);
  }
}

/* The released shape for all chips, and with each type of rows or cache that the op takes
 * for one of them. */
static void test_compiles(void **state) {
  const stk_cuda_kernel *kernel = *state;
  const stk_op *op = st_kreg_op((st_op)st_kreg_op_by_name(kernel->op));
  union {
    max_align_t align;
    unsigned char bytes[1024];
  } args;
  stk_param params[STK_PARAMS_MAX];
  int32_t n_types = 1, *type = NULL;
  skip_without();
  assert_true(op->args_bytes <= sizeof args);
  memcpy(&args, op->released, op->args_bytes);
  for (int32_t i = op->params(&args, params) - 1; i >= 0; --i) {
    if (strcmp(params[i].name, "rows") != 0 && strcmp(params[i].name, "kv") != 0) continue;
    type = params[i].slot;
    n_types = strcmp(params[i].name, "kv") == 0 ? STK_KV_KINDS : 2;
  }
  for (int32_t t = only_chip() ? n_types - 1 : 0; t < n_types; ++t) {
    if (type) *type = t;
    if (op->derive) op->derive(&args);
    const bool everywhere = t == 0 || only_chip();
    compile_for(kernel, &args, everywhere ? AMPERE : HOPPER, everywhere ? BLACKWELL : HOPPER);
  }
}

/* Kernels outside the list of ops; clusters came with compute capability 9.0. */
static void test_batch(void **state) {
  (void)state;
  skip_without();
  for (int32_t rows = STK_F32; rows <= STK_F16; ++rows) {
    stk_gdn_step_args step = *(const stk_gdn_step_args *)stk_gdn_step_op.released;
    step.rows = rows;
    compile_for(&stk_cuda_gdn_step_batch_cuda, &(stk_gdn_step_batch_args){&step, 64}, AMPERE, BLACKWELL);
  }
}

static void test_decode(void **state) {
  (void)state;
  skip_without();
  for (int32_t rows = STK_F32; rows <= STK_F16; ++rows) {
    stk_gdn_decode_args args = {.pre = *(const stk_gdn_pre_args *)stk_gdn_pre_op.released,
                                .step = *(const stk_gdn_step_args *)stk_gdn_step_op.released,
                                .post = *(const stk_gdn_post_args *)stk_gdn_post_op.released};
    args.pre.n_tokens = args.post.n_tokens = 1;
    args.pre.rows = args.step.rows = args.post.rows = rows;
    compile_for(&stk_cuda_gdn_decode_cuda, &args, HOPPER, BLACKWELL);
  }
}

/* A source that does not compile: the message names file, line and what is wrong. */
static void test_error(void **state) {
  const st_cuda_source source = {"idea.cu", "extern \"C\" __global__ void f() {\n  x = 1;\n}\n", "f", "", NULL};
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
  const st_cuda_source one = {"a.cu", "text", "f", "", NULL}, other = {"a.cu", "text2", "f", "", NULL},
                       option = {"a.cu", "text", "f", "-DX", NULL};
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

/* ---- a folder's sources in place of the embedded ones ------------------------------- */

static char folder[64];

static void write_file(const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

static void remove_file(const char *name) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(unlink(path), 0);
}

/* Compiles a kernel with the folder's sources; gives what the compiler said. */
static strata_status compile_replaced(const stk_cuda_kernel *kernel, char key[65], strata_error *err) {
  st_cuda_sources *sources;
  st_cuda_source source;
  st_cuda_cubin cubin;
  assert_int_equal(st_cuda_sources_open(folder, &sources, err), STRATA_OK);
  assert_int_equal(st_cuda_source_of(kernel, sources, "-DGDN_DK=128 -DGDN_ROWS=0", &source, err), STRATA_OK);
  assert_int_equal(st_cuda_compile_key(&nvrtc, &source, "sm_80", key, err), STRATA_OK);
  strata_status status = st_cuda_compile(&nvrtc, &source, "sm_80", &cubin, err);
  st_cuda_cubin_release(&cubin);
  st_cuda_sources_close(&sources);
  return status;
}

static void test_replaced(void **state) {
  (void)state;
  const stk_cuda_kernel *kernel = st_cuda_kernel_of("gdn_scan", 0);
  char key[4][65], text[65536], wanted[160];
  st_source embedded;
  strata_error err = {0};
  skip_without();
  snprintf(folder, sizeof folder, "/tmp/test_nvrtc.XXXXXX");
  assert_non_null(mkdtemp(folder));
  assert_true(st_source_find(kernel->source, &embedded));

  /* The message names the file that was given, and the line. */
  snprintf(text, sizeof text, "%s\nint x = y;\n", embedded.text);
  write_file("gdn_scan_cuda.cu", text);
  assert_int_equal(compile_replaced(kernel, key[0], &err), STRATA_FORMAT);
  snprintf(wanted, sizeof wanted, "%s/gdn_scan_cuda.cu(", folder);
  assert_non_null(strstr(err.message, wanted));
  assert_non_null(strstr(err.message, "\"y\" is undefined"));
  write_file("gdn_scan_cuda.cu", embedded.text);
  assert_int_equal(compile_replaced(kernel, key[1], &err), STRATA_OK);

  /* A header takes the place of the one that kernels include. */
  assert_true(st_source_find("common/k_cuda.h", &embedded));
  snprintf(text, sizeof text, "%s\n", embedded.text);
  write_file("k_cuda.h", text);
  assert_int_equal(compile_replaced(kernel, key[2], &err), STRATA_OK);
  write_file("k_cuda.h", "#error \"of the folder\"\n");
  assert_int_equal(compile_replaced(kernel, key[3], &err), STRATA_FORMAT);
  assert_non_null(strstr(err.message, "common/k_cuda.h(1)"));
  for (int i = 0; i < 3; ++i) assert_string_not_equal(key[i], key[i + 1]);
  remove_file("gdn_scan_cuda.cu");
  remove_file("k_cuda.h");
  assert_int_equal(rmdir(folder), 0);
}

int main(void) {
  enum { KERNELS_MAX = 128 };
  struct CMUnitTest tests[KERNELS_MAX + 5] = {cmocka_unit_test(test_error), cmocka_unit_test(test_key),
                                              cmocka_unit_test(test_batch), cmocka_unit_test(test_decode),
                                              cmocka_unit_test(test_replaced)};
  const stk_cuda_kernel *kernel;
  size_t n = 5;
  for (int32_t i = 0; (kernel = st_cuda_kernel_at(i)) && i < KERNELS_MAX; ++i)
    tests[n++] = (struct CMUnitTest){kernel->entry, test_compiles, NULL, NULL, (void *)(uintptr_t)kernel};
  return _cmocka_run_group_tests("nvrtc", tests, n, open_nvrtc, close_nvrtc);
}
