/* strata run: reads a prompt and writes how the model continues it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli_args.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "os/st_process.h"

typedef struct run_args {
  const char *model, *prompt, *file, *load_state, *save_state, *stats, *kv;
  const char *capture[2]; /* OP[:LAYER] and a directory */
  int32_t n_tokens, window, threads, capture_calls;
  bool as_chat, literal, ignore_eos, json;
  cli_chat_args chat;
  strata_sampler_options sampling;
} run_args;

static const run_args run_defaults = {
    .n_tokens = 128, .window = 512, .capture_calls = 4, .sampling = CLI_SAMPLING_DEFAULTS};

static const cli_option run_options[] = {
    CLI_OPTION_MODEL(run_args),
    {'p', "prompt", "TEXT", CLI_TEXT, offsetof(run_args, prompt), 0, 0, NULL, "the prompt"},
    {'f', "file", "FILE", CLI_TEXT, offsetof(run_args, file), 0, 0, NULL,
     "read the prompt from FILE"},
    {'n', "tokens", "N", CLI_INT, offsetof(run_args, n_tokens), 0, 2147483647, NULL,
     "write at most N tokens (default 128)"},
    {0, "chat", NULL, CLI_FLAG, offsetof(run_args, as_chat), 0, 0, NULL,
     "the prompt is a user's message, put into the model's chat template"},
    CLI_OPTIONS_CHAT(run_args),
    CLI_OPTION_LITERAL(run_args),
    CLI_OPTIONS_SAMPLING(run_args),
    {0, "ignore-eos", NULL, CLI_FLAG, offsetof(run_args, ignore_eos), 0, 0, NULL,
     "go on when the model ends its text"},
    {0, "load-state", "FILE", CLI_TEXT, offsetof(run_args, load_state), 0, 0, NULL,
     "continue the sequence saved in FILE; the prompt may be missing"},
    {0, "save-state", "FILE", CLI_TEXT, offsetof(run_args, save_state), 0, 0, NULL,
     "save the sequence, all that was written included, to FILE"},
    CLI_OPTION_KV(run_args),
    CLI_OPTION_WINDOW(run_args),
    CLI_OPTION_THREADS(run_args),
    {0, "capture", "OP[:LAYER] DIR", CLI_PAIR, offsetof(run_args, capture), 0, 0, NULL,
     "write what calls of OP read and wrote to DIR/OP-LAYER-CALL.trace, for lab replay"},
    {0, "capture-calls", "N", CLI_INT, offsetof(run_args, capture_calls), 1, 1000000, NULL,
     "capture the first N calls of a layer that read text, and N that write it (default 4)"},
    {0, "stats", "full", CLI_OPTIONAL, offsetof(run_args, stats), 0, 0, "brief|full",
     "speeds beside their floors and memory, to stderr; full: for each op too"},
    CLI_OPTION_JSON(run_args),
};

/* The work on one sequence, from the prompt to the report. */
typedef struct run_job {
  const run_args *args;
  double start_s, feed_s;
  cli_text prompt;
  cli_model model;
  strata_session *session;
  strata_sampler *sampler;
  cli_ids ids;
  cli_generation generation;
  strata_profile feed_profile, decode_profile;
} run_job;

/* ---- prompt ---------------------------------------------------------------- */

static strata_status check_args(const run_args *args, const cli_words *words, strata_error *err) {
  int n_sources = (args->prompt != NULL) + (args->file != NULL) + words->n;
  if (words->n && strcmp(words->items[0], "-"))
    ST_FAIL(err, ARG, "unexpected argument: %s: -p TEXT, -f FILE or - expected", words->items[0]);
  if (n_sources > 1)
    ST_FAIL(err, ARG, "prompt: given %d times: one of -p TEXT, -f FILE and - expected", n_sources);
  if (!args->as_chat && (args->chat.system || args->chat.think || args->chat.effort))
    ST_FAIL(err, ARG, "--system, --think, --effort: without --chat: --chat expected");
  if (args->as_chat && args->literal)
    ST_FAIL(err, ARG, "--literal: with --chat: left out, since messages are always literal, "
            "expected");
  if (!args->capture[0] && args->capture_calls != run_defaults.capture_calls)
    ST_FAIL(err, ARG, "--capture-calls: without --capture: --capture expected");
  /* A template writes whole conversations; it cannot go on inside of one. */
  if (args->as_chat && args->load_state)
    ST_FAIL(err, ARG, "--load-state: with --chat: a raw prompt expected");
  return cli_check_output("--save-state", args->save_state, err);
}

static strata_status read_prompt(run_job *job, const cli_words *words, strata_error *err) {
  const run_args *args = job->args;
  const char *path = args->file;
  if (args->prompt) {
    ST_TRY(cli_text_copy(&job->prompt, args->prompt, err));
  } else {
    if (words->n || (!path && !args->load_state && !isatty(STDIN_FILENO))) path = "-";
    if (path) ST_TRY(cli_text_read(&job->prompt, path, err));
    if (!path && !args->load_state)
      ST_FAIL(err, ARG, "prompt: missing: -p TEXT, -f FILE or - expected");
  }
  if (!job->prompt.n_bytes && !args->load_state)
    ST_FAIL(err, ARG, "prompt: 0 bytes: a text that is not empty expected");
  return STRATA_OK;
}

static strata_status encode_chat(run_job *job, strata_error *err) {
  strata_chat_template *chat_template = NULL;
  strata_message messages[2];
  size_t n = 0;
  if (strlen(job->prompt.text) != job->prompt.n_bytes)
    ST_FAIL(err, FORMAT, "prompt: NUL at byte %zu: a message without NUL bytes expected",
            strlen(job->prompt.text));
  if (job->args->chat.system)
    messages[n++] = (strata_message){.role = "system", .content = job->args->chat.system};
  messages[n++] = (strata_message){.role = "user", .content = job->prompt.text};
  strata_chat_options options = cli_chat_options(&job->args->chat);
  ST_TRY(strata_chat_template_open(job->model.path, &chat_template, err));
  strata_status status = cli_ids_encode_chat(&job->ids, job->model.tokenizer, chat_template,
                                             messages, n, &options, err);
  strata_chat_template_close(&chat_template);
  return status;
}

/* ---- running --------------------------------------------------------------- */

/* OP or OP:LAYER. */
static strata_status start_capture(const run_job *job, strata_error *err) {
  const char *what = job->args->capture[0];
  const char *colon = strchr(what, ':');
  cli_ids layers = {0};
  char op[64];
  snprintf(op, sizeof op, "%.*s", (int)(colon ? (size_t)(colon - what) : strlen(what)), what);
  strata_status status = STRATA_OK;
  if (colon) status = cli_ids_parse(&layers, colon + 1, "--capture", 0, 65535, err);
  if (status == STRATA_OK && colon && layers.n != 1)
    status = st_error_set(err, STRATA_ARG, "--capture: %s: OP or OP:LAYER expected", what);
  if (status == STRATA_OK)
    status = strata_session_capture(
        job->session,
        &(strata_capture_options){.op = op, .layer = colon ? layers.items[0] : -1,
                                  .calls = job->args->capture_calls,
                                  .directory = job->args->capture[1]},
        err);
  cli_ids_release(&layers);
  return status;
}

/* A capture without a call would look like one that went well. */
static strata_status end_capture(const run_job *job, strata_error *err) {
  const int32_t n = strata_session_captured(job->session);
  if (n == 0)
    ST_FAIL(err, ARG, "--capture: %s: not called in this run: one of the ops that --stats=full lists expected",
            job->args->capture[0]);
  cli_note("traces of %s in %s: %d", job->args->capture[0], job->args->capture[1], n);
  return STRATA_OK;
}

static strata_status open_session(run_job *job, strata_error *err) {
  const run_args *args = job->args;
  strata_session_options options = {.window = args->window, .kv = cli_kv(args->kv)};
  ST_TRY(cli_model_open(&job->model, args->model, args->threads, true, err));
  ST_TRY(strata_sampler_new(&args->sampling, job->model.tokenizer, &job->sampler, err));
  ST_TRY(strata_session_new(job->model.model, &options, &job->session, err));
  if (args->load_state) ST_TRY(strata_session_restore(job->session, args->load_state, err));
  if (args->capture[0]) ST_TRY(start_capture(job, err));
  if (args->as_chat) return encode_chat(job, err);
  if (!job->prompt.n_bytes) return STRATA_OK;
  return cli_ids_encode(&job->ids, job->model.tokenizer, &job->prompt, args->literal, err);
}

static strata_status read_and_write(run_job *job, strata_error *err) {
  const run_args *args = job->args;
  bool profile = args->stats != NULL;
  if (profile) strata_session_profile(job->session, true);
  double begin_s = st_clock_seconds();
  if (job->ids.n) ST_TRY(cli_feed(job->session, job->ids.items, job->ids.n, args->window, err));
  job->feed_s = st_clock_seconds() - begin_s;
  if (profile) {
    strata_session_get_profile(job->session, &job->feed_profile);
    strata_session_profile(job->session, true);
  }
  if (!strata_session_logits(job->session))
    ST_FAIL(err, ARG, "prompt: 0 tokens: a text, or a state that holds some, expected");
  job->generation = (cli_generation){
      .session = job->session,
      .tokenizer = job->model.tokenizer,
      .sampler = job->sampler,
      .info = &job->model.info,
      .turn_end =
          args->as_chat ? strata_tokenizer_added_id(job->model.tokenizer, "<|im_end|>") : -1,
      .max_tokens = args->n_tokens,
      .ignore_eos = args->ignore_eos,
      .feed_last = args->save_state != NULL,
      .silent = args->json};
  ST_TRY(cli_generate(&job->generation, err));
  if (profile) strata_session_get_profile(job->session, &job->decode_profile);
  if (args->save_state) ST_TRY(strata_session_save(job->session, args->save_state, err));
  if (args->capture[0]) ST_TRY(end_capture(job, err));
  if (job->generation.stop == CLI_STOP_CAPACITY)
    cli_note("stopped at position %d, the model's last", job->model.info.max_positions);
  return STRATA_OK;
}

/* ---- report ---------------------------------------------------------------- */

/* What --stats and --json tell about a run. */
typedef struct run_stats {
  size_t n_feed, n_decode;
  double feed_s, decode_s, first_s;
  int64_t peak_bytes, planned_bytes;
  int64_t roof_bytes; /* the working set of roof; 0: roof was not measured */
  strata_roof roof;
} run_stats;

static strata_status collect_stats(run_job *job, run_stats *out, strata_error *err) {
  const cli_generation *g = &job->generation;
  strata_session_options options = {.window = job->args->window, .kv = cli_kv(job->args->kv)};
  strata_memory_plan plan;
  ST_TRY(strata_model_plan(job->model.model, &options, strata_session_position(job->session),
                           &plan, err));
  *out = (run_stats){.n_feed = job->ids.n,
                     .n_decode = (size_t)g->n_fed,
                     .feed_s = job->feed_s,
                     .decode_s = g->end_s - g->start_s,
                     .first_s = g->first_s > 0 ? g->first_s - job->start_s : 0,
                     .peak_bytes = st_process_peak_bytes(),
                     .planned_bytes = plan.total_bytes};
  if (!job->args->stats) return STRATA_OK;
  /* After the peak was read: the measurement takes memory of its own. */
  int64_t roof_max = (int64_t)1 << 30, weights = job->model.info.weight_bytes;
  out->roof_bytes = weights < roof_max ? weights : roof_max;
  return strata_engine_roof(job->model.engine, out->roof_bytes, &out->roof, err);
}

/* The least time an op can take on this machine: its weights and state must be
 * read and its products made, and neither hides behind another op. */
static double row_floor(const strata_profile_row *row, const strata_roof *roof) {
  double reading = row->bytes / roof->read_bytes_per_s;
  double computing = row->flops / roof->flops_per_s;
  return reading > computing ? reading : computing;
}

static double profile_floor(const strata_profile *profile, const strata_roof *roof) {
  double sum = 0;
  for (int32_t i = 0; i < profile->n_rows; i++) sum += row_floor(&profile->rows[i], roof);
  return sum;
}

static double per_second(size_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }

static void print_phase(const char *name, size_t n, double seconds, double floor_s) {
  if (!n) return;
  fprintf(stderr, "%-8s %9zu %10.3f %11.1f %10.4f %15.2f\n", name, n, seconds,
          per_second(n, seconds), floor_s, floor_s > 0 ? seconds / floor_s : 0);
}

static void print_profile(const char *name, const strata_profile *profile, double seconds,
                          const strata_roof *roof) {
  fprintf(stderr, "\n%-14s %-16s %9s %10s %7s %10s %15s\n", name, "variant", "calls", "seconds",
          "share", "floor", "measured/floor");
  for (int32_t i = 0; i < profile->n_rows; i++) {
    const strata_profile_row *row = &profile->rows[i];
    double floor_s = row_floor(row, roof);
    fprintf(stderr, "%-14s %-16s %9lld %10.6f %6.1f%% %10.6f", row->op, row->variant,
            (long long)row->calls, row->seconds, seconds > 0 ? 100 * row->seconds / seconds : 0,
            floor_s);
    if (floor_s > 0) fprintf(stderr, " %15.2f", row->seconds / floor_s);
    fputc('\n', stderr);
  }
}

static void print_stats(const run_job *job, const run_stats *s) {
  fprintf(stderr, "%-8s %9s %10s %11s %10s %15s\n", "", "tokens", "seconds", "tokens/s", "floor",
          "measured/floor");
  print_phase("prompt", s->n_feed, s->feed_s, profile_floor(&job->feed_profile, &s->roof));
  print_phase("decode", s->n_decode, s->decode_s, profile_floor(&job->decode_profile, &s->roof));
  fprintf(stderr, "%zu tokens written, stopped by %s", job->generation.n_ids,
          cli_stop_name(job->generation.stop));
  if (s->first_s > 0) fprintf(stderr, ", the first %.3f s after the start", s->first_s);
  fprintf(stderr, "\nmemory: %.1f MB at the peak, %.1f MB planned\n", 1e-6 * (double)s->peak_bytes,
          1e-6 * (double)s->planned_bytes);
  fprintf(stderr, "machine: %s, %d threads, %.1f GFLOP/s, reads %.1f MB at %.1f GB/s\n",
          strata_engine_isa(job->model.engine), strata_engine_threads(job->model.engine),
          1e-9 * s->roof.flops_per_s, 1e-6 * (double)s->roof_bytes,
          1e-9 * s->roof.read_bytes_per_s);
  if (strcmp(job->args->stats, "full")) return;
  print_profile("prompt", &job->feed_profile, s->feed_s, &s->roof);
  print_profile("decode", &job->decode_profile, s->decode_s, &s->roof);
}

static json_t *profile_json(const strata_profile *profile, const strata_roof *roof) {
  json_t *rows = json_array();
  for (int32_t i = 0; i < profile->n_rows; i++) {
    const strata_profile_row *row = &profile->rows[i];
    json_array_append_new(
        rows, json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o}", "op", row->op, "variant",
                        row->variant, "calls", (json_int_t)row->calls, "seconds",
                        cli_json_number(row->seconds), "flops", cli_json_number(row->flops),
                        "bytes", cli_json_number(row->bytes), "floor_seconds",
                        cli_json_number(row_floor(row, roof))));
  }
  return rows;
}

static json_t *phase_json(size_t n, double seconds) {
  return json_pack("{s:I, s:o, s:o}", "tokens", (json_int_t)n, "seconds", cli_json_number(seconds),
                   "tokens_per_second", cli_json_number(per_second(n, seconds)));
}

static void add_floor(json_t *phase, const strata_profile *profile, const run_stats *s) {
  json_object_set_new(phase, "floor_seconds",
                      cli_json_number(profile_floor(profile, &s->roof)));
  json_object_set_new(phase, "ops", profile_json(profile, &s->roof));
}

static json_t *stats_json(const run_job *job, const run_stats *s) {
  json_t *feed = phase_json(s->n_feed, s->feed_s), *decode = phase_json(s->n_decode, s->decode_s);
  json_t *machine = json_pack("{s:s, s:i}", "isa", strata_engine_isa(job->model.engine), "threads",
                              (int)strata_engine_threads(job->model.engine));
  if (s->roof_bytes) {
    add_floor(feed, &job->feed_profile, s);
    add_floor(decode, &job->decode_profile, s);
    json_object_set_new(machine, "flops_per_second", cli_json_number(s->roof.flops_per_s));
    json_object_set_new(machine, "read_bytes_per_second",
                        cli_json_number(s->roof.read_bytes_per_s));
    json_object_set_new(machine, "read_working_set_bytes", json_integer(s->roof_bytes));
  }
  return json_pack("{s:o, s:o, s:o, s:I, s:I, s:o}", "prompt", feed, "decode", decode,
                   "first_token_seconds",
                   s->first_s > 0 ? cli_json_number(s->first_s) : json_null(), "peak_bytes",
                   (json_int_t)s->peak_bytes, "planned_bytes", (json_int_t)s->planned_bytes,
                   "machine", machine);
}

static strata_status print_json(run_job *job, const run_stats *stats, strata_error *err) {
  const cli_generation *g = &job->generation;
  char *text;
  size_t n_bytes;
  ST_TRY(strata_tokenizer_decode(g->tokenizer, g->ids, g->n_ids, true, &text, &n_bytes, err));
  json_t *ids = json_array();
  for (size_t i = 0; i < g->n_ids; i++) json_array_append_new(ids, json_integer(g->ids[i]));
  json_t *root =
      json_pack("{s:o, s:o, s:s, s:o}", "text", json_stringn(text, n_bytes), "ids", ids, "stop",
                cli_stop_name(g->stop), "stats", stats_json(job, stats));
  strata_free(text);
  return cli_json_print(root, err);
}

static strata_status report(run_job *job, strata_error *err) {
  run_stats stats;
  if (!job->args->stats && !job->args->json) return STRATA_OK;
  ST_TRY(collect_stats(job, &stats, err));
  if (job->args->json) return print_json(job, &stats, err);
  print_stats(job, &stats);
  return STRATA_OK;
}

/* ---- command --------------------------------------------------------------- */

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  strata_status status = STRATA_OK;
  run_job job = {.args = command_args, .start_s = st_clock_seconds()};
  ST_TRY(check_args(job.args, words, err));
  ST_TRY_OUT(read_prompt(&job, words, err));
  ST_TRY_OUT(open_session(&job, err));
  ST_TRY_OUT(read_and_write(&job, err));
  ST_TRY_OUT(report(&job, err));
  if (job.generation.stop == CLI_STOP_INTERRUPTED)
    ST_FAIL_OUT(err, CANCELLED, "run: interrupted after %zu tokens", job.generation.n_ids);
out:
  cli_generation_release(&job.generation);
  cli_ids_release(&job.ids);
  cli_text_release(&job.prompt);
  strata_sampler_free(&job.sampler);
  strata_session_free(&job.session);
  cli_model_close(&job.model);
  return status;
}

const cli_command cmd_run = {
    .name = "run",
    .summary = "continue a prompt",
    .usage = "[-m DIR] [-p TEXT | -f FILE | -] [options]",
    .details =
        "Reads the prompt and writes how the model continues it, token by token. Without -p and "
        "-f the prompt is standard input, unless that is a terminal.\n"
        "The prompt is raw model text: names of added tokens such as <|im_end|> count as these "
        "tokens unless --literal is given. With --chat it is a message and never does.",
    .options = run_options,
    .n_options = sizeof run_options / sizeof run_options[0],
    .defaults = &run_defaults,
    .args_bytes = sizeof run_defaults,
    .run = run};
