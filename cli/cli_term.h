/* What the user sees while the program works: notes, progress, results, the
 * text of a model as it comes, and how Ctrl-C and a closed pipe end it. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <jansson.h>
#include <strata/strata.h>

/* ---- signals --------------------------------------------------------------- */

/* The next Ctrl-C sets the flag that cli_interrupted reads, the one after it
 * kills. Called again, it clears the flag and starts over. */
void cli_interrupt_arm(void);
bool cli_interrupted(void);
/* Writing to a closed pipe becomes an error instead of a signal, so that
 * temporary files are removed on the way out. */
void cli_ignore_broken_pipes(void);

/* ---- notes and results ----------------------------------------------------- */

/* One line on stderr: "strata: note: ...". */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints an error's line. An empty message is not printed: see cli_flush. */
void cli_print_error(const strata_error *err);

/* Pushes stdout out. IO if that fails; the message is then empty if the reader
 * of a pipe has gone, since nobody is left who wants to know. */
strata_status cli_flush(strata_error *err);

/* A JSON number; null for what JSON has no number for. */
json_t *cli_json_number(double value);
/* Writes root to stdout as one document and a newline. takes root, also on
 * failure; NULL is NOMEM, so that a failed json_pack can be passed on. */
strata_status cli_json_print(json_t *root, strata_error *err);

/* ---- progress -------------------------------------------------------------- */

/* A bar on stderr, drawn only on a terminal and only once the job has taken a
 * second; erased by end. */
typedef struct cli_progress {
  const char *label;
  int64_t total;
  double start_s, drawn_s;
  int32_t columns; /* of the terminal; 0: there is none */
  bool color, visible;
} cli_progress;

/* One line of what is being done, over the one before it; NULL takes it away. Only
 * where stderr is a terminal. */
void cli_progress_note(const char *what);

cli_progress cli_progress_begin(const char *label, int64_t total);
void cli_progress_at(cli_progress *progress, int64_t done);
void cli_progress_end(cli_progress *progress);

/* ---- running a model ------------------------------------------------------- */

/* Feeds ids in windows of the session's length with a progress bar. CANCELLED
 * after Ctrl-C; the session then holds the windows done so far. */
strata_status cli_feed(strata_session *session, const int32_t *ids, size_t n, int32_t window,
                       strata_error *err);

typedef enum cli_stop {
  CLI_STOP_LENGTH,      /* max_tokens were written */
  CLI_STOP_EOS,         /* the model ended its text */
  CLI_STOP_CAPACITY,    /* the model's positions are full */
  CLI_STOP_INTERRUPTED, /* Ctrl-C */
} cli_stop;

const char *cli_stop_name(cli_stop stop);

/* A text that a model continues. The caller sets the first part. */
typedef struct cli_generation {
  strata_session *session; /* has been fed; its logits give the first token */
  const strata_tokenizer *tokenizer;
  strata_sampler *sampler;
  const strata_model_info *info;
  int32_t turn_end;   /* an id that ends the text beside the model's own; -1: none */
  int32_t max_tokens;
  bool ignore_eos;    /* go on over ids that would end the text */
  bool feed_last;     /* the session is to hold all ids, the last one too */
  bool silent;        /* write nothing to stdout */

  int32_t *ids; /* those written, without the one that ended the text */
  size_t n_ids;
  cli_stop stop;
  double start_s, first_s, end_s; /* first_s: 0 if there is no token */
  int32_t n_fed;
} cli_generation;

/* Picks, writes and feeds token after token. A line that was begun is ended
 * with a newline, also after a failure. Released by cli_generation_release. */
strata_status cli_generate(cli_generation *generation, strata_error *err);
void cli_generation_release(cli_generation *generation);

#endif
