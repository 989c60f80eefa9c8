/* Only constructs that mean the same in both engines pass; these are rewritten:
 *
 *   \s \S  into White_Space spelled out: PCRE2 counts U+180E as well.
 *   \d     into \p{Nd}.
 *   \p{}   general categories only, with the characters added that Unicode
 *          gained from 15 to 16: Oniguruma in tokenizers 0.23 knows them,
 *          PCRE2 10.42 has Unicode 14. Harmless where PCRE2 is newer.
 *   \v \uHHHH  into the code point.
 *
 * Refused by name are, among others: . ^ $ (other ideas of a line), \w \b,
 * scripts (PCRE2 reads them as script extensions), back references, classes
 * within classes, and {n,m}+ (possessive in one, nested in the other). Without
 * regard to case only plain ASCII letters pass, and no pair of letters that
 * Oniguruma folds together with a ligature. */
#include "model/token/st_regex.h"

#include <string.h>

#include "model/token/st_utf8.h"
#include "model/token/st_younger.h"

static const char CATEGORIES[] =
    " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp ";

enum { DEEPEST_GROUP = 64 };

typedef struct translator {
  const char *pattern;
  size_t n, at;
  st_string *out;
  bool in_class;
  bool no_case[DEEPEST_GROUP]; /* per open group */
  int depth;
  strata_error *err;
} translator;

static strata_status refuse(const translator *t, size_t at, const char *why) {
  size_t shown = t->n - at < 12 ? t->n - at : 12;
  return st_error_set(t->err, STRATA_UNSUPPORTED, "regular expression: \"%.*s\" at byte %zu: %s",
                      (int)shown, t->pattern + at, at, why);
}

static char peek(const translator *t, size_t ahead) {
  return t->at + ahead < t->n ? t->pattern[t->at + ahead] : 0;
}

static strata_status put(translator *t, const char *text) {
  return st_string_puts(t->out, text, t->err);
}

static strata_status put_range(translator *t, int32_t first, int32_t last) {
  return st_string_printf(t->out, t->err, "\\x{%x}-\\x{%x}", (unsigned)first, (unsigned)last);
}

static strata_status put_white_space(translator *t, bool negated) {
  int32_t next = 0;
  for (size_t i = 0; i < ST_N_WHITE_SPACE; i++) {
    if (negated)
      ST_TRY(put_range(t, next, ST_WHITE_SPACE[i][0] - 1));
    else
      ST_TRY(put_range(t, ST_WHITE_SPACE[i][0], ST_WHITE_SPACE[i][1]));
    next = ST_WHITE_SPACE[i][1] + 1;
  }
  return negated ? put_range(t, next, 0x10ffff) : STRATA_OK;
}

static strata_status put_category(translator *t, const char *category) {
  ST_TRY(st_string_printf(t->out, t->err, "\\p{%s}", category));
  for (size_t i = 0; i < ST_N_YOUNGER; i++)
    if (strncmp(ST_YOUNGER[i].category, category, strlen(category)) == 0)
      ST_TRY(put_range(t, ST_YOUNGER[i].first, ST_YOUNGER[i].last));
  return STRATA_OK;
}

/* \p{X}, \p{^X} or \P{X}, with at on the backslash. */
static strata_status translate_property(translator *t) {
  size_t begin = t->at, i = t->at + 2;
  bool negated = t->pattern[begin + 1] == 'P';
  char name[4] = {' ', 0, 0, 0}, wanted[6];
  if (i >= t->n || t->pattern[i] != '{') return refuse(t, begin, "{ expected behind \\p");
  if (++i < t->n && t->pattern[i] == '^') {
    negated = !negated;
    i++;
  }
  size_t length = 0;
  while (i + length < t->n && t->pattern[i + length] != '}') length++;
  if (i + length >= t->n || length < 1 || length > 2)
    return refuse(t, begin, "a general category expected");
  memcpy(name, t->pattern + i, length);
  wanted[0] = ' ';
  memcpy(wanted + 1, name, length);
  wanted[length + 1] = ' ';
  wanted[length + 2] = 0;
  name[length] = 0;
  if (!strstr(CATEGORIES, wanted)) return refuse(t, begin, "a general category expected");
  if (negated && t->in_class) return refuse(t, begin, "no negated category within a class");
  t->at = i + length + 1;
  if (!t->in_class) ST_TRY(put(t, negated ? "[^" : "["));
  ST_TRY(put_category(t, name));
  return t->in_class ? STRATA_OK : put(t, "]");
}

static strata_status translate_space(translator *t) {
  bool negated = t->pattern[t->at + 1] == 'S';
  t->at += 2;
  if (!t->in_class) ST_TRY(put(t, "["));
  ST_TRY(put_white_space(t, negated));
  return t->in_class ? STRATA_OK : put(t, "]");
}

static int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* \xHH, \x{H..} or \uHHHH. */
static strata_status translate_code(translator *t) {
  size_t begin = t->at, i = begin + 2, least = 2, most = 2;
  int32_t code = 0;
  bool braces = t->pattern[begin + 1] == 'x' && i < t->n && t->pattern[i] == '{';
  if (t->pattern[begin + 1] == 'u') least = most = 4;
  if (braces) {
    i++;
    least = 1;
    most = 6;
  }
  size_t digits = 0;
  for (; digits < most && i < t->n && hex_value(t->pattern[i]) >= 0; digits++)
    code = code * 16 + hex_value(t->pattern[i++]);
  if (digits < least || (braces && (i >= t->n || t->pattern[i++] != '}')))
    return refuse(t, begin, "hexadecimal digits expected");
  /* A bare \x80 is a byte to Oniguruma, not a character. */
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ||
      (!braces && most == 2 && code > 0x7f))
    return refuse(t, begin, "a code point expected");
  t->at = i;
  return st_string_printf(t->out, t->err, "\\x{%x}", (unsigned)code);
}

static strata_status translate_escape(translator *t) {
  char c = peek(t, 1);
  bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  bool digit = c >= '0' && c <= '9';
  if (t->no_case[t->depth] && (letter || digit))
    return refuse(t, t->at, "only plain letters expected where case is ignored");
  if (c == 'p' || c == 'P') return translate_property(t);
  if (c == 's' || c == 'S') return translate_space(t);
  if (c == 'x' || c == 'u') return translate_code(t);
  if (c == 'd') {
    t->at += 2;
    if (!t->in_class) ST_TRY(put(t, "["));
    ST_TRY(put_category(t, "Nd"));
    return t->in_class ? STRATA_OK : put(t, "]");
  }
  if (c == 'v') {
    t->at += 2;
    return put(t, "\\x{b}");
  }
  bool same = c == 'r' || c == 'n' || c == 't' || c == 'f';
  if (c <= 0x20 || c >= 0x7f || ((letter || digit) && !same))
    return refuse(t, t->at, "this escape is not supported");
  t->at += 2;
  return st_string_append(t->out, (char[]){'\\', c}, 2, t->err);
}

static strata_status translate_group(translator *t) {
  static const char *const OPENINGS[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
  size_t begin = t->at;
  const char *opening = peek(t, 1) == '?' ? NULL : "(";
  for (size_t i = 0; !opening && i < sizeof OPENINGS / sizeof *OPENINGS; i++)
    if (t->n - begin >= strlen(OPENINGS[i]) &&
        memcmp(t->pattern + begin, OPENINGS[i], strlen(OPENINGS[i])) == 0)
      opening = OPENINGS[i];
  if (!opening) return refuse(t, begin, "this kind of group is not supported");
  if (t->depth + 1 >= DEEPEST_GROUP) return refuse(t, begin, "groups are nested too deep");
  t->no_case[t->depth + 1] = t->no_case[t->depth] || strcmp(opening, "(?i:") == 0;
  t->depth++;
  t->at += strlen(opening);
  return put(t, opening);
}

/* {n}, {n,} or {n,m}. */
static strata_status translate_count(translator *t) {
  size_t begin = t->at, i = begin + 1, digits = 0;
  for (; i < t->n && t->pattern[i] >= '0' && t->pattern[i] <= '9'; i++) digits++;
  if (i < t->n && t->pattern[i] == ',')
    for (i++; i < t->n && t->pattern[i] >= '0' && t->pattern[i] <= '9';) i++;
  if (!digits || i >= t->n || t->pattern[i] != '}')
    return refuse(t, begin, "{n}, {n,} or {n,m} expected");
  i++;
  if (i < t->n && (t->pattern[i] == '+' || t->pattern[i] == '?'))
    return refuse(t, begin, "a count without a suffix expected");
  t->at = i;
  return st_string_append(t->out, t->pattern + begin, i - begin, t->err);
}

static strata_status translate_literal(translator *t) {
  static const char *const LIGATURES[] = {"ff", "fi", "fl", "ss", "st"};
  char c = peek(t, 0), pair[3] = {(char)(c | 0x20), (char)(peek(t, 1) | 0x20), 0};
  if (t->no_case[t->depth]) {
    if ((uint8_t)c >= 0x80)
      return refuse(t, t->at, "only plain letters expected where case is ignored");
    for (size_t i = 0; i < sizeof LIGATURES / sizeof *LIGATURES; i++)
      if (strcmp(pair, LIGATURES[i]) == 0)
        return refuse(t, t->at, "these letters fold to a ligature where case is ignored");
  }
  t->at++;
  return st_string_append(t->out, &c, 1, t->err);
}

static strata_status open_class(translator *t) {
  if (t->no_case[t->depth])
    return refuse(t, t->at, "only plain letters expected where case is ignored");
  t->in_class = true;
  t->at++;
  ST_TRY(put(t, "["));
  if (peek(t, 0) == '^') {
    t->at++;
    ST_TRY(put(t, "^"));
  }
  if (peek(t, 0) == ']') return refuse(t, t->at, "a class that is not empty expected");
  return STRATA_OK;
}

static strata_status translate_in_class(translator *t) {
  char c = peek(t, 0);
  if (c == '\\') return translate_escape(t);
  if (c == '[') return refuse(t, t->at, "no class within a class");
  if (c == '&' && peek(t, 1) == '&') return refuse(t, t->at, "no intersection of classes");
  if (c == ']') t->in_class = false;
  return translate_literal(t);
}

static strata_status translate_one(translator *t) {
  switch (peek(t, 0)) {
    case '\\':
      return translate_escape(t);
    case '[':
      return open_class(t);
    case '(':
      return translate_group(t);
    case ')':
      if (t->depth == 0) return refuse(t, t->at, "a group to close expected");
      t->depth--;
      t->at++;
      return put(t, ")");
    case '{':
      return translate_count(t);
    case '.':
    case '^':
    case '$':
      return refuse(t, t->at, "not supported outside a class");
    default:
      return translate_literal(t);
  }
}

strata_status st_regex_translate(const char *pattern, size_t n, st_string *out, strata_error *err) {
  translator t = {.pattern = pattern, .n = n, .out = out, .err = err};
  ST_TRY(put(&t, ""));
  while (t.at < n) {
    if (t.in_class)
      ST_TRY(translate_in_class(&t));
    else
      ST_TRY(translate_one(&t));
  }
  return STRATA_OK;
}
