/* Appending, escaping and number forms of a report's texts. */
#include "lab/lab_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

void lab_text_append(lab_text *t, const char *s, size_t n_bytes) {
  if (t->status == STRATA_OK) t->status = st_string_append(&t->out, s, n_bytes, t->err);
}

void lab_text_puts(lab_text *t, const char *s) { lab_text_append(t, s, strlen(s)); }

void lab_text_printf(lab_text *t, const char *format, ...) {
  char piece[512];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(piece, sizeof piece, format, args);
  va_end(args);
  if (t->status != STRATA_OK) return;
  if (n < 0 || (size_t)n >= sizeof piece)
    t->status = st_error_set(t->err, STRATA_INTERNAL, "report: %d bytes: at most %zu expected", n,
                             sizeof piece - 1);
  else lab_text_append(t, piece, (size_t)n);
}

/* ---- escaping ----------------------------------------------------------------- */

/* Controls, and marks that reorder or hide what is beside them. */
static bool is_invisible(utf8proc_int32_t code) {
  if (code < 0x20) return code != '\t' && code != '\n';
  if (code >= 0x7f && code < 0xa0) return true;
  return code == 0xad || code == 0x61c || (code >= 0x200b && code <= 0x200f) ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

/* One character of s; its bytes are at s .. s + the result. Broken UTF-8 counts
 * as an invisible byte. */
static size_t next_character(const char *s, size_t n_bytes, utf8proc_int32_t *code) {
  utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n_bytes,
                                        code);
  if (n > 0) return (size_t)n;
  *code = (utf8proc_uint8_t)*s;
  return 1;
}

static const char *html_entity(utf8proc_int32_t code) {
  switch (code) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
  }
  return NULL;
}

void lab_text_html(lab_text *t, const char *s, size_t n_bytes) {
  for (size_t i = 0, n; i < n_bytes; i += n) {
    utf8proc_int32_t code;
    n = next_character(s + i, n_bytes - i, &code);
    const char *entity = html_entity(code);
    if (entity) lab_text_puts(t, entity);
    else if (is_invisible(code) || (code > 0x7f && n == 1))
      lab_text_printf(t, "\\u{%x}", (unsigned)code);
    else lab_text_append(t, s + i, n);
  }
}

void lab_text_html_puts(lab_text *t, const char *s) { lab_text_html(t, s, strlen(s)); }

/* What Markdown or the HTML inside it would take for markup. */
static bool is_markup(utf8proc_int32_t code) {
  return code < 0x80 && code && strchr("\\`*_[]<>&|#~", code);
}

static bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* An underscore inside a word is one: names stay readable. */
static bool is_plain_underscore(const char *s, size_t i) {
  return s[i] == '_' && i > 0 && is_word(s[i - 1]) && is_word(s[i + 1]);
}

void lab_text_md(lab_text *t, const char *s) {
  size_t n_bytes = strlen(s);
  for (size_t i = 0, n; i < n_bytes; i += n) {
    utf8proc_int32_t code;
    n = next_character(s + i, n_bytes - i, &code);
    if (code == '\n' || code == '\t') {
      lab_text_puts(t, " ");
      continue;
    }
    if (is_invisible(code) || (code > 0x7f && n == 1)) {
      lab_text_printf(t, "\\\\u{%x}", (unsigned)code);
      continue;
    }
    if (is_markup(code) && !is_plain_underscore(s, i)) lab_text_puts(t, "\\");
    lab_text_append(t, s + i, n);
  }
}

void lab_text_md_block(lab_text *t, const char *s) {
  size_t n_bytes = strlen(s);
  bool at_start = true;
  for (size_t i = 0, n; i < n_bytes; i += n) {
    utf8proc_int32_t code;
    n = next_character(s + i, n_bytes - i, &code);
    if (at_start && code != '\n') lab_text_puts(t, "    ");
    at_start = code == '\n';
    if (is_invisible(code) || (code > 0x7f && n == 1))
      lab_text_printf(t, "\\u{%x}", (unsigned)code);
    else lab_text_append(t, s + i, n);
  }
  if (!at_start) lab_text_puts(t, "\n");
}

void lab_text_shell(lab_text *t, const char *word) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  size_t n_bytes = strlen(word), i = 0;
  if (n_bytes && strspn(word, plain) == n_bytes) {
    lab_text_puts(t, word);
    return;
  }
  lab_text_puts(t, "'");
  while (i < n_bytes) {
    size_t n = strcspn(word + i, "'");
    lab_text_append(t, word + i, n);
    i += n;
    if (i < n_bytes) lab_text_puts(t, "'\\''"), ++i;
  }
  lab_text_puts(t, "'");
}

/* ---- numbers -------------------------------------------------------------------- */

void lab_text_real(lab_text *t, double value, int digits) {
  if (!isfinite(value)) lab_text_puts(t, "-");
  else if (fabs(value) < 1e9) lab_text_printf(t, "%.*f", digits, value);
  else lab_text_printf(t, "%.3e", value);
}

strata_status lab_text_finish(lab_text *t, char **out, size_t *n_bytes) {
  strata_status status = t->status;
  *out = NULL;
  *n_bytes = 0;
  if (status == STRATA_OK) {
    *out = t->out.text;
    *n_bytes = t->out.n_bytes;
    t->out = (st_string){0};
  }
  st_string_release(&t->out);
  return status;
}

/* ---- reading a report ----------------------------------------------------------- */

const char *lab_json_text(const json_t *object, const char *key) {
  const char *s = json_string_value(json_object_get(object, key));
  return s ? s : "";
}

double lab_json_real(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

int64_t lab_json_int(const json_t *object, const char *key) {
  return (int64_t)json_integer_value(json_object_get(object, key));
}

bool lab_json_true(const json_t *object, const char *key) {
  return json_is_true(json_object_get(object, key));
}

double lab_json_end(const json_t *object, const char *key, size_t index) {
  return json_number_value(json_array_get(json_object_get(object, key), index));
}
