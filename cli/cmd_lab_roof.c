/* strata lab roof: kernels beside the ceilings of this machine. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli_lab_gpu.h"
#include "cli_lab_roof.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "lab/lab_roof_qsa.h"

typedef struct roof_args {
  int32_t threads, rounds;
  const char *tokens, *set, *variant, *scan, *backend, *kernels;
  cli_ceilings_args ceilings;
  bool warm, only_ceilings, json;
} roof_args;

static const roof_args roof_defaults = {.rounds = 9, .tokens = "1,512", .backend = "cpu"};

static const cli_option roof_options[] = {
    {0, "T", "LIST", CLI_TEXT, offsetof(roof_args, tokens), 0, 0, NULL,
     "numbers of tokens to run at once (default 1,512)"},
    {0, "set", "LIST", CLI_TEXT, offsetof(roof_args, set), 0, 0, NULL,
     "other sizes than the released model's, such as Hk=4,Hv=8"},
    {0, "variant", "V", CLI_TEXT, offsetof(roof_args, variant), 0, 0, NULL,
     "time this variant of OP instead of the chosen one"},
    {0, "warm", NULL, CLI_FLAG, offsetof(roof_args, warm), 0, 0, NULL,
     "use the same data again and again, instead of data from main memory"},
    {0, "rounds", "N", CLI_INT, offsetof(roof_args, rounds), 1, LAB_ROUNDS_MAX, NULL,
     "rounds of measurements (default 9)"},
    {0, "scan", "V", CLI_TEXT, offsetof(roof_args, scan), 0, 0, NULL,
     "with gdn: a variant of gdn_scan to time beside the chosen one"},
    {0, "ceilings", NULL, CLI_FLAG, offsetof(roof_args, only_ceilings), 0, 0, NULL,
     "show the ceilings and time nothing"},
    {0, "backend", "cpu|cuda", CLI_CHOICE, offsetof(roof_args, backend), 0, 0, "cpu|cuda",
     "whose kernels (default cpu)"},
    CLI_OPTION_KERNELS(roof_args),
    CLI_OPTIONS_CEILINGS(roof_args),
    CLI_OPTION_THREADS(roof_args),
    CLI_OPTION_JSON(roof_args),
};

/* ---- what to time ---------------------------------------------------------------- */

typedef struct roof_job {
  const roof_args *args;
  cli_ids tokens;
  lab_settings settings;
  st_pool *pool;
  lab_ceilings ceilings;
  st_kernel_set chosen;
  bool ops[ST_OPS];
  bool gdn, qsa; /* the tables of the gated delta net and of sparse attention */
  json_t *rows, *gdn_rows, *qsa_rows;
} roof_job;

static strata_status pick_ops(roof_job *job, const cli_words *words, strata_error *err) {
  for (int i = 0; i < words->n; i++) {
    const char *word = words->items[i];
    bool gdn = strcmp(word, "gdn") == 0, qsa = strcmp(word, "qsa") == 0, found = gdn || qsa;
    job->gdn |= gdn;
    job->qsa |= qsa;
    for (int op = 0; op < ST_OPS && !gdn && !qsa; op++)
      if (strncmp(st_kreg_op((st_op)op)->name, word, strlen(word)) == 0) job->ops[op] = found = true;
    if (!found) ST_FAIL(err, ARG, "lab roof: %s: gdn, qsa or the name of an op expected", word);
  }
  for (int op = 0; op < ST_OPS && words->n == 0; op++)
    job->ops[op] = st_kreg_op((st_op)op)->released != NULL;
  return STRATA_OK;
}

static strata_status find_variant(roof_job *job, strata_error *err) {
  const stk_kernel *kernel;
  int n = 0, only = 0;
  for (int op = 0; op < ST_OPS; op++)
    if (job->ops[op]) n++, only = op;
  if (n != 1) ST_FAIL(err, ARG, "--variant: %d ops: one op expected", n);
  for (int32_t i = 0; (kernel = st_kreg_variant((st_op)only, i)); i++)
    if (!strcmp(kernel->variant, job->args->variant) &&
        st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa))) {
      job->chosen.kernel[only] = kernel;
      return STRATA_OK;
    }
  ST_FAIL(err, ARG, "--variant: %s: a variant of %s that this CPU can run expected", job->args->variant,
          st_kreg_op((st_op)only)->name);
}

/* --T and --set. */
static strata_status parse_sizes(roof_job *job, strata_error *err) {
  const roof_args *args = job->args;
  ST_TRY(cli_ids_parse(&job->tokens, args->tokens, "--T", 1, 1 << 20, err));
  if (job->tokens.n < 1 || job->tokens.n > LAB_ROOF_ROWS_MAX)
    ST_FAIL(err, ARG, "--T: %zu numbers: 1 to %d expected", job->tokens.n, LAB_ROOF_ROWS_MAX);
  return args->set ? lab_settings_parse(&job->settings, args->set, err) : STRATA_OK;
}

static strata_status prepare(roof_job *job, const cli_words *words, strata_error *err) {
  const roof_args *args = job->args;
  st_cpu_level level;
  ST_TRY(cli_lab_level(&level, err));
  st_kernel_set_choose(&job->chosen, level);
  ST_TRY(pick_ops(job, words, err));
  ST_TRY(parse_sizes(job, err));
  if (args->variant) ST_TRY(find_variant(job, err));
  for (int op = 0; op < ST_OPS; op++)
    if (job->ops[op]) ST_TRY(lab_settings_check(&job->settings, st_kreg_op((st_op)op), err));
  ST_TRY(cli_lab_ceilings(&args->ceilings, args->threads, &job->ceilings, err));
  return st_pool_new(job->ceilings.n_threads, &job->pool, err);
}

/* ---- any op ------------------------------------------------------------------------ */

static double bytes_of(const stk_work *w) { return w->weight_bytes + w->state_bytes + w->io_bytes; }

void cli_roof_print_header(void) {
  printf("\nOne call. Microseconds.\n\n");
  printf("%-10s %-10s %5s %-5s %9s %9s %9s %9s %9s %12s  %s\n", "op", "variant", "T", "data",
         "MFLOP", "MB", "best", "median", "floor", "median/floor", "bound by");
}

void cli_roof_print_row(const lab_roof_row *r) {
  printf("%-10s %-10s %5d %-5s %9.2f %9.3f %9.1f %9.1f %9.1f", r->op, r->variant, r->n_tokens,
         r->warm ? "warm" : "cold", 1e-6 * r->work.flops, 1e-6 * bytes_of(&r->work), 1e6 * r->best,
         1e6 * r->median, 1e6 * r->floor.seconds);
  if (r->floor.seconds > 0) printf(" %12.2f", r->median / r->floor.seconds);
  else printf(" %12s", "");
  printf("  %s\n", cli_lab_bound(&r->floor));
}

json_t *cli_roof_row_json(const lab_roof_row *r) {
  return json_pack("{s:s, s:s, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:s}", "op", r->op, "variant",
                   r->variant, "T", (int)r->n_tokens, "data", r->warm ? "warm" : "cold", "flops",
                   cli_json_number(r->work.flops), "bytes", cli_json_number(bytes_of(&r->work)),
                   "best_seconds", cli_json_number(r->best), "median_seconds",
                   cli_json_number(r->median), "floor_seconds", cli_json_number(r->floor.seconds),
                   "bound", cli_lab_bound(&r->floor));
}

static strata_status time_op(roof_job *job, st_op op, strata_error *err) {
  const roof_args *args = job->args;
  lab_roof_row rows[LAB_ROOF_ROWS_MAX];
  int32_t n;
  const lab_roof_request request = {.op = st_kreg_op(op), .kernel = job->chosen.kernel[op],
                                    .tokens = job->tokens.items, .n_tokens = (int32_t)job->tokens.n,
                                    .settings = job->settings, .warm = args->warm};
  ST_TRY(lab_roof_op(job->pool, &job->ceilings, &request, args->rounds, rows, &n, err));
  for (int32_t i = 0; i < n; i++) {
    if (args->json) json_array_append_new(job->rows, cli_roof_row_json(&rows[i]));
    else cli_roof_print_row(&rows[i]);
  }
  return cli_interrupted() ? st_error_set(err, STRATA_CANCELLED, "lab roof: interrupted") : STRATA_OK;
}

static strata_status time_ops(roof_job *job, strata_error *err) {
  bool any = false;
  for (int op = 0; op < ST_OPS; op++) {
    if (!job->ops[op]) continue;
    if (!any && !job->args->json) cli_roof_print_header();
    any = true;
    ST_TRY(time_op(job, (st_op)op, err));
  }
  return STRATA_OK;
}

/* ---- the gated delta net ----------------------------------------------------------- */

static void print_gdn(const lab_gdn_rows *rows) {
  printf("\nOne layer at 16 key and 48 value heads of 128. Microseconds.\n\n");
  printf("%-14s %-12s %6s %-5s %10s %10s %10s %13s %12s\n", "stage", "variant", "T", "state",
         "best", "median", "floor", "median/floor", "36 layers ms");
  for (int32_t i = 0; i < rows->n; i++) {
    const lab_gdn_row *row = &rows->rows[i];
    printf("%-14s %-12s %6d %-5s %10.1f %10.1f %10.1f %13.2f %12.2f\n", row->what, row->variant,
           row->n_tokens, row->cold ? "cold" : "warm", row->best * 1e6, row->median * 1e6,
           row->floor * 1e6, row->median / row->floor, row->median * 36e3);
  }
}

static json_t *gdn_row_json(const lab_gdn_row *r) {
  return json_pack("{s:s, s:s, s:i, s:s, s:o, s:o, s:o}", "stage", r->what, "variant", r->variant, "T",
                   (int)r->n_tokens, "state", r->cold ? "cold" : "warm", "best_seconds",
                   cli_json_number(r->best), "median_seconds", cli_json_number(r->median),
                   "floor_seconds", cli_json_number(r->floor));
}

static strata_status time_gdn(roof_job *job, strata_error *err) {
  lab_gdn_rows rows;
  ST_TRY(lab_roof_gdn(job->pool, &job->ceilings, job->args->rounds, job->args->scan, &rows, err));
  if (!job->args->json) print_gdn(&rows);
  for (int32_t i = 0; i < rows.n && job->args->json; i++)
    json_array_append_new(job->gdn_rows, gdn_row_json(&rows.rows[i]));
  return STRATA_OK;
}

/* ---- sparse attention -------------------------------------------------------------- */

static void print_qsa(const lab_qsa_rows *rows) {
  printf("\nOne layer at 24 query and 2 key-value heads of 256, budget 2048. Microseconds a token.\n\n");
  printf("%-8s %-8s %-4s %5s %8s %-5s %10s %10s %10s %13s\n", "stage", "variant", "kv", "T", "cells",
         "lists", "best", "median", "floor", "median/floor");
  for (int32_t i = 0; i < rows->n; i++) {
    const lab_qsa_row *row = &rows->rows[i];
    printf("%-8s %-8s %-4s %5d %8d %-5s %10.2f %10.2f %10.2f %13.2f\n", row->what, row->variant, row->kv,
           row->n_tokens, row->n, row->lists, row->best * 1e6, row->median * 1e6, row->floor * 1e6,
           row->median / row->floor);
  }
}

static json_t *qsa_row_json(const lab_qsa_row *r) {
  return json_pack("{s:s, s:s, s:s, s:i, s:i, s:s, s:o, s:o, s:o}", "stage", r->what, "variant", r->variant,
                   "kv", r->kv, "T", (int)r->n_tokens, "cells", (int)r->n, "lists", r->lists, "best_seconds",
                   cli_json_number(r->best), "median_seconds", cli_json_number(r->median),
                   "floor_seconds", cli_json_number(r->floor));
}

static strata_status time_qsa(roof_job *job, strata_error *err) {
  lab_qsa_rows rows;
  ST_TRY(lab_roof_qsa(job->pool, &job->ceilings, job->args->rounds, &rows, err));
  if (!job->args->json) print_qsa(&rows);
  for (int32_t i = 0; i < rows.n && job->args->json; i++)
    json_array_append_new(job->qsa_rows, qsa_row_json(&rows.rows[i]));
  return STRATA_OK;
}

/* ---- command ----------------------------------------------------------------------- */

static strata_status measure(roof_job *job, strata_error *err) {
  const roof_args *args = job->args;
  job->rows = json_array();
  job->gdn_rows = json_array();
  job->qsa_rows = json_array();
  if (!args->json) {
    cli_lab_print_machine(&job->ceilings);
    cli_lab_print_ceilings(&job->ceilings);
  }
  if (!args->only_ceilings) ST_TRY(time_ops(job, err));
  if (!args->only_ceilings && job->gdn) ST_TRY(time_gdn(job, err));
  if (!args->only_ceilings && job->qsa) ST_TRY(time_qsa(job, err));
  if (!args->json) return cli_flush(err);
  return cli_json_print(json_pack("{s:o, s:O, s:O, s:O}", "machine",
                                  cli_lab_ceilings_json(&job->ceilings), "ops", job->rows, "gdn",
                                  job->gdn_rows, "qsa", job->qsa_rows), err);
}

static strata_status run_on_cpu(roof_job *job, const cli_words *words, strata_error *err) {
  ST_TRY(prepare(job, words, err));
  return measure(job, err);
}

static strata_status run_on_gpu(roof_job *job, const cli_words *words, const st_cuda_sources *sources,
                                strata_error *err) {
  const roof_args *args = job->args;
  if (args->scan || args->warm || args->threads || args->ceilings.cache || args->ceilings.fresh)
    ST_FAIL(err, ARG, "--backend cuda: no --scan, --warm, --threads, --cache or --fresh expected");
  ST_TRY(parse_sizes(job, err));
  const cli_roof_gpu_args gpu = {
      .words = words, .sources = sources, .variant = args->variant, .rounds = args->rounds,
      .only_ceilings = args->only_ceilings, .json = args->json,
      .request = {.tokens = job->tokens.items, .n_tokens = (int32_t)job->tokens.n, .settings = job->settings}};
  return cli_roof_gpu(&gpu, err);
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  roof_job job = {.args = command_args};
  strata_status status = STRATA_OK;
  st_cuda_sources *sources;
  ST_TRY_OUT(cli_lab_sources(job.args->kernels, job.args->backend, &sources, err));
  status = strcmp(job.args->backend, "cuda") == 0 ? run_on_gpu(&job, words, sources, err) : run_on_cpu(&job, words, err);
out:
  st_cuda_sources_close(&sources);
  json_decref(job.rows);
  json_decref(job.gdn_rows);
  json_decref(job.qsa_rows);
  st_pool_free(&job.pool);
  cli_ids_release(&job.tokens);
  return status;
}

const cli_command cmd_lab_roof = {
    .name = "lab roof",
    .summary = "time kernels beside the ceilings of this machine",
    .usage = "[OP ... | gdn | qsa] [options]",
    .details =
        "Shows what this machine can do at most, and the time of each op whose name begins with OP "
        "(all without one) beside its floor: the larger of its operations over the multiply-add "
        "peak and its bytes over the rate of the memory that holds them.\n"
        "gdn times the gated delta net's prompt kernels one after the other, as a layer runs "
        "them, with the states of 36 layers.\n"
        "qsa times sparse attention's, for each kind of cache, from 2048 to 131072 cells.\n"
        "The ceilings are kept for this CPU, level and number of threads.\n"
        "--backend cuda does it for the GPU kernels of the ops whose names begin with OP; a kernel "
        "being tuned takes a built-in one's place by --kernels, as in lab check.",
    .options = roof_options,
    .n_options = sizeof roof_options / sizeof roof_options[0],
    .defaults = &roof_defaults,
    .args_bytes = sizeof roof_defaults,
    .run = run};
