/* strata logits: what the model says at every position, as bytes and hashes
 * that another run, machine or program can be compared with. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_args.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "os/st_file.h"

/* The logits go to files and hashes as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

enum { WINDOW_MAX = 65536, WINDOW_DEFAULT = 512 };

typedef struct logits_args {
  const char *model, *ids, *prompt, *file, *window, *out, *load_state, *save_state, *kv;
  int32_t top, threads;
  bool literal, json;
} logits_args;

static const logits_args logits_defaults = {0};

static const cli_option logits_options[] = {
    CLI_OPTION_MODEL(logits_args),
    {0, "ids", "LIST", CLI_TEXT, offsetof(logits_args, ids), 0, 0, NULL,
     "token ids separated by commas or spaces; @FILE reads them from FILE"},
    {'p', "prompt", "TEXT", CLI_TEXT, offsetof(logits_args, prompt), 0, 0, NULL,
     "the tokens of TEXT"},
    {'f', "file", "FILE", CLI_TEXT, offsetof(logits_args, file), 0, 0, NULL,
     "the tokens of FILE's text"},
    CLI_OPTION_LITERAL(logits_args),
    {0, "window", "LIST", CLI_TEXT, offsetof(logits_args, window), 0, 0, NULL,
     "tokens that are run at once (default 512): 300, or 128,128,44 for one window after the "
     "other, the last repeated"},
    {0, "out", "FILE", CLI_TEXT, offsetof(logits_args, out), 0, 0, NULL,
     "write the logits to FILE: f32, little-endian, one row of the vocabulary a position"},
    {0, "top", "K", CLI_INT, offsetof(logits_args, top), 0, 1000, NULL,
     "list the K highest logits of each position (default 0)"},
    {0, "load-state", "FILE", CLI_TEXT, offsetof(logits_args, load_state), 0, 0, NULL,
     "start from the sequence saved in FILE"},
    {0, "save-state", "FILE", CLI_TEXT, offsetof(logits_args, save_state), 0, 0, NULL,
     "save the sequence to FILE at the end"},
    CLI_OPTION_KV(logits_args),
    CLI_OPTION_THREADS(logits_args),
    CLI_OPTION_JSON(logits_args),
};

typedef struct logits_job {
  const logits_args *args;
  cli_text text;
  cli_ids ids, windows;
  cli_model model;
  strata_session *session;
  st_writer *writer; /* NULL without --out */
  strata_sha256 *hash;
  int32_t *top_ids; /* [top] */
  json_t *top_json; /* rows of --top with --json, else NULL */
  cli_progress progress;
  int64_t n_done;
  strata_status status; /* of the work in on_window, which only answers yes or no */
  strata_error *err;
} logits_job;

/* ---- input ----------------------------------------------------------------- */

static strata_status check_args(const logits_args *args, const cli_words *words,
                                strata_error *err) {
  int n_sources = (args->ids != NULL) + (args->prompt != NULL) + (args->file != NULL);
  ST_TRY(cli_words_at_most(words, 0, "--ids LIST, -p TEXT or -f FILE", err));
  if (n_sources != 1)
    ST_FAIL(err, ARG, "input: given %d times: one of --ids LIST, -p TEXT and -f FILE expected",
            n_sources);
  if (args->ids && args->literal)
    ST_FAIL(err, ARG, "--literal: with --ids: a text expected");
  ST_TRY(cli_check_output("--out", args->out, err));
  return cli_check_output("--save-state", args->save_state, err);
}

/* What can be read without a model. */
static strata_status read_input(logits_job *job, strata_error *err) {
  const logits_args *args = job->args;
  const char *list = args->ids;
  if (args->window) {
    ST_TRY(cli_ids_parse(&job->windows, args->window, "--window", 1, WINDOW_MAX, err));
    if (!job->windows.n) ST_FAIL(err, ARG, "--window: no lengths: at least one expected");
  }
  if (args->prompt) return cli_text_copy(&job->text, args->prompt, err);
  if (args->file) return cli_text_read(&job->text, args->file, err);
  if (list[0] == '@') {
    ST_TRY(cli_text_read(&job->text, list + 1, err));
    list = job->text.text;
  }
  return cli_ids_parse(&job->ids, list, "--ids", 0, INT32_MAX, err);
}

static strata_status encode_input(logits_job *job, strata_error *err) {
  if (!job->args->ids)
    ST_TRY(cli_ids_encode(&job->ids, job->model.tokenizer, &job->text, job->args->literal, err));
  if (!job->ids.n) ST_FAIL(err, ARG, "input: 0 tokens: at least one expected");
  if (job->ids.n > INT32_MAX)
    ST_FAIL(err, LIMIT, "input: %zu tokens: at most %d expected", job->ids.n, INT32_MAX);
  return STRATA_OK;
}

static strata_status open_session(logits_job *job, strata_error *err) {
  const logits_args *args = job->args;
  strata_session_options options = {.window = job->windows.n ? 1 : WINDOW_DEFAULT,
                                    .kv = cli_kv(args->kv)};
  for (size_t i = 0; i < job->windows.n; i++)
    if (job->windows.items[i] > options.window) options.window = job->windows.items[i];
  ST_TRY(strata_session_new(job->model.model, &options, &job->session, err));
  if (args->load_state) ST_TRY(strata_session_restore(job->session, args->load_state, err));
  return STRATA_OK;
}

/* ---- one window ------------------------------------------------------------ */

/* Whether id a comes before id b: higher logits first, a NaN last, then by id. */
static bool comes_before(const float *row, int32_t a, int32_t b) {
  if (isnan(row[a]) || isnan(row[b])) return isnan(row[a]) ? isnan(row[b]) && a < b : true;
  return row[a] != row[b] ? row[a] > row[b] : a < b;
}

/* fills ids [k] with the ids of the k highest logits by insertion: k is small
 * and most ids fail the first comparison. */
static void top_of_row(const float *row, int32_t n, int32_t k, int32_t *ids) {
  int32_t n_found = 0;
  for (int32_t id = 0; id < n; id++) {
    if (n_found == k && !comes_before(row, id, ids[k - 1])) continue;
    int32_t at = n_found < k ? n_found++ : k - 1;
    for (; at > 0 && comes_before(row, id, ids[at - 1]); at--) ids[at] = ids[at - 1];
    ids[at] = id;
  }
}

static void add_top_json(logits_job *job, int32_t pos, const float *row, int32_t k) {
  json_t *ids = json_array(), *values = json_array();
  for (int32_t i = 0; i < k; i++) {
    json_array_append_new(ids, json_integer(job->top_ids[i]));
    json_array_append_new(values, cli_json_number((double)row[job->top_ids[i]]));
  }
  json_array_append_new(job->top_json, json_pack("{s:i, s:o, s:o}", "position", (int)pos, "ids",
                                                 ids, "logits", values));
}

static void show_top(logits_job *job, int32_t pos, const float *row) {
  int32_t vocab = job->model.info.vocab_size;
  int32_t k = job->args->top < vocab ? job->args->top : vocab;
  top_of_row(row, vocab, k, job->top_ids);
  if (job->top_json) {
    add_top_json(job, pos, row, k);
    return;
  }
  printf("top %d", pos);
  for (int32_t i = 0; i < k; i++)
    printf(" %d:%.9g", job->top_ids[i], (double)row[job->top_ids[i]]);
  putchar('\n');
}

static strata_status take_window(logits_job *job, int32_t pos, int32_t n, const float *logits) {
  size_t vocab = (size_t)job->model.info.vocab_size;
  size_t n_bytes = (size_t)n * vocab * sizeof *logits;
  strata_sha256_update(job->hash, logits, n_bytes);
  if (job->writer) ST_TRY(st_writer_write(job->writer, logits, n_bytes, job->err));
  if (!job->args->top) return STRATA_OK;
  for (int32_t t = 0; t < n; t++) show_top(job, pos + t, logits + (size_t)t * vocab);
  return job->top_json ? STRATA_OK : cli_flush(job->err);
}

static bool on_window(void *user, int32_t pos, int32_t n, const float *logits) {
  logits_job *job = user;
  cli_progress_end(&job->progress);
  job->status = take_window(job, pos, n, logits);
  job->n_done += n;
  cli_progress_at(&job->progress, job->n_done);
  return job->status == STRATA_OK &&
         (!cli_interrupted() || job->n_done == (int64_t)job->ids.n);
}

/* ---- all of them ----------------------------------------------------------- */

static strata_status feed(logits_job *job, strata_error *err) {
  strata_feed_options options = {.windows = job->windows.items,
                                 .n_windows = (int32_t)job->windows.n,
                                 .all_logits = true,
                                 .on_window = on_window,
                                 .user = job};
  job->progress = cli_progress_begin("running", (int64_t)job->ids.n);
  strata_error feed_err = {0};
  strata_status status = strata_session_feed(job->session, job->ids.items, (int32_t)job->ids.n,
                                             &options, &feed_err);
  cli_progress_end(&job->progress);
  /* The reason why on_window stopped says more than that it did. */
  if (job->status != STRATA_OK) return job->status;
  if (status != STRATA_OK) *err = feed_err;
  /* A stop within the last window is not told by the feed. */
  if (status == STRATA_OK && job->n_done < (int64_t)job->ids.n)
    ST_FAIL(err, CANCELLED, "logits: interrupted after %lld tokens", (long long)job->n_done);
  return status;
}

static strata_status print_result(logits_job *job, strata_error *err) {
  char logits_hex[65], state_hex[65];
  strata_sha256_finish(&job->hash, logits_hex);
  strata_session_state_sha256(job->session, state_hex);
  if (!job->args->json) {
    printf("sha256 logits %s\nsha256 state %s\n", logits_hex, state_hex);
    return cli_flush(err);
  }
  json_t *root = json_pack("{s:I, s:i, s:i, s:s, s:s}", "tokens", (json_int_t)job->ids.n,
                           "position", (int)strata_session_position(job->session), "vocab_size",
                           (int)job->model.info.vocab_size, "sha256_logits", logits_hex,
                           "sha256_state", state_hex);
  if (job->top_json) json_object_set(root, "top", job->top_json);
  return cli_json_print(root, err);
}

static strata_status work(logits_job *job, strata_error *err) {
  const logits_args *args = job->args;
  ST_TRY(read_input(job, err));
  ST_TRY(cli_model_open(&job->model, args->model, args->threads, !args->ids, err));
  ST_TRY(encode_input(job, err));
  ST_TRY(open_session(job, err));
  ST_TRY(strata_sha256_new(&job->hash, err));
  if (args->out) ST_TRY(st_writer_open(args->out, &job->writer, err));
  if (args->top) job->top_ids = calloc((size_t)args->top, sizeof *job->top_ids);
  if (args->top && !job->top_ids) return st_error_nomem(err, "--top", (size_t)args->top);
  if (args->top && args->json) job->top_json = json_array();
  ST_TRY(feed(job, err));
  if (job->writer) ST_TRY(st_writer_commit(job->writer, err));
  if (args->save_state) ST_TRY(strata_session_save(job->session, args->save_state, err));
  return print_result(job, err);
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  logits_job job = {.args = command_args, .err = err};
  ST_TRY(check_args(job.args, words, err));
  strata_status status = work(&job, err);
  char unused[65];
  if (job.hash) strata_sha256_finish(&job.hash, unused);
  st_writer_close(&job.writer);
  json_decref(job.top_json);
  free(job.top_ids);
  cli_ids_release(&job.ids);
  cli_ids_release(&job.windows);
  cli_text_release(&job.text);
  strata_session_free(&job.session);
  cli_model_close(&job.model);
  return status;
}

const cli_command cmd_logits = {
    .name = "logits",
    .summary = "write all logits of a text, and their hashes",
    .usage = "[-m DIR] (--ids LIST | --ids @FILE | -p TEXT | -f FILE) [options]",
    .details =
        "Runs the model on the tokens and prints the sha256 of all logits, as --out would write "
        "them, and of the final state. With --top K a line 'top POSITION ID:LOGIT ...' for each "
        "position comes first, with 9 digits, which give the f32 back exactly.\n"
        "With --load-state the tokens continue a saved sequence; positions count from its "
        "start, while logits and their hash are those of the new tokens.",
    .options = logits_options,
    .n_options = sizeof logits_options / sizeof logits_options[0],
    .defaults = &logits_defaults,
    .args_bytes = sizeof logits_defaults,
    .run = run};
