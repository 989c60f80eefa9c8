/* Spelling JSON again, from text to text: so the digits of an integer stay as
 * they are, however many. jansson has checked the text before. */
#include "model/token/st_pyjson.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MOST_DIGITS = 17, FIRST_EXPONENT = -4, LAST_EXPONENT = 15 };

strata_status st_pyjson_check(const char *text, const char *what, strata_error *err) {
  json_error_t error;
  if (!text) ST_FAIL(err, ARG, "%s: NULL: a JSON object expected", what);
  /* Integers of any length pass as reals; their value is not used. */
  json_t *value = json_loads(
      text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL,
      &error);
  if (!value && json_error_code(&error) == json_error_out_of_memory)
    return st_error_nomem(err, what, strlen(text));
  if (!value) ST_FAIL(err, ARG, "%s: byte %d: %s", what, error.position, error.text);
  bool is_object = json_is_object(value);
  json_decref(value);
  if (!is_object) ST_FAIL(err, ARG, "%s: not an object: a JSON object expected", what);
  return STRATA_OK;
}

static void skip_space(const char **at) { *at += strspn(*at, " \t\r\n"); }

static unsigned hex4(const char *digits) {
  char text[5] = {0};
  memcpy(text, digits, 4);
  return (unsigned)strtoul(text, NULL, 16);
}

/* Reads one character of a string; *at is on it. */
static int32_t read_character(const char **at) {
  static const char SHORT[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
  utf8proc_int32_t code;
  if (**at != '\\') {
    *at += utf8proc_iterate((const utf8proc_uint8_t *)*at, -1, &code);
    return code;
  }
  const char *c = *at + 1;
  if (*c != 'u') {
    *at += 2;
    return MEANT[strchr(SHORT, *c) - SHORT];
  }
  code = (utf8proc_int32_t)hex4(c + 1);
  *at += 6;
  if (code < 0xd800 || code > 0xdbff) return code;
  /* jansson has seen to it that the other half follows. */
  int32_t low = (int32_t)hex4(*at + 2);
  *at += 6;
  return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

static strata_status put_character(int32_t code, st_string *out, strata_error *err) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t n = utf8proc_encode_char(code, bytes);
  return st_string_append(out, (const char *)bytes, (size_t)n, err);
}

static strata_status put_escaped(int32_t code, st_string *out, strata_error *err) {
  static const char ESCAPED[] = "\"\\\b\f\n\r\t", LETTERS[] = "\"\\bfnrt";
  const char *found = code > 0 && code < 0x80 ? strchr(ESCAPED, code) : NULL;
  if (found) return st_string_append(out, (char[]){'\\', LETTERS[found - ESCAPED]}, 2, err);
  if (code < 0x20) return st_string_printf(out, err, "\\u%04x", (unsigned)code);
  return put_character(code, out, err);
}

strata_status st_pyjson_string(const char **at, st_string *out, strata_error *err) {
  skip_space(at);
  for (++*at; **at != '"';) ST_TRY(put_character(read_character(at), out, err));
  ++*at;
  return STRATA_OK;
}

static strata_status put_string(const char **at, st_string *out, strata_error *err) {
  ST_TRY(st_string_puts(out, "\"", err));
  for (++*at; **at != '"';) ST_TRY(put_escaped(read_character(at), out, err));
  ++*at;
  return st_string_puts(out, "\"", err);
}

/* A double as Python's repr: the fewest digits that give it back, an exponent
 * only below 1e-4 and from 1e16 on. */
static strata_status put_real(double value, st_string *out, strata_error *err) {
  char text[40], digits[MOST_DIGITS + 1];
  size_t n = 0;
  for (int precision = 0; precision < MOST_DIGITS; precision++) {
    snprintf(text, sizeof text, "%.*e", precision, value);
    if (strtod(text, NULL) == value) break;
  }
  const char *mark = strchr(text, 'e');
  for (const char *c = text; c < mark; c++)
    if (*c >= '0' && *c <= '9') digits[n++] = *c;
  digits[n] = 0;
  int exponent = (int)strtol(mark + 1, NULL, 10);
  if (text[0] == '-') ST_TRY(st_string_puts(out, "-", err));
  if (exponent < FIRST_EXPONENT || exponent > LAST_EXPONENT)
    return st_string_printf(out, err, "%c%s%se%+03d", digits[0], n > 1 ? "." : "", digits + 1,
                            exponent);
  if (exponent < 0) {
    ST_TRY(st_string_puts(out, "0.", err));
    for (int i = -1; i > exponent; i--) ST_TRY(st_string_puts(out, "0", err));
    return st_string_puts(out, digits, err);
  }
  for (int i = 0; i <= exponent; i++)
    ST_TRY(st_string_append(out, i < (int)n ? &digits[i] : "0", 1, err));
  ST_TRY(st_string_puts(out, ".", err));
  return st_string_puts(out, (int)n > exponent + 1 ? digits + exponent + 1 : "0", err);
}

static strata_status put_number(const char **at, st_string *out, strata_error *err) {
  const char *begin = *at;
  size_t n = strspn(begin, "+-0123456789.eE"), n_integer = strspn(begin, "-0123456789");
  *at += n;
  if (n != n_integer) return put_real(strtod(begin, NULL), out, err);
  /* The integer -0 is 0. */
  if (n == 2 && begin[0] == '-' && begin[1] == '0') return st_string_puts(out, "0", err);
  return st_string_append(out, begin, n, err);
}

bool st_pyjson_next_key(const char **at) {
  skip_space(at);
  if (**at == '{' || **at == ',') ++*at;
  skip_space(at);
  if (**at != '}') return true;
  ++*at;
  return false;
}

void st_pyjson_to_value(const char **at) {
  skip_space(at);
  ++*at;
  skip_space(at);
}

static strata_status put_object(const char **at, st_string *out, strata_error *err) {
  const char *between = "{";
  while (st_pyjson_next_key(at)) {
    ST_TRY(st_string_puts(out, between, err));
    ST_TRY(put_string(at, out, err));
    ST_TRY(st_string_puts(out, ": ", err));
    st_pyjson_to_value(at);
    ST_TRY(st_pyjson_value(at, out, err));
    between = ", ";
  }
  return st_string_puts(out, *between == '{' ? "{}" : "}", err);
}

static strata_status put_array(const char **at, st_string *out, strata_error *err) {
  ST_TRY(st_string_puts(out, "[", err));
  ++*at;
  for (skip_space(at); **at != ']'; skip_space(at)) {
    if (**at == ',') {
      ST_TRY(st_string_puts(out, ", ", err));
      ++*at;
    }
    ST_TRY(st_pyjson_value(at, out, err));
  }
  ++*at;
  return st_string_puts(out, "]", err);
}

/* Recurses no deeper than jansson's limit of nesting, which is 2048. */
strata_status st_pyjson_value(const char **at, st_string *out, strata_error *err) {
  skip_space(at);
  if (**at == '{') return put_object(at, out, err);
  if (**at == '[') return put_array(at, out, err);
  if (**at == '"') return put_string(at, out, err);
  if (**at == '-' || (**at >= '0' && **at <= '9')) return put_number(at, out, err);
  size_t n = strspn(*at, "aeflnrstu"); /* the letters of true, false and null */
  *at += n;
  return st_string_append(out, *at - n, n, err);
}
