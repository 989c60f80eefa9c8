/* strata lab roof: kernels beside the ceilings of this machine. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli_lab.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "lab/lab_roof.h"

typedef struct roof_args {
  int32_t threads, rounds;
  const char *scan;
} roof_args;

static const roof_args roof_defaults = {.rounds = 9};

static const cli_option roof_options[] = {
    CLI_OPTION_THREADS(roof_args),
    {0, "rounds", "N", CLI_INT, offsetof(roof_args, rounds), 1, 101, NULL,
     "rounds of measurements (default 9)"},
    {0, "scan", "V", CLI_TEXT, offsetof(roof_args, scan), 0, 0, NULL,
     "a variant of gdn_scan to measure beside the chosen one"},
};

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

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  const roof_args *args = command_args;
  strata_status status = STRATA_OK;
  st_pool *pool = NULL;
  lab_roof_result result;
  st_cpu_level level;
  if (words->n > 1 || (words->n == 1 && strcmp(words->items[0], "gdn") != 0))
    ST_FAIL(err, ARG, "lab roof: %s: gdn expected", words->items[words->n - 1]);
  ST_TRY(cli_lab_level(&level, err));
  ST_TRY_OUT(st_pool_new(args->threads ? args->threads : st_cpu_count(), &pool, err));
  ST_TRY_OUT(lab_roof_gdn(pool, level, args->rounds, args->scan, &result, err));
  print_roof(&result, level, st_pool_threads(pool));
  ST_TRY_OUT(cli_flush(err));
out:
  st_pool_free(&pool);
  return status;
}

const cli_command cmd_lab_roof = {
    .name = "lab roof",
    .summary = "time kernels beside the ceilings of this machine",
    .usage = "[gdn] [options]",
    .details = "Times the gated delta net's prompt kernels beside their floor on this machine.",
    .options = roof_options,
    .n_options = sizeof roof_options / sizeof roof_options[0],
    .defaults = &roof_defaults,
    .args_bytes = sizeof roof_defaults,
    .run = run};
