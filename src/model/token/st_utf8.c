/* UTF-8 by the byte ranges of table 3-7 of the Unicode standard, and the
 * character classes behind lstrip, rstrip and single_word. */
#include "model/token/st_utf8.h"

#include <string.h>
#include <utf8proc.h>

#include "model/token/st_younger.h"

int st_utf8_length(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

bool st_utf8_follows(const uint8_t *prefix, int n, uint8_t byte) {
  uint8_t low = 0x80, high = 0xbf;
  if (n == 1) {
    if (prefix[0] == 0xe0) low = 0xa0;
    if (prefix[0] == 0xed) high = 0x9f;
    if (prefix[0] == 0xf0) low = 0x90;
    if (prefix[0] == 0xf4) high = 0x8f;
  }
  return byte >= low && byte <= high;
}

strata_status st_utf8_check(const char *text, size_t n, const char *what, strata_error *err) {
  const uint8_t *bytes = (const uint8_t *)text;
  size_t i = 0;
  while (i < n) {
    int length = st_utf8_length(bytes[i]), have = 1;
    while (have < length && i + (size_t)have < n &&
           st_utf8_follows(bytes + i, have, bytes[i + (size_t)have]))
      have++;
    if (have != length)
      ST_FAIL(err, FORMAT, "%s: byte %zu is 0x%02x: valid UTF-8 expected", what, i, bytes[i]);
    i += (size_t)length;
  }
  return STRATA_OK;
}

int32_t st_utf8_read(const char *text, size_t n, size_t *length) {
  utf8proc_int32_t code = 0;
  *length = (size_t)st_utf8_length((uint8_t)text[0]);
  utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &code);
  return code;
}

int32_t st_utf8_read_back(const char *text, size_t end, size_t *length) {
  size_t begin = end - 1;
  while (begin > 0 && ((uint8_t)text[begin] & 0xc0) == 0x80) begin--;
  return st_utf8_read(text + begin, end - begin, length);
}

const int32_t ST_WHITE_SPACE[][2] = {
    {0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
};
const size_t ST_N_WHITE_SPACE = sizeof ST_WHITE_SPACE / sizeof ST_WHITE_SPACE[0];

bool st_is_white_space(int32_t code) {
  for (size_t i = 0; i < ST_N_WHITE_SPACE; i++)
    if (code >= ST_WHITE_SPACE[i][0] && code <= ST_WHITE_SPACE[i][1]) return true;
  return false;
}

/* The general category in two letters. */
static const char *category_of(int32_t code) {
  for (size_t i = 0; i < ST_N_YOUNGER; i++)
    if (code >= ST_YOUNGER[i].first && code <= ST_YOUNGER[i].last) return ST_YOUNGER[i].category;
  return utf8proc_category_string(code);
}

static bool is_word_category(const char *category) {
  return category[0] == 'L' || category[0] == 'M' || strcmp(category, "Nd") == 0 ||
         strcmp(category, "Nl") == 0 || strcmp(category, "Pc") == 0;
}

bool st_is_word(int32_t code) {
  if (code == 0x200c || code == 0x200d) return true;
  /* Circled and squared letters are symbols that count as alphabetic. */
  if ((code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
      (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189))
    return true;
  return is_word_category(category_of(code));
}
