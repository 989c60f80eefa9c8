/* Memory between two pages that nobody may touch. */
#ifndef ST_GUARDED_H
#define ST_GUARDED_H

#include "core/st_error.h"

/* n_bytes whose last byte is at most 63 bytes before a page without access; data is
 * aligned to 64 bytes. front and back, the bytes between data and those pages, are
 * readable and writable too: front_bytes >= margin, back_bytes in margin .. margin + 63. */
typedef struct st_guarded {
  uint8_t *pages, *front, *data, *back;
  size_t n_pages_bytes, front_bytes, n_bytes, back_bytes;
} st_guarded;

/* margin: a multiple of 64. Zeroed. */
strata_status st_guarded_new(st_guarded *out, size_t n_bytes, size_t margin, const char *what,
                             strata_error *err);
void st_guarded_free(st_guarded *g);

/* All of front, data and back may be written (as at first), or only be read. */
void st_guarded_let_write(st_guarded *g, bool allowed);

#endif
