/* strata lab check: the parity suite. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli_lab.h"
#include "cli_lab_gpu.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "lab/lab_check.h"
#include "lab/lab_cuda.h"

typedef struct check_args {
  const char *backend, *kernels;
  int32_t repeats;
} check_args;

static const check_args check_defaults = {.backend = "cpu", .repeats = 3};

static const cli_option check_options[] = {
    {0, "backend", "cpu|cuda", CLI_CHOICE, offsetof(check_args, backend), 0, 0, "cpu|cuda",
     "whose kernels (default cpu)"},
    CLI_OPTION_KERNELS(check_args),
    {0, "repeats", "N", CLI_INT, offsetof(check_args, repeats), 1, 10000, NULL,
     "cuda: how often a case is run (default 3)"},
};

static void print_result(void *user, const char *name, const char *detail) {
  (void)user;
  if (detail) printf("FAIL %s: %s\n", name, detail);
  else printf("PASS %s\n", name);
}

/* One name, or NULL for all. cuda: NULL for the CPU's kernels. */
static strata_status check(const check_args *args, st_cuda *cuda, const char *what, int32_t *n_passed,
                           int32_t *n_failed, strata_error *err) {
  int32_t passed, failed;
  ST_TRY(cuda ? lab_cuda_check(cuda, what, args->repeats, print_result, NULL, &passed, &failed, err)
              : lab_check(what, print_result, NULL, &passed, &failed, err));
  *n_passed += passed;
  *n_failed += failed;
  return STRATA_OK;
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  const check_args *args = command_args;
  strata_status status = STRATA_OK;
  st_cuda *cuda = NULL;
  st_cuda_sources *sources;
  int32_t n_passed = 0, n_failed = 0;
  ST_TRY_OUT(cli_lab_sources(args->kernels, args->backend, &sources, err));
  if (strcmp(args->backend, "cuda") == 0) ST_TRY_OUT(cli_lab_gpu(sources, stdout, &cuda, err));
  for (int i = 0; i < words->n || i == 0; ++i)
    ST_TRY_OUT(check(args, cuda, i < words->n ? words->items[i] : NULL, &n_passed, &n_failed, err));
  if (n_failed) {
    printf("FAILED %d/%d\n", n_failed, n_passed + n_failed);
    ST_TRY_OUT(cli_flush(err));
    ST_FAIL_OUT(err, NUMERICS, "lab check: %d of %d tests: equal bytes expected", n_failed,
                n_passed + n_failed);
  }
  printf("ALL PASS %d/%d\n", n_passed, n_passed);
  ST_TRY_OUT(cli_flush(err));
out:
  st_cuda_close(&cuda);
  st_cuda_sources_close(&sources);
  return status;
}

const cli_command cmd_lab_check = {
    .name = "lab check",
    .summary = "compare every kernel with its oracle, byte for byte",
    .usage = "[OP ...] [--backend cuda [--kernels DIR]]",
    .details =
        "Runs the parity suite of the ops whose names begin with OP (all without one): a line a "
        "test, ALL PASS n/n last; a mismatch names its buffer and exits 1.",
    .options = check_options,
    .n_options = sizeof check_options / sizeof check_options[0],
    .defaults = &check_defaults,
    .args_bytes = sizeof check_defaults,
    .run = run};
