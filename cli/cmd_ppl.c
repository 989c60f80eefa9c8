/* strata ppl: how well a model predicts a text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli_args.h"
#include "cli_term.h"
#include "core/st_error.h"

enum { PPL_CTX_DEFAULT = 2048 };

typedef struct ppl_args {
  const char *model, *file, *kv;
  int32_t ctx, window, threads;
  bool literal, json;
} ppl_args;

static const ppl_args ppl_defaults = {.window = 512};

static const cli_option ppl_options[] = {
    CLI_OPTION_MODEL(ppl_args),
    {'f', "file", "FILE", CLI_TEXT, offsetof(ppl_args, file), 0, 0, NULL,
     "the text; - reads standard input"},
    {0, "ctx", "N", CLI_INT, offsetof(ppl_args, ctx), 2, 2147483647, NULL,
     "tokens of a chunk (default: 2048, or the model's positions if those are fewer)"},
    CLI_OPTION_LITERAL(ppl_args),
    CLI_OPTION_KV(ppl_args),
    CLI_OPTION_WINDOW(ppl_args),
    CLI_OPTION_THREADS(ppl_args),
    CLI_OPTION_JSON(ppl_args),
};

/* Sums over the predicted tokens. The mean and the squares around it are kept
 * by Welford's update, which does not cancel as sums of squares do. */
typedef struct ppl_job {
  const ppl_args *args;
  cli_text text;
  cli_ids ids;
  cli_model model;
  strata_session *session;
  cli_progress progress;
  int32_t ctx;
  int64_t chunk_start; /* index in ids of the running chunk */
  int64_t chunk_tokens, n_chunks, n_counted;
  double mean, squares;
} ppl_job;

/* -log softmax(row)[target], by the log of the sum of exponentials of the
 * distances to the maximum. */
static double token_nll(const float *row, int32_t n, int32_t target) {
  double max = (double)row[0], sum = 0;
  for (int32_t i = 1; i < n; i++)
    if ((double)row[i] > max) max = (double)row[i];
  for (int32_t i = 0; i < n; i++) sum += exp((double)row[i] - max);
  return max + log(sum) - (double)row[target];
}

static void count_token(ppl_job *job, double nll) {
  double off = nll - job->mean;
  job->n_counted++;
  job->mean += off / (double)job->n_counted;
  job->squares += off * (nll - job->mean);
}

static bool on_window(void *user, int32_t pos, int32_t n, const float *logits) {
  ppl_job *job = user;
  int32_t vocab = job->model.info.vocab_size;
  const int32_t *chunk = job->ids.items + job->chunk_start;
  for (int32_t t = pos; t < pos + n && t + 1 < job->chunk_tokens; t++)
    count_token(job, token_nll(logits + (size_t)(t - pos) * (size_t)vocab, vocab, chunk[t + 1]));
  cli_progress_at(&job->progress, job->chunk_start + pos + n);
  return !cli_interrupted();
}

static strata_status run_chunks(ppl_job *job, strata_error *err) {
  strata_feed_options options = {.all_logits = true, .on_window = on_window, .user = job};
  int64_t n = (int64_t)job->ids.n;
  /* A last chunk of one token would predict nothing. */
  for (; job->chunk_start + 1 < n; job->chunk_start += job->ctx) {
    int64_t left = n - job->chunk_start;
    job->chunk_tokens = left < job->ctx ? left : job->ctx;
    strata_session_reset(job->session);
    ST_TRY(strata_session_feed(job->session, job->ids.items + job->chunk_start,
                               (int32_t)job->chunk_tokens, &options, err));
    /* A stop within the last window is not told by the feed. */
    if (cli_interrupted()) ST_FAIL(err, CANCELLED, "ppl: interrupted");
    job->n_chunks++;
  }
  return STRATA_OK;
}

static strata_status prepare(ppl_job *job, strata_error *err) {
  const ppl_args *args = job->args;
  ST_TRY(cli_text_read(&job->text, args->file, err));
  ST_TRY(cli_model_open(&job->model, args->model, args->threads, true, err));
  int32_t max_positions = job->model.info.max_positions;
  job->ctx = args->ctx ? args->ctx : PPL_CTX_DEFAULT;
  if (!args->ctx && job->ctx > max_positions) job->ctx = max_positions;
  if (job->ctx > max_positions)
    ST_FAIL(err, ARG, "--ctx: %d: at most the model's %d positions expected", job->ctx,
            max_positions);
  ST_TRY(cli_ids_encode(&job->ids, job->model.tokenizer, &job->text, args->literal, err));
  if (job->ids.n < 2)
    ST_FAIL(err, ARG, "%s: %zu tokens: a text of at least 2 tokens expected", args->file,
            job->ids.n);
  strata_session_options options = {
      .capacity = job->ctx, .window = args->window, .kv = cli_kv(args->kv)};
  return strata_session_new(job->model.model, &options, &job->session, err);
}

static strata_status print_result(const ppl_job *job, strata_error *err) {
  double n = (double)job->n_counted, ppl = exp(job->mean);
  /* One token has no spread; its error is unknown, not zero. */
  double nll_error = n > 1 ? sqrt(job->squares / (n - 1) / n) : (double)NAN;
  /* To first order, the error of exp(x) is exp(x) times that of x. */
  double ppl_error = ppl * nll_error;
  if (job->args->json)
    return cli_json_print(
        json_pack("{s:I, s:I, s:i, s:I, s:o, s:o, s:o, s:o}", "tokens", (json_int_t)job->ids.n,
                  "tokens_counted", (json_int_t)job->n_counted, "ctx", (int)job->ctx, "chunks",
                  (json_int_t)job->n_chunks, "mean_nll", cli_json_number(job->mean),
                  "mean_nll_error", cli_json_number(nll_error), "perplexity",
                  cli_json_number(ppl), "perplexity_error", cli_json_number(ppl_error)),
        err);
  printf("tokens      %lld counted of %zu, in %lld chunks of up to %d\n",
         (long long)job->n_counted, job->ids.n, (long long)job->n_chunks, job->ctx);
  printf("mean nll    %.6f +- %.6f nats per token\n", job->mean, nll_error);
  printf("perplexity  %.4f +- %.4f\n", ppl, ppl_error);
  return cli_flush(err);
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  strata_status status = STRATA_OK;
  ppl_job job = {.args = command_args};
  ST_TRY(cli_words_at_most(words, 0, "-f FILE", err));
  if (!job.args->file) ST_FAIL(err, ARG, "--file: missing: a text expected");
  ST_TRY_OUT(prepare(&job, err));
  job.progress = cli_progress_begin("running", (int64_t)job.ids.n);
  ST_TRY_OUT(run_chunks(&job, err));
  cli_progress_end(&job.progress);
  ST_TRY_OUT(print_result(&job, err));
out:
  cli_progress_end(&job.progress);
  cli_ids_release(&job.ids);
  cli_text_release(&job.text);
  strata_session_free(&job.session);
  cli_model_close(&job.model);
  return status;
}

const cli_command cmd_ppl = {
    .name = "ppl",
    .summary = "measure how well a model predicts a text",
    .usage = "[-m DIR] -f FILE [options]",
    .details =
        "Prints the mean negative log likelihood of the text's tokens in nats, the perplexity, "
        "which is its exponential, and the standard error of both, which takes the tokens as "
        "independent.\n"
        "The text is cut into chunks of --ctx tokens that do not overlap; each starts from an "
        "empty sequence, so its first token is context only and is not counted.",
    .options = ppl_options,
    .n_options = sizeof ppl_options / sizeof ppl_options[0],
    .defaults = &ppl_defaults,
    .args_bytes = sizeof ppl_defaults,
    .run = run};
