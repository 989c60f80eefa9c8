/* Signals, notes, results, progress, and streaming a model's text. */
#include "cli_term.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/st_error.h"
#include "os/st_process.h"

/* ---- signals --------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

void cli_interrupt_arm(void) {
  /* RESETHAND leaves the default action, which kills, to a second Ctrl-C; there
   * is no RESTART, so that a read waiting for input ends at the first. */
  struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
  sigemptyset(&action.sa_mask);
  interrupted = 0;
  sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void) { return interrupted != 0; }

void cli_ignore_broken_pipes(void) {
  struct sigaction action = {.sa_handler = SIG_IGN};
  sigemptyset(&action.sa_mask);
  sigaction(SIGPIPE, &action, NULL);
}

/* ---- notes and results ----------------------------------------------------- */

void cli_note(const char *format, ...) {
  char raw[sizeof((strata_error *)0)->message];
  strata_error line; /* for its escaping of control characters */
  va_list args;
  va_start(args, format);
  vsnprintf(raw, sizeof raw, format, args);
  va_end(args);
  st_error_set(&line, STRATA_OK, "%s", raw);
  fprintf(stderr, "strata: note: %s\n", line.message);
}

void cli_print_error(const strata_error *err) {
  if (err->message[0]) fprintf(stderr, "strata: %s\n", err->message);
}

strata_status cli_flush(strata_error *err) {
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout)) return STRATA_OK;
  if (errno == EPIPE) ST_FAIL(err, IO, "%s", "");
  ST_FAIL(err, IO, "standard output: %s: an output that takes the result expected",
          errno ? strerror(errno) : "writing failed");
}

json_t *cli_json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

strata_status cli_json_print(json_t *root, strata_error *err) {
  if (!root) ST_FAIL(err, NOMEM, "out of memory: the result as JSON");
  /* 9 digits give every f32 back exactly. */
  int failed = json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  json_decref(root);
  if (failed && !ferror(stdout)) ST_FAIL(err, NOMEM, "out of memory: the result as JSON");
  putchar('\n');
  return cli_flush(err);
}

/* ---- progress -------------------------------------------------------------- */

void cli_progress_note(const char *what) {
  int32_t columns = st_terminal_columns(STDERR_FILENO);
  if (columns < 2) return;
  fprintf(stderr, "\r%*s\r", (int)columns - 1, "");
  if (what) fprintf(stderr, "%.*s ...", (int)columns - 6 > 0 ? (int)columns - 6 : 0, what);
  fflush(stderr);
}

cli_progress cli_progress_begin(const char *label, int64_t total) {
  return (cli_progress){.label = label,
                        .total = total > 0 ? total : 1,
                        .start_s = st_clock_seconds(),
                        .columns = st_terminal_columns(STDERR_FILENO),
                        .color = !st_env_no_color()};
}

void cli_progress_at(cli_progress *progress, int64_t done) {
  enum { BAR = 24 };
  static const char full[] = "########################", empty[] = "........................";
  double now = st_clock_seconds();
  /* Ten pictures a second are enough for an eye. */
  if (!progress->columns || now - progress->start_s < 1 || now - progress->drawn_s < 0.1) return;
  if (done <= 0) return;
  double share = (double)done / (double)progress->total;
  int filled = (int)(share * BAR), left_s = (int)((now - progress->start_s) * (1 / share - 1));
  char text[96];
  int n = snprintf(text, sizeof text, "%s %3.0f%% %lld/%lld, %d s left", progress->label,
                   100 * share, (long long)done, (long long)progress->total, left_s);
  if (n + BAR + 4 > progress->columns) return;
  fprintf(stderr, "\r[%s%.*s%s%.*s] %s ", progress->color ? "\033[32m" : "", filled, full,
          progress->color ? "\033[0m" : "", BAR - filled, empty, text);
  progress->drawn_s = now;
  progress->visible = true;
}

void cli_progress_end(cli_progress *progress) {
  /* Blanks, not an escape sequence: they erase on every kind of terminal. */
  if (progress->visible) fprintf(stderr, "\r%*s\r", (int)progress->columns - 1, "");
  progress->visible = false;
}

/* ---- running a model ------------------------------------------------------- */

typedef struct feed_watch {
  cli_progress progress;
  int64_t done;
  int32_t window;
} feed_watch;

static bool on_window(void *user, int32_t pos, int32_t n, const float *logits) {
  feed_watch *watch = user;
  (void)pos;
  (void)n;
  (void)logits;
  watch->done += watch->window;
  if (watch->done > watch->progress.total) watch->done = watch->progress.total;
  cli_progress_at(&watch->progress, watch->done);
  /* A Ctrl-C after the last window has nothing left to stop here. */
  return !cli_interrupted() || watch->done == watch->progress.total;
}

strata_status cli_feed(strata_session *session, const int32_t *ids, size_t n, int32_t window,
                       strata_error *err) {
  if (n > INT32_MAX) ST_FAIL(err, LIMIT, "prompt: %zu tokens: at most %d expected", n, INT32_MAX);
  feed_watch watch = {.progress = cli_progress_begin("reading", (int64_t)n), .window = window};
  strata_feed_options options = {.on_window = on_window, .user = &watch};
  strata_status status = strata_session_feed(session, ids, (int32_t)n, &options, err);
  cli_progress_end(&watch.progress);
  return status;
}

const char *cli_stop_name(cli_stop stop) {
  switch (stop) {
    case CLI_STOP_LENGTH: return "length";
    case CLI_STOP_EOS: return "eos";
    case CLI_STOP_CAPACITY: return "capacity";
    case CLI_STOP_INTERRUPTED: return "interrupted";
  }
  return "unknown";
}

static bool ends_text(const cli_generation *g, int32_t id) {
  if (g->ignore_eos) return false;
  for (int32_t i = 0; i < g->info->n_eos_ids; i++)
    if (g->info->eos_ids[i] == id) return true;
  return id == g->turn_end;
}

/* Writes a piece of text at once; *last is its last byte. */
static strata_status write_piece(const cli_generation *g, const char *text, size_t n_bytes,
                                 char *last, strata_error *err) {
  if (g->silent || !n_bytes) return STRATA_OK;
  *last = text[n_bytes - 1];
  fwrite(text, 1, n_bytes, stdout);
  return cli_flush(err);
}

static strata_status keep_id(cli_generation *g, int32_t id, strata_error *err) {
  size_t n = g->n_ids;
  /* Grown at powers of two, so n itself tells the capacity. */
  if ((n & (n - 1)) == 0) {
    size_t n_bytes = (n ? 2 * n : 1) * sizeof id;
    int32_t *moved = realloc(g->ids, n_bytes);
    if (!moved) return st_error_nomem(err, "token ids", n_bytes);
    g->ids = moved;
  }
  g->ids[g->n_ids++] = id;
  return STRATA_OK;
}

/* Picks a token, and keeps and writes it unless it ends the text (*ended). */
static strata_status write_token(cli_generation *g, strata_decoder *decoder, int32_t *id,
                                 bool *ended, char *last, strata_error *err) {
  const char *text;
  size_t n_bytes;
  ST_TRY(strata_sampler_pick(g->sampler, strata_session_logits(g->session), g->info->vocab_size,
                             id, err));
  if (g->first_s == 0) g->first_s = st_clock_seconds();
  *ended = ends_text(g, *id);
  if (*ended) return STRATA_OK;
  ST_TRY(keep_id(g, *id, err));
  ST_TRY(strata_decoder_push(decoder, *id, &text, &n_bytes, err));
  return write_piece(g, text, n_bytes, last, err);
}

/* The loop of cli_generate; leaves the reason of its end in g->stop. */
static strata_status write_tokens(cli_generation *g, strata_decoder *decoder, char *last,
                                  strata_error *err) {
  int32_t id;
  bool ended;
  g->stop = CLI_STOP_LENGTH;
  while (g->n_ids < (size_t)g->max_tokens) {
    g->stop = CLI_STOP_INTERRUPTED;
    if (cli_interrupted()) break;
    ST_TRY(write_token(g, decoder, &id, &ended, last, err));
    g->stop = CLI_STOP_EOS;
    if (ended) break;
    g->stop = CLI_STOP_CAPACITY;
    if (strata_session_position(g->session) >= g->info->max_positions) break;
    g->stop = CLI_STOP_LENGTH;
    if (g->n_ids == (size_t)g->max_tokens && !g->feed_last) break;
    ST_TRY(strata_session_feed(g->session, &id, 1, NULL, err));
    g->n_fed++;
  }
  return STRATA_OK;
}

strata_status cli_generate(cli_generation *g, strata_error *err) {
  strata_status status = STRATA_OK;
  strata_decoder *decoder = NULL;
  const char *text;
  size_t n_bytes;
  char last = '\n';
  g->start_s = st_clock_seconds();
  ST_TRY_OUT(strata_decoder_new(g->tokenizer, true, &decoder, err));
  ST_TRY_OUT(write_tokens(g, decoder, &last, err));
  ST_TRY_OUT(strata_decoder_finish(decoder, &text, &n_bytes, err));
  ST_TRY_OUT(write_piece(g, text, n_bytes, &last, err));
out:
  g->end_s = st_clock_seconds();
  if (last != '\n') putchar('\n');
  if (status == STRATA_OK) status = cli_flush(err);
  strata_decoder_free(&decoder);
  return status;
}

void cli_generation_release(cli_generation *generation) {
  free(generation->ids);
  generation->ids = NULL;
  generation->n_ids = 0;
}
