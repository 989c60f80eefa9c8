/* strata lab verify: whether a stored report is as it was written. */
#include <stdio.h>

#include "cli_lab.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "lab/lab_verify.h"

static void print_line(void *user, bool edited, const char *text) {
  (void)user;
  printf("%s %s\n", edited ? "EDITED:" : "PASS", text);
}

static strata_status run(const void *args, const cli_words *words, strata_error *err) {
  (void)args;
  lab_verify_sink sink = {.line = print_line};
  strata_error headline; /* for its escaping of control characters */
  char *text;
  ST_TRY(cli_words_at_most(words, 1, "one directory of a report", err));
  if (words->n == 0) ST_FAIL(err, ARG, "lab verify: no DIR: the directory of a report expected");
  ST_TRY(lab_verify(words->items[0], &sink, &text, err));
  st_error_set(&headline, STRATA_OK, "%s", text);
  strata_free(text);
  if (sink.n_edited == 0) printf("VERIFIED: %s\n", headline.message);
  ST_TRY(cli_flush(err));
  if (sink.n_edited)
    ST_FAIL(err, FORMAT, "lab verify: %s: %d edits: a report as it was written expected",
            words->items[0], sink.n_edited);
  return STRATA_OK;
}

static const char no_args;

const cli_command cmd_lab_verify = {
    .name = "lab verify",
    .summary = "recompute a stored report from its raw samples",
    .usage = "DIR",
    .details = "Recomputes the report in DIR: the seals of all its parts, the hashes of the frozen "
               "sources, "
               "what is derived from the raw samples, and the rendered files.\n"
               "A line a check, VERIFIED and the headline last; EDITED names what was changed and "
               "exits 1; "
               "no report exits 2.",
    .defaults = &no_args,
    .args_bytes = sizeof no_args,
    .run = run};
