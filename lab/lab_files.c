/* Reading and writing small files. */
#include "lab/lab_files.h"

#include "os/st_file.h"

strata_status lab_file_read(const char *path, size_t max_bytes, char **text, size_t *n_bytes, strata_error *err) {
  strata_error why;
  strata_status status = st_file_read(path, max_bytes, text, n_bytes, &why);
  if (status == STRATA_OK) return status;
  return st_error_set(err, status == STRATA_NOMEM ? STRATA_NOMEM : STRATA_ARG, "%s", why.message);
}

strata_status lab_file_write(const char *path, const char *text, size_t n_bytes, strata_error *err) {
  st_writer *writer = NULL;
  ST_TRY(st_writer_open(path, &writer, err));
  strata_status status = st_writer_write(writer, text, n_bytes, err);
  if (status == STRATA_OK) status = st_writer_commit(writer, err);
  st_writer_close(&writer);
  return status;
}
