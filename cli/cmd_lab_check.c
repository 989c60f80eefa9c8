/* strata lab check: the parity suite. */
#include <stdio.h>

#include "cli_lab.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "lab/lab_check.h"

static void print_result(void *user, const char *name, const char *detail) {
  (void)user;
  if (detail) printf("FAIL %s: %s\n", name, detail);
  else printf("PASS %s\n", name);
}

static strata_status run(const void *args, const cli_words *words, strata_error *err) {
  (void)args;
  int32_t n_passed = 0, n_failed = 0;
  for (int i = 0; i < words->n || i == 0; ++i) {
    int32_t passed, failed;
    ST_TRY(lab_check(i < words->n ? words->items[i] : NULL, print_result, NULL, &passed, &failed, err));
    n_passed += passed;
    n_failed += failed;
  }
  if (n_failed) {
    printf("FAILED %d/%d\n", n_failed, n_passed + n_failed);
    ST_TRY(cli_flush(err));
    ST_FAIL(err, NUMERICS, "lab check: %d of %d tests: equal bytes expected", n_failed,
            n_passed + n_failed);
  }
  printf("ALL PASS %d/%d\n", n_passed, n_passed);
  return cli_flush(err);
}

static const char no_args;

const cli_command cmd_lab_check = {
    .name = "lab check",
    .summary = "compare every kernel with its oracle, byte for byte",
    .usage = "[OP ...]",
    .details =
        "Runs the parity suite of the ops whose names begin with OP (all without one): a line a "
        "test, ALL PASS n/n last; a mismatch names its buffer and exits 1.",
    .defaults = &no_args,
    .args_bytes = sizeof no_args,
    .run = run};
