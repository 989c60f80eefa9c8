/* Whether a stored report is as it was written: seals, frozen sources, all that is
 * derived from the raw samples, and the rendered files.
 *
 * What it cannot know: whether the samples were measured at all. */
#ifndef LAB_VERIFY_H
#define LAB_VERIFY_H

#include <jansson.h>

#include "core/st_error.h"

/* Where results go: one line a check that holds, and one for each thing that was
 * edited. Lines are for a terminal: control characters are escaped. */
typedef struct lab_verify_sink {
  void (*line)(void *user, bool edited, const char *text);
  void *user;
  int32_t n_edited;
} lab_verify_sink;

/* gives in *report (json_decref) the JSON of a report. ARG, in one line, if it is
 * not JSON, no report, or one of another version; name stands for it in errors. */
strata_status lab_verify_parse(const char *name, const char *text, size_t n_bytes, json_t **report,
                               strata_error *err);

/* What can be told without the other files: seals and numbers. */
strata_status lab_verify_numbers(const json_t *report, lab_verify_sink *sink, strata_error *err);

/* The whole directory. gives in *headline (st_free) the stored report's. ARG if dir
 * is no report directory; what was edited is counted in sink, not an error. */
strata_status lab_verify(const char *dir, lab_verify_sink *sink, char **headline,
                         strata_error *err);

#endif
