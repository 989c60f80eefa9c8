/* strata lab: the kernel laboratory. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli_args.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "kreg/st_kreg.h"
#include "lab/lab_check.h"
#include "lab/lab_roof.h"

typedef struct lab_args {
  int32_t threads, rounds;
  const char *scan;
} lab_args;

static const lab_args lab_defaults = {.rounds = 9};

static const cli_option lab_options[] = {
    CLI_OPTION_THREADS(lab_args),
    {0, "rounds", "N", CLI_INT, offsetof(lab_args, rounds), 1, 101, NULL,
     "roof: rounds of measurements (default 9)"},
    {0, "scan", "V", CLI_TEXT, offsetof(lab_args, scan), 0, 0, NULL,
     "roof: a variant of gdn_scan to measure beside the chosen one"},
};

/* ---- list ------------------------------------------------------------------- */

static void list_op(st_op op, const st_kernel_set *chosen) {
  const stk_kernel *kernel;
  for (int32_t i = 0; (kernel = st_kreg_variant(op, i)); ++i) {
    bool runs = st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa));
    printf("%-12s %-14s %-6s %-8s %s\n", kernel->op, kernel->variant,
           kernel->numerics == STK_EXACT ? "exact" : "fast", kernel->isa,
           chosen->kernel[op] == kernel ? "chosen" : runs ? "" : "not on this CPU");
  }
}

static strata_status list(const cli_words *words, strata_error *err) {
  st_kernel_set chosen;
  if (words->n > 2) ST_FAIL(err, ARG, "lab list: %s: one op at most expected", words->items[2]);
  int only = words->n == 2 ? st_kreg_op_by_name(words->items[1]) : -1;
  if (words->n == 2 && only < 0)
    ST_FAIL(err, ARG, "lab list: %s: the name of an op expected", words->items[1]);
  st_kernel_set_choose(&chosen, st_cpu_best());
  printf("%-12s %-14s %-6s %-8s\n", "op", "variant", "class", "level");
  for (int op = 0; op < ST_OPS; ++op)
    if (only < 0 || op == only) list_op((st_op)op, &chosen);
  return cli_flush(err);
}

/* ---- check ------------------------------------------------------------------ */

static void print_result(void *user, const char *name, const char *detail) {
  (void)user;
  if (detail) printf("FAIL %s: %s\n", name, detail);
  else printf("PASS %s\n", name);
}

static strata_status check(const cli_words *words, strata_error *err) {
  int32_t n_passed = 0, n_failed = 0;
  for (int i = 1; i < words->n || i == 1; ++i) {
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

/* ---- roof ------------------------------------------------------------------- */

static void print_roof(const lab_roof_result *r, st_cpu_level level, int32_t threads) {
  printf("%s, %d threads: %.1f GFLOP/s, reads 512 KiB at %.1f GB/s, 256 MiB at %.1f GB/s\n\n",
         st_cpu_level_name(level), threads, r->flops_per_s / 1e9, r->bytes_per_s_l2 / 1e9,
         r->bytes_per_s_dram / 1e9);
  printf("One layer at 16 key and 48 value heads of 128. Microseconds.\n\n");
  printf("%-14s %-12s %6s %-5s %10s %10s %10s %13s %12s\n", "stage", "variant", "T", "state",
         "best", "median", "floor", "median/floor", "36 layers ms");
  for (int32_t i = 0; i < r->n_rows; ++i) {
    const lab_roof_row *row = &r->rows[i];
    printf("%-14s %-12s %6d %-5s %10.1f %10.1f %10.1f %13.2f %12.2f\n", row->what, row->variant,
           row->n_tokens, row->cold ? "cold" : "warm", row->best * 1e6, row->median * 1e6,
           row->floor * 1e6, row->median / row->floor, row->median * 36e3);
  }
}

static strata_status roof(const lab_args *args, const cli_words *words, strata_error *err) {
  strata_status status = STRATA_OK;
  st_pool *pool = NULL;
  lab_roof_result result;
  st_cpu_level level = st_cpu_best();
  if (words->n > 2 || (words->n == 2 && strcmp(words->items[1], "gdn") != 0))
    ST_FAIL(err, ARG, "lab roof: %s: gdn expected", words->items[words->n - 1]);
  int named = st_env_isa() ? st_cpu_level_by_name(st_env_isa()) : (int)level;
  if (named < 0 || named > (int)level)
    ST_FAIL(err, ARG, "STRATA_ISA: %s: a level of this CPU expected", st_env_isa());
  level = (st_cpu_level)named;
  ST_TRY_OUT(st_pool_new(args->threads ? args->threads : st_cpu_count(), &pool, err));
  ST_TRY_OUT(lab_roof_gdn(pool, level, args->rounds, args->scan, &result, err));
  print_roof(&result, level, st_pool_threads(pool));
  ST_TRY_OUT(cli_flush(err));
out:
  st_pool_free(&pool);
  return status;
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  const lab_args *args = command_args;
  const char *what = words->n ? words->items[0] : "";
  if (strcmp(what, "list") == 0) return list(words, err);
  if (strcmp(what, "check") == 0) return check(words, err);
  if (strcmp(what, "roof") == 0) return roof(args, words, err);
  ST_FAIL(err, ARG, "lab: %s: list, check or roof expected", words->n ? what : "no word");
}

const cli_command cmd_lab = {
    .name = "lab",
    .summary = "list, check and measure kernels",
    .usage = "list [OP] | check [OP ...] | roof [gdn]",
    .details =
        "list shows each op's variants and which one this machine takes.\n"
        "check runs the parity suite of the ops whose names begin with OP (all without one): a "
        "line a test, ALL PASS n/n last; a mismatch names its buffer and exits 1. It needs no "
        "model.\n"
        "roof times the gated delta net's prompt kernels beside their floor on this machine.",
    .options = lab_options,
    .n_options = sizeof lab_options / sizeof lab_options[0],
    .defaults = &lab_defaults,
    .args_bytes = sizeof lab_defaults,
    .run = run};
