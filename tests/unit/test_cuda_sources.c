/* A folder's sources of GPU kernels: what is taken, and a clear no to all else. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/st_mem.h"
#include "device/cuda/st_cuda.h"
#include "device/cuda/st_cuda_kernels.h"

static char folder[64];

static const char *in_folder(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void write_bytes(const char *name, const char *bytes, size_t n_bytes) {
  FILE *f = fopen(in_folder(name), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
  assert_int_equal(fclose(f), 0);
}
static void write_text(const char *name, const char *text) { write_bytes(name, text, strlen(text)); }

static int set_up(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/test_sources.XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  return rmdir(folder);
}

static void expect_refused(const char *directory, strata_status status, const char *words) {
  st_cuda_sources *sources = (st_cuda_sources *)(uintptr_t)1;
  strata_error err = {0};
  assert_int_equal(st_cuda_sources_open(directory, &sources, &err), status);
  assert_null(sources);
  if (!strstr(err.message, words)) fail_msg("%s\n  expected in it: %s", err.message, words);
}

/* The only thing in the folder. */
static void expect_file_refused(const char *name, strata_status status, const char *words) {
  expect_refused(folder, status, words);
  assert_int_equal(remove(in_folder(name)), 0);
}

static void test_refused(void **state) {
  (void)state;
  expect_refused("/no/such/folder", STRATA_IO, "/no/such/folder: No such file or directory: a folder that can be read expected");
  expect_refused(folder, STRATA_ARG, "an empty folder: sources of GPU kernels, such as gdn_scan_cuda.cu, expected");
  static const char *const names[] = {"idea.cu", "gdn_scan_cuda.cu~", "gdn_scan.c", "scan_cuda.cu", ".hidden",
                                      "roof_fma_cuda.cu", "_cuda.cu"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    char words[64];
    snprintf(words, sizeof words, "/%s: the name of a GPU kernel's source, such as", names[i]);
    write_text(names[i], "x");
    expect_file_refused(names[i], STRATA_ARG, words);
  }
  assert_int_equal(mkdir(in_folder("k_cuda.h"), 0700), 0);
  expect_file_refused("k_cuda.h", STRATA_IO, "k_cuda.h");
  write_bytes("k_cuda.h", "a\0b", 3);
  expect_file_refused("k_cuda.h", STRATA_FORMAT, "k_cuda.h: a NUL byte: text expected");
}

static void test_taken(void **state) {
  (void)state;
  st_cuda_sources *sources;
  st_cuda_source source;
  write_text("k_cuda.h", "header");
  write_text("gdn_scan_cuda.cu", "kernel");
  assert_int_equal(st_cuda_sources_open(folder, &sources, NULL), STRATA_OK);
  assert_string_equal(st_cuda_sources_at(sources, 0)->path, "common/k_cuda.h");
  assert_string_equal(st_cuda_sources_at(sources, 0)->text, "header");
  assert_string_equal(st_cuda_sources_at(sources, 1)->path, "gdn_scan/gdn_scan_cuda.cu");
  assert_string_equal(st_cuda_sources_at(sources, 1)->file, in_folder("gdn_scan_cuda.cu"));
  assert_null(st_cuda_sources_at(sources, 2));
  assert_null(st_cuda_sources_find(sources, "gdn_step/gdn_step_cuda.cu"));

  /* A kernel whose source is there, one whose is not, and one without a folder. */
  const stk_cuda_kernel *scan = st_cuda_kernel_of("gdn_scan", 0), *step = st_cuda_kernel_of("gdn_step", 0);
  assert_int_equal(st_cuda_source_of(scan, sources, "-DX", &source, NULL), STRATA_OK);
  assert_string_equal(source.name, in_folder("gdn_scan_cuda.cu"));
  assert_string_equal(source.text, "kernel");
  assert_string_equal(source.entry, "gdn_scan_cuda");
  assert_string_equal(source.options, "-DX");
  assert_ptr_equal(source.headers, sources);
  assert_int_equal(st_cuda_source_of(step, sources, "", &source, NULL), STRATA_OK);
  assert_string_equal(source.name, "gdn_step/gdn_step_cuda.cu");
  assert_ptr_equal(source.headers, sources);
  assert_int_equal(st_cuda_source_of(scan, NULL, "", &source, NULL), STRATA_OK);
  assert_string_equal(source.name, "gdn_scan/gdn_scan_cuda.cu");
  assert_null(source.headers);
  st_cuda_sources_close(&sources);
  assert_null(sources);
  st_cuda_sources_close(&sources);
}

static void test_failing_memory(void **state) {
  (void)state;
  st_cuda_sources *sources;
  strata_status status = STRATA_NOMEM;
  int n = 0;
  for (; status != STRATA_OK; ++n) {
    st_mem_fail_at(n);
    status = st_cuda_sources_open(folder, &sources, NULL);
    st_mem_fail_at(-1);
    assert_true(status == STRATA_OK || (status == STRATA_NOMEM && !sources));
  }
  assert_true(n > 4);
  st_cuda_sources_close(&sources);
  assert_int_equal(remove(in_folder("k_cuda.h")), 0);
  assert_int_equal(remove(in_folder("gdn_scan_cuda.cu")), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_taken),
      cmocka_unit_test(test_failing_memory),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
