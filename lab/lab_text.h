/* Text that grows while a report is rendered, with the first error kept.
 *
 * Rendering is hundreds of small appends. After a failed one all later appends
 * do nothing, so the renderer asks for the status once, at its end. */
#ifndef LAB_TEXT_H
#define LAB_TEXT_H

#include <jansson.h>

#include "core/st_mem.h"

typedef struct lab_text {
  st_string out;
  strata_status status;
  strata_error *err; /* may be NULL */
} lab_text;

/* Plain bytes. */
void lab_text_puts(lab_text *t, const char *s);
void lab_text_append(lab_text *t, const char *s, size_t n_bytes);
/* At most 511 bytes; foreign strings and %f of foreign numbers do not belong here. */
void lab_text_printf(lab_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Foreign UTF-8 as HTML text or a quoted attribute's value. Besides markup, what
 * draws nothing or turns the direction of writing is shown as \u{NN}, so that
 * a source looks like what the compiler read. Tabs and line ends stay. */
void lab_text_html(lab_text *t, const char *s, size_t n_bytes);
void lab_text_html_puts(lab_text *t, const char *s);
/* Foreign UTF-8 as one line of Markdown text or a cell of a table. */
void lab_text_md(lab_text *t, const char *s);
/* A word of a command as a shell reads it: in quotes where it needs them. */
void lab_text_shell(lab_text *t, const char *word);
/* Foreign UTF-8 as an indented Markdown code block, which nothing inside can end. */
void lab_text_md_block(lab_text *t, const char *s);

/* value with digits behind the point; in exponent form where that would be
 * longer than a dozen digits. Never more than 32 bytes. */
void lab_text_real(lab_text *t, double value, int digits);

/* Moves the text to *out (st_free) or gives the first error; releases t. */
strata_status lab_text_finish(lab_text *t, char **out, size_t *n_bytes);

/* ---- reading a checked report ------------------------------------------------
 * Where a key is missing or null: "", 0, false, or no elements. */
const char *lab_json_text(const json_t *object, const char *key);
double lab_json_real(const json_t *object, const char *key);
int64_t lab_json_int(const json_t *object, const char *key);
bool lab_json_true(const json_t *object, const char *key);
/* An interval's end: index 0 or 1. */
double lab_json_end(const json_t *object, const char *key, size_t index);

#endif
