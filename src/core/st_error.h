/* Making and passing on errors inside the library.
 *
 * A function that can fail returns strata_status and takes a strata_error *err
 * (may be NULL) as its last parameter.
 *
 *   ST_FAIL(err, FORMAT, "%s: tensor %s: ...", path, name)   makes an error
 *   ST_TRY(f(..., err))                                      passes one on
 *
 * Messages are one line: WHAT: WHICH VALUE: WHAT WAS EXPECTED. st_error_set
 * shows control characters and broken UTF-8 in foreign strings as \xNN, so a
 * hostile name cannot draw on the user's terminal. */
#ifndef ST_ERROR_H
#define ST_ERROR_H

#include <strata/strata.h>

strata_status st_error_set(strata_error *err, strata_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
strata_status st_error_nomem(strata_error *err, const char *what, size_t n_bytes);

#define ST_FAIL(err, CODE, ...) return st_error_set((err), STRATA_##CODE, __VA_ARGS__)

#define ST_TRY(call)                                  \
  do {                                                \
    strata_status st_try_status_ = (call);            \
    if (st_try_status_ != STRATA_OK) return st_try_status_; \
  } while (0)

/* The same for functions with one clean-up label "out" and a local "status". */
#define ST_TRY_OUT(call)                     \
  do {                                       \
    status = (call);                         \
    if (status != STRATA_OK) goto out;       \
  } while (0)

#define ST_FAIL_OUT(err, CODE, ...)                                   \
  do {                                                                \
    status = st_error_set((err), STRATA_##CODE, __VA_ARGS__);         \
    goto out;                                                         \
  } while (0)

#endif
