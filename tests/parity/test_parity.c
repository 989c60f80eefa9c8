/* The laboratory's parity suite: every variant of every op against its oracle,
 * and the gated delta net and sparse attention as a whole. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "kreg/st_kreg.h"
#include "lab/lab_check.h"

static void show_failure(void *user, const char *name, const char *detail) {
  (void)user;
  if (detail) print_error("%s: %s\n", name, detail);
}

static void test_group(void **state) {
  strata_error err;
  int32_t n_passed, n_failed;
  if (lab_check(*state, show_failure, NULL, &n_passed, &n_failed, &err) != STRATA_OK)
    fail_msg("%s", err.message);
  if (n_failed) fail_msg("%d of %d tests failed", n_failed, n_passed + n_failed);
  print_message("    %d tests\n", n_passed);
}

int main(void) {
  struct CMUnitTest tests[ST_OPS + 2];
  for (int op = 0; op < ST_OPS; ++op) {
    const char *name = st_kreg_op((st_op)op)->name;
    tests[op] = (struct CMUnitTest){name, test_group, NULL, NULL, (void *)(uintptr_t)name};
  }
  tests[ST_OPS] = (struct CMUnitTest){"gdn", test_group, NULL, NULL, (void *)(uintptr_t)"gdn"};
  tests[ST_OPS + 1] = (struct CMUnitTest){"qsa", test_group, NULL, NULL, (void *)(uintptr_t)"qsa"};
  return cmocka_run_group_tests_name("parity", tests, NULL, NULL);
}
