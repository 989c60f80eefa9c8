/* Heap memory with checked sizes, and growing arrays.
 *
 * All heap memory of the library comes from here, so that the fault tests can
 * make any single allocation fail (st_mem_fail_at, test builds only). */
#ifndef ST_MEM_H
#define ST_MEM_H

#include "core/st_error.h"

/* gives zeroed memory for n elements of elem_bytes (n = 0 gives a valid
 * pointer); fills *out with NULL and returns NOMEM on overflow or exhaustion. */
strata_status st_calloc(void **out, size_t n, size_t elem_bytes, const char *what,
                        strata_error *err);
/* As st_calloc, aligned to 64 bytes. Freed with st_free too. */
strata_status st_calloc_aligned(void **out, size_t n, size_t elem_bytes, const char *what,
                                strata_error *err);
/* Grows *items (elements of elem_bytes, *capacity of them) so that it holds at
 * least need elements. On failure nothing changes. */
strata_status st_grow(void **items, size_t *capacity, size_t need, size_t elem_bytes,
                      const char *what, strata_error *err);
/* gives a copy of n bytes with a NUL behind. */
strata_status st_strndup(char **out, const char *s, size_t n, strata_error *err);
void st_free(void *p);

/* A string that grows; text is NUL-terminated after any append. */
typedef struct st_string {
  char *text;
  size_t n_bytes, capacity;
} st_string;
strata_status st_string_append(st_string *s, const char *text, size_t n_bytes, strata_error *err);
strata_status st_string_puts(st_string *s, const char *text, strata_error *err);
strata_status st_string_printf(st_string *s, strata_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void st_string_release(st_string *s);

/* Makes the n-th allocation from now (0 = the next one) fail; -1: none. For the
 * fault tests. */
void st_mem_fail_at(int64_t n);

#endif
