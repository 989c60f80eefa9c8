/* The embedded sources: the same bytes as the tree's, and the right file for each
 * registered variant. Runs in the root of the tree, as all tests do. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "core/st_mem.h"
#include "kreg/st_kreg.h"
#include "kreg/st_source.h"
#include "os/st_file.h"

/* How paths become files: only kernel.h lies outside kernels/. */
static void tree_path(char *file, size_t n_bytes, const char *path) {
  snprintf(file, n_bytes, "%s/%s", strncmp(path, "strata/", 7) == 0 ? "include" : "kernels", path);
}

static void test_bytes(void **state) {
  (void)state;
  for (int32_t i = 0; i < st_source_count(); i++) {
    st_source source = st_source_at(i);
    char file[256], *text;
    size_t n_bytes;
    strata_error err;
    tree_path(file, sizeof file, source.path);
    if (st_file_read(file, 1 << 20, &text, &n_bytes, &err) != STRATA_OK) fail_msg("%s", err.message);
    assert_int_equal(source.n_bytes, n_bytes);
    /* With the NUL behind. */
    assert_memory_equal(source.text, text, n_bytes + 1);
    st_free(text);
  }
}

static void test_find(void **state) {
  (void)state;
  static const char *const there[] = {"strata/kernel.h", "common/k_simd.h", "common/k_math_body.inc",
                                      "gdn_scan/gdn_scan.h", "gdn_scan/gdn_scan.c"};
  static const char *const absent[] = {"", "kernel.h", "gdn_scan/gdn_scan_op.c",
                                       "gdn_scan/gdn_scan_oracle.c", "gdn_scan/NOTES.md"};
  st_source source;
  for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
    assert_true(st_source_find(there[i], &source));
    assert_string_equal(source.path, there[i]);
  }
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
    assert_false(st_source_find(absent[i], &source));
    assert_null(source.text);
  }
  for (int32_t i = 1; i < st_source_count(); i++)
    assert_true(strcmp(st_source_at(i - 1).path, st_source_at(i).path) != 0);
}

/* The descriptor that a variant's source must end with. */
static void expected_descriptor(char *text, size_t n_bytes, const char *op, const char *variant) {
  const char *tag = strchr(variant, '_');
  if (tag) snprintf(text, n_bytes, "\nSTK_KERNEL_TAGGED(%s, %s,", op, tag + 1);
  else snprintf(text, n_bytes, "\nSTK_KERNEL_LEVEL(%s,", op);
}

static void test_variants(void **state) {
  (void)state;
  for (int op = 0; op < ST_OPS; op++) {
    const stk_kernel *kernel;
    for (int32_t i = 0; (kernel = st_kreg_variant((st_op)op, i)); i++) {
      char descriptor[128];
      st_source source;
      if (!st_source_of_variant(kernel->op, kernel->variant, &source))
        fail_msg("%s.%s: no source", kernel->op, kernel->variant);
      expected_descriptor(descriptor, sizeof descriptor, kernel->op, kernel->variant);
      if (!strstr(source.text, descriptor))
        fail_msg("%s.%s: %s does not define it", kernel->op, kernel->variant, source.path);
      const char *level = strstr(source.text, kernel->isa);
      if (!level || level > strchr(source.text, '\n'))
        fail_msg("%s.%s: the first line of %s does not name %s", kernel->op, kernel->variant,
                 source.path, kernel->isa);
    }
  }
  st_source source;
  assert_false(st_source_of_variant("gdn_scan", "avx2_none", &source));
  assert_false(st_source_of_variant("none", "avx2", &source));
}

static void test_hashes(void **state) {
  (void)state;
  char hex[65], again[65];
  const st_source abc = {"abc", "abc", 3};
  assert_int_equal(st_source_sha256(&abc, hex, NULL), STRATA_OK);
  assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  assert_int_equal(st_source_set_sha256(hex, NULL), STRATA_OK);
  assert_int_equal(st_source_set_sha256(again, NULL), STRATA_OK);
  assert_int_equal(strlen(hex), 64);
  assert_string_equal(hex, again);
  st_mem_fail_at(0);
  assert_int_equal(st_source_set_sha256(hex, NULL), STRATA_NOMEM);
  st_mem_fail_at(-1);
  assert_string_equal(hex, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_find),
      cmocka_unit_test(test_variants),
      cmocka_unit_test(test_hashes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
