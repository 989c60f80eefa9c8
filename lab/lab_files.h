/* Small files that a user names and that a report is made of. */
#ifndef LAB_FILES_H
#define LAB_FILES_H

#include "core/st_error.h"

/* gives all bytes of a file, with a NUL behind (st_free). A file that cannot be read, or is
 * longer than max_bytes, is a bad argument: ARG. NOMEM. */
strata_status lab_file_read(const char *path, size_t max_bytes, char **text, size_t *n_bytes, strata_error *err);

/* Writes a file that is whole or not there. */
strata_status lab_file_write(const char *path, const char *text, size_t n_bytes, strata_error *err);

#endif
