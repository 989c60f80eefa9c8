/* Characters that Unicode gained in versions 15 to 16. The reference knows them;
 * the libraries strata builds on may not: PCRE2 10.42 has Unicode 14, utf8proc
 * 2.8 has 15. Adding them to what a newer library knows changes nothing. */
#ifndef ST_YOUNGER_H
#define ST_YOUNGER_H

#include <stddef.h>
#include <stdint.h>

/* By general category, then ascending; first and last are included. */
typedef struct st_younger {
  char category[3];
  int32_t first, last;
} st_younger;

extern const st_younger ST_YOUNGER[];
extern const size_t ST_N_YOUNGER;

#endif
