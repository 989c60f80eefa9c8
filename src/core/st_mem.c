/* Heap memory: checked sizes, growth, and the one place where tests inject
 * allocation failure. */
#include "core/st_mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Negative: never fail. Counted down by each allocation. */
static _Atomic int64_t fail_countdown = -1;

void st_mem_fail_at(int64_t n) { atomic_store(&fail_countdown, n); }

static bool must_fail(void) {
  if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) < 0) return false;
  return atomic_fetch_sub(&fail_countdown, 1) == 0;
}

strata_status st_calloc(void **out, size_t n, size_t elem_bytes, const char *what,
                        strata_error *err) {
  size_t n_bytes;
  *out = NULL;
  if (__builtin_mul_overflow(n, elem_bytes, &n_bytes) || must_fail() ||
      !(*out = calloc(n_bytes ? n_bytes : 1, 1)))
    return st_error_nomem(err, what, n * elem_bytes);
  return STRATA_OK;
}

strata_status st_calloc_aligned(void **out, size_t n, size_t elem_bytes, const char *what,
                                strata_error *err) {
  size_t n_bytes, rounded;
  *out = NULL;
  if (__builtin_mul_overflow(n, elem_bytes, &n_bytes) ||
      __builtin_add_overflow(n_bytes, 64 + 63, &rounded) || must_fail() ||
      !(*out = aligned_alloc(64, rounded &= ~(size_t)63)))
    return st_error_nomem(err, what, n * elem_bytes);
  memset(*out, 0, rounded);
  return STRATA_OK;
}

strata_status st_grow(void **items, size_t *capacity, size_t need, size_t elem_bytes,
                      const char *what, strata_error *err) {
  if (need <= *capacity) return STRATA_OK;
  size_t wanted = *capacity + *capacity / 2 + 16;
  if (wanted < need) wanted = need;
  size_t n_bytes;
  void *grown = NULL;
  if (__builtin_mul_overflow(wanted, elem_bytes, &n_bytes) || must_fail() ||
      !(grown = realloc(*items, n_bytes)))
    return st_error_nomem(err, what, wanted * elem_bytes);
  *items = grown;
  *capacity = wanted;
  return STRATA_OK;
}

strata_status st_strndup(char **out, const char *s, size_t n, strata_error *err) {
  void *copy;
  *out = NULL;
  ST_TRY(st_calloc(&copy, n + 1, 1, "a string", err));
  memcpy(copy, s, n);
  *out = copy;
  return STRATA_OK;
}

void st_free(void *p) { free(p); }

void strata_free(void *p) { st_free(p); }

strata_status st_string_append(st_string *s, const char *text, size_t n_bytes, strata_error *err) {
  size_t need;
  if (__builtin_add_overflow(s->n_bytes, n_bytes, &need) ||
      __builtin_add_overflow(need, 1, &need))
    return st_error_nomem(err, "a text", n_bytes);
  void *items = s->text;
  ST_TRY(st_grow(&items, &s->capacity, need, 1, "a text", err));
  s->text = items;
  if (n_bytes) memcpy(s->text + s->n_bytes, text, n_bytes);
  s->n_bytes += n_bytes;
  s->text[s->n_bytes] = 0;
  return STRATA_OK;
}

strata_status st_string_puts(st_string *s, const char *text, strata_error *err) {
  return st_string_append(s, text, strlen(text), err);
}

strata_status st_string_printf(st_string *s, strata_error *err, const char *format, ...) {
  char piece[512];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(piece, sizeof piece, format, args);
  va_end(args);
  if (n < 0 || (size_t)n >= sizeof piece)
    ST_FAIL(err, INTERNAL, "text: %d bytes: at most %zu expected", n, sizeof piece - 1);
  return st_string_append(s, piece, (size_t)n, err);
}

void st_string_release(st_string *s) {
  st_free(s->text);
  *s = (st_string){0};
}
