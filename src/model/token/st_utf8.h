/* UTF-8 and the few character classes that tokenizing needs. */
#ifndef ST_UTF8_H
#define ST_UTF8_H

#include "core/st_error.h"

/* Bytes of the character that lead begins: 1 .. 4, or 0 if none begins so. */
int st_utf8_length(uint8_t lead);
/* Whether byte may follow the n >= 1 bytes of a character begun in prefix.
 * Overlong forms, surrogates and values past U+10FFFF have no continuation. */
bool st_utf8_follows(const uint8_t *prefix, int n, uint8_t byte);

/* FORMAT, naming what and the byte offset, unless the n bytes are UTF-8. */
strata_status st_utf8_check(const char *text, size_t n, const char *what, strata_error *err);

/* The code point at text, of n >= 1 bytes of valid UTF-8; fills its length. */
int32_t st_utf8_read(const char *text, size_t n, size_t *length);
/* The code point that ends at text + end, end >= 1; fills its length. */
int32_t st_utf8_read_back(const char *text, size_t end, size_t *length);

/* The Unicode property White_Space, as inclusive ranges in ascending order. */
extern const int32_t ST_WHITE_SPACE[][2];
extern const size_t ST_N_WHITE_SPACE;
bool st_is_white_space(int32_t code);
/* Letters, marks, digits, connectors and joiners: what \w means in Unicode. */
bool st_is_word(int32_t code);

#endif
