/* Patterns of tokenizer.json, written for Oniguruma, as patterns for PCRE2. */
#ifndef ST_REGEX_H
#define ST_REGEX_H

#include "core/st_mem.h"

/* Appends to out a PCRE2 pattern (UTF and UCP, no other option) that matches
 * what Oniguruma matches for the n bytes at pattern. UNSUPPORTED, naming the
 * construct and its offset, for all whose meaning differs or is not known to
 * agree. Unbalanced brackets are left for the compiler to report. */
strata_status st_regex_translate(const char *pattern, size_t n, st_string *out, strata_error *err);

#endif
