/* Status texts and one-line error messages. */
#include "core/st_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

const char *strata_status_text(strata_status status) {
  switch (status) {
#define ROW(name, value, exit_code, text) \
  case STRATA_##name:                     \
    return text;
    STRATA_STATUS_TABLE(ROW)
#undef ROW
  }
  return "unknown status";
}

int strata_status_exit_code(strata_status status) {
  switch (status) {
#define ROW(name, value, exit_code, text) \
  case STRATA_##name:                     \
    return exit_code;
    STRATA_STATUS_TABLE(ROW)
#undef ROW
  }
  return 1;
}

/* Copies raw to out, escaping what must not reach a terminal. */
static void escape_line(char *out, size_t out_bytes, const char *raw) {
  const utf8proc_uint8_t *in = (const utf8proc_uint8_t *)raw;
  utf8proc_ssize_t left = (utf8proc_ssize_t)strlen(raw);
  size_t used = 0;
  while (left > 0) {
    utf8proc_int32_t code;
    utf8proc_ssize_t n = utf8proc_iterate(in, left, &code);
    bool plain = n > 0 && code >= 0x20 && !(code >= 0x7f && code < 0xa0);
    if (n < 1) n = 1;
    char piece[5] = {0};
    if (plain)
      memcpy(piece, in, (size_t)n);
    else {
      n = 1;
      snprintf(piece, sizeof piece, "\\x%02x", in[0]);
    }
    size_t piece_bytes = strlen(piece);
    if (used + piece_bytes >= out_bytes) break;
    memcpy(out + used, piece, piece_bytes);
    used += piece_bytes;
    in += n;
    left -= n;
  }
  out[used] = 0;
}

strata_status st_error_set(strata_error *err, strata_status status, const char *format, ...) {
  if (!err) return status;
  char raw[sizeof err->message];
  va_list args;
  va_start(args, format);
  vsnprintf(raw, sizeof raw, format, args);
  va_end(args);
  err->status = status;
  escape_line(err->message, sizeof err->message, raw);
  return status;
}

strata_status st_error_nomem(strata_error *err, const char *what, size_t n_bytes) {
  return st_error_set(err, STRATA_NOMEM, "out of memory: %zu bytes for %s", n_bytes, what);
}
