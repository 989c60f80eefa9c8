/* A scanner for the literals of {{ }} blocks; the rest of Jinja is not read. */
#include "model/token/st_jinja.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Digits of \x, \u and \U. */
static int digits_of(char letter) { return letter == 'x' ? 2 : letter == 'u' ? 4 : 8; }

static strata_status put_code(const char *digits, int n, st_string *out, strata_error *err) {
  char text[9] = {0};
  utf8proc_uint8_t bytes[4];
  if (strspn(digits, "0123456789abcdefABCDEF") < (size_t)n)
    ST_FAIL(err, UNSUPPORTED, "chat template: \\%.9s: %d hexadecimal digits expected", digits - 1,
            n);
  memcpy(text, digits, (size_t)n);
  unsigned long code = strtoul(text, NULL, 16);
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
    ST_FAIL(err, UNSUPPORTED, "chat template: \\%.9s: a character expected", digits - 1);
  utf8proc_ssize_t length = utf8proc_encode_char((utf8proc_int32_t)code, bytes);
  return st_string_append(out, (const char *)bytes, (size_t)length, err);
}

/* Appends what an escape means, at its letter; *at moves behind it. */
static strata_status read_escape(const char **at, st_string *out, strata_error *err) {
  static const char LETTERS[] = "ntrabfv\\'\"", MEANT[] = "\n\t\r\a\b\f\v\\'\"";
  char c = *(*at)++;
  const char *found = c ? strchr(LETTERS, c) : NULL;
  if (found) return st_string_append(out, &MEANT[found - LETTERS], 1, err);
  if (c == '\n') return STRATA_OK; /* a line that goes on */
  if (c == 'x' || c == 'u' || c == 'U') {
    const char *digits = *at;
    ST_TRY(put_code(digits, digits_of(c), out, err));
    *at += digits_of(c);
    return STRATA_OK;
  }
  if (!c || c == 'N' || (c >= '0' && c <= '7'))
    ST_FAIL(err, UNSUPPORTED, "chat template: escape \\%c: not supported", c ? c : ' ');
  return st_string_append(out, (char[]){'\\', c}, 2, err);
}

/* Appends the literal whose quote is at *at; *at moves behind it. */
static strata_status read_literal(const char **at, st_string *out, strata_error *err) {
  char quote = *(*at)++;
  ST_TRY(st_string_append(out, "", 0, err));
  while (**at && **at != quote) {
    if (**at == '\\') {
      ++*at;
      ST_TRY(read_escape(at, out, err));
    } else {
      ST_TRY(st_string_append(out, (*at)++, 1, err));
    }
  }
  if (**at) ++*at;
  return STRATA_OK;
}

/* Moves behind the next {{, over comments and {% %}; false if there is none. */
static bool next_output(const char **at) {
  for (;;) {
    const char *open = strchr(*at, '{');
    if (!open) return false;
    *at = open + 1;
    if (open[1] == '{') {
      *at = open + 2;
      return true;
    }
    if (open[1] == '#') {
      const char *close = strstr(open + 2, "#}");
      if (!close) return false;
      *at = close + 2;
    }
  }
}

/* The next literal of the block *at is in, or false at its end. */
static bool next_literal(const char **at) {
  *at += strcspn(*at, "'\"}");
  return **at == '\'' || **at == '"';
}

strata_status st_jinja_text_after(const char *source, const char *opening, st_string *out,
                                  strata_error *err) {
  strata_status status = STRATA_OK;
  st_string literal = {0};
  bool found = false;
  size_t n_before = out->n_bytes, n_opening = strlen(opening);
  const char *at = source;
  while (!(found && out->n_bytes > n_before) && next_output(&at)) {
    bool next_block = found;
    while (next_literal(&at)) {
      literal.n_bytes = 0;
      ST_TRY_OUT(read_literal(&at, &literal, err));
      size_t skip = 0;
      if (!found) {
        if (strncmp(literal.text, opening, n_opening) != 0) continue;
        found = true;
        skip = n_opening;
      }
      ST_TRY_OUT(st_string_append(out, literal.text + skip, literal.n_bytes - skip, err));
    }
    if (next_block) break;
  }
out:
  st_string_release(&literal);
  return status;
}
