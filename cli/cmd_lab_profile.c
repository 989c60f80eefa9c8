/* strata lab profile: where a model's time goes. */
#include <stddef.h>
#include <stdio.h>

#include "cli_lab.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "lab/lab_profile.h"

typedef struct profile_args {
  const char *model, *prompt, *file;
  int32_t n_prompt, n_decode, window, threads;
  cli_ceilings_args ceilings;
  bool literal, json;
} profile_args;

static const profile_args profile_defaults = {.n_decode = 64, .window = 512};

static const cli_option profile_options[] = {
    CLI_OPTION_MODEL(profile_args),
    {'p', "prompt", "TEXT", CLI_TEXT, offsetof(profile_args, prompt), 0, 0, NULL, "read TEXT"},
    {'f', "file", "FILE", CLI_TEXT, offsetof(profile_args, file), 0, 0, NULL, "read FILE's text"},
    {0, "tokens", "N", CLI_INT, offsetof(profile_args, n_prompt), 1, 2147483647, NULL,
     "read N tokens drawn at random (default 512, without -p and -f)"},
    {'n', "decode", "N", CLI_INT, offsetof(profile_args, n_decode), 0, 2147483647, NULL,
     "write N tokens, the likeliest each time (default 64)"},
    CLI_OPTION_LITERAL(profile_args),
    CLI_OPTION_WINDOW(profile_args),
    CLI_OPTIONS_CEILINGS(profile_args),
    CLI_OPTION_THREADS(profile_args),
    CLI_OPTION_JSON(profile_args),
};

typedef struct profile_job {
  const profile_args *args;
  cli_text text;
  cli_ids ids;
  cli_model model;
  lab_ceilings ceilings;
  lab_profile profile;
} profile_job;

/* ---- prompt ---------------------------------------------------------------------- */

static strata_status check_args(const profile_args *args, const cli_words *words, strata_error *err) {
  int n = (args->prompt != NULL) + (args->file != NULL) + (args->n_prompt != 0);
  ST_TRY(cli_words_at_most(words, 0, "-p TEXT, -f FILE or --tokens N", err));
  if (n > 1)
    ST_FAIL(err, ARG, "prompt: given %d times: one of -p TEXT, -f FILE and --tokens N expected", n);
  return STRATA_OK;
}

/* The same ids on each run, of the whole vocabulary. */
static strata_status draw_ids(profile_job *job, int32_t n, strata_error *err) {
  uint64_t random = 1;
  for (int32_t i = 0; i < n; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    int32_t id = (int32_t)((random >> 33) % (uint64_t)job->model.info.vocab_size);
    ST_TRY(cli_ids_append(&job->ids, &id, 1, err));
  }
  return STRATA_OK;
}

static strata_status make_ids(profile_job *job, strata_error *err) {
  const profile_args *args = job->args;
  if (args->n_prompt > job->model.info.max_positions)
    ST_FAIL(err, LIMIT, "prompt: %d tokens: at most %d expected", args->n_prompt, job->model.info.max_positions);
  if (!args->prompt && !args->file) return draw_ids(job, args->n_prompt ? args->n_prompt : 512, err);
  if (args->prompt) ST_TRY(cli_text_copy(&job->text, args->prompt, err));
  else ST_TRY(cli_text_read(&job->text, args->file, err));
  ST_TRY(cli_ids_encode(&job->ids, job->model.tokenizer, &job->text, args->literal, err));
  if (!job->ids.n) ST_FAIL(err, ARG, "prompt: 0 tokens: a text that is not empty expected");
  return STRATA_OK;
}

static bool go_on(void *user) {
  (void)user;
  return !cli_interrupted();
}

static strata_status measure(profile_job *job, strata_error *err) {
  const profile_args *args = job->args;
  const lab_profile_request request = {.ids = job->ids.items, .n_ids = (int32_t)job->ids.n,
                                       .n_decode = args->n_decode, .window = args->window, .go_on = go_on};
  return lab_profile_run(job->model.model, &job->ceilings, &request, &job->profile, err);
}

/* ---- printing -------------------------------------------------------------------- */

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

static void print_rows(const lab_profile_phase *p) {
  printf("%-12s %-14s %8s %10s %7s %12s %10s %15s\n", "kernel", "variant", "calls", "seconds", "share",
         "us a token", "floor", "measured/floor");
  for (int32_t i = 0; i < p->n_rows; i++) {
    const lab_profile_row *r = &p->rows[i];
    printf("%-12s %-14s %8lld %10.6f %6.1f%% %12.3f %10.6f", r->kernel->op, r->kernel->variant,
           (long long)r->calls, r->seconds, percent(r->seconds, p->passes_s),
           1e6 * r->seconds / (double)p->n_tokens, r->floor_s);
    if (r->floor_s > 0) printf(" %15.2f", r->seconds / r->floor_s);
    putchar('\n');
  }
}

/* One line of what the rows do not hold. */
static void print_rest(const char *what, double seconds, const lab_profile_phase *p) {
  printf("%-36s %10.6f %6.1f%%\n", what, seconds, percent(seconds, p->passes_s));
}

static void print_phase(const char *name, const lab_profile_phase *p) {
  if (!p->n_passes) return;
  printf("\n%s: %lld tokens in %lld passes, %.6f s, %.1f tokens/s, floor %.6f s, measured/floor %.2f\n",
         name, (long long)p->n_tokens, (long long)p->n_passes, p->phase_s,
         (double)p->n_tokens / p->phase_s, p->floor_s, p->floor_s > 0 ? p->phase_s / p->floor_s : 0);
  printf("a pass goes through %.1f MB of weights and state, which are read at %.1f GB/s\n\n",
         1e-6 * p->working_set_bytes, 1e-9 * p->read_bytes_per_s);
  print_rows(p);
  print_rest("all kernels", p->kernels_s, p);
  print_rest("waking threads, reading the clock", p->lists_s - p->kernels_s, p);
  print_rest("building plans, looking for NaN", p->passes_s - p->lists_s, p);
  print_rest("forward passes", p->passes_s, p);
  print_rest("choosing tokens", p->phase_s - p->passes_s, p);
}

static json_t *rows_json(const lab_profile_phase *p) {
  json_t *rows = json_array();
  for (int32_t i = 0; i < p->n_rows; i++) {
    const lab_profile_row *r = &p->rows[i];
    json_array_append_new(
        rows, json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "op", r->kernel->op, "variant",
                        r->kernel->variant, "calls", (json_int_t)r->calls, "seconds",
                        cli_json_number(r->seconds), "floor_seconds", cli_json_number(r->floor_s), "flops",
                        cli_json_number(r->work.flops), "weight_bytes", cli_json_number(r->work.weight_bytes),
                        "state_bytes", cli_json_number(r->work.state_bytes), "io_bytes",
                        cli_json_number(r->work.io_bytes)));
  }
  return rows;
}

static json_t *phase_json(const lab_profile_phase *p) {
  return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tokens",
                   (json_int_t)p->n_tokens, "passes", (json_int_t)p->n_passes, "seconds",
                   cli_json_number(p->phase_s), "pass_seconds", cli_json_number(p->passes_s),
                   "list_seconds", cli_json_number(p->lists_s), "kernel_seconds",
                   cli_json_number(p->kernels_s), "floor_seconds", cli_json_number(p->floor_s),
                   "working_set_bytes", cli_json_number(p->working_set_bytes), "read_bytes_per_second",
                   cli_json_number(p->read_bytes_per_s), "update_bytes_per_second",
                   cli_json_number(p->update_bytes_per_s), "kernels", rows_json(p));
}

static strata_status report(const profile_job *job, strata_error *err) {
  const lab_profile *p = &job->profile;
  if (job->args->json)
    return cli_json_print(json_pack("{s:o, s:s, s:o, s:o}", "machine",
                                    cli_lab_ceilings_json(&job->ceilings), "model", job->model.path,
                                    "prefill", phase_json(&p->prefill), "decode", phase_json(&p->decode)),
                          err);
  cli_lab_print_machine(&job->ceilings);
  print_phase("prefill", &p->prefill);
  print_phase("decode", &p->decode);
  return cli_flush(err);
}

/* ---- command ----------------------------------------------------------------------- */

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  strata_status status = STRATA_OK;
  profile_job job = {.args = command_args};
  ST_TRY(check_args(job.args, words, err));
  ST_TRY_OUT(cli_model_open(&job.model, job.args->model, job.args->threads,
                            job.args->prompt || job.args->file, err));
  ST_TRY_OUT(make_ids(&job, err));
  ST_TRY_OUT(cli_lab_ceilings(&job.args->ceilings, job.args->threads, &job.ceilings, err));
  ST_TRY_OUT(measure(&job, err));
  ST_TRY_OUT(report(&job, err));
out:
  cli_ids_release(&job.ids);
  cli_text_release(&job.text);
  cli_model_close(&job.model);
  return status;
}

const cli_command cmd_lab_profile = {
    .name = "lab profile",
    .summary = "show where a model's time goes, kernel by kernel",
    .usage = "[-m DIR] [-p TEXT | -f FILE | --tokens N] [-n N] [options]",
    .details =
        "Reads a prompt and writes tokens after it, and shows for both each kernel's calls, time, "
        "share and time a token beside its floor, and what of the time is in no kernel.\n"
        "One window and one token run untimed before. Shares are of the forward passes.",
    .options = profile_options,
    .n_options = sizeof profile_options / sizeof profile_options[0],
    .defaults = &profile_defaults,
    .args_bytes = sizeof profile_defaults,
    .run = run};
