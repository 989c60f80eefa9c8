/* Files: mapping, reading whole, and writing so that no half file is left
 * under the final name. */
#ifndef ST_FILE_H
#define ST_FILE_H

#include "core/st_error.h"

/* A file mapped read-only. data is NULL for an empty file. */
typedef struct st_mapping {
  const uint8_t *data;
  size_t n_bytes;
} st_mapping;

strata_status st_mapping_open(const char *path, st_mapping *out, strata_error *err);
void st_mapping_close(st_mapping *mapping);

/* Reads a whole file of at most max_bytes (LIMIT beyond). gives *data
 * (st_free), with a NUL behind its *n_bytes bytes. */
strata_status st_file_read(const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                           strata_error *err);

typedef enum st_path_kind { ST_PATH_NONE, ST_PATH_FILE, ST_PATH_DIRECTORY } st_path_kind;
st_path_kind st_path_probe(const char *path);
/* gives "directory/name" (st_free). */
strata_status st_path_join(char **out, const char *directory, const char *name, strata_error *err);

/* A file being written under a temporary name beside path. commit makes it
 * appear under path in one step; close before commit removes it. */
typedef struct st_writer st_writer;
strata_status st_writer_open(const char *path, st_writer **out, strata_error *err);
strata_status st_writer_write(st_writer *writer, const void *data, size_t n_bytes,
                              strata_error *err);
/* The temporary name; a view, until commit. */
const char *st_writer_path(const st_writer *writer);
strata_status st_writer_commit(st_writer *writer, strata_error *err);
void st_writer_close(st_writer **writer);

/* Anonymous zeroed pages that take memory only once touched: a cache that may
 * grow to n_bytes without being copied. */
strata_status st_pages_new(void **out, size_t n_bytes, const char *what, strata_error *err);
/* The same, aligned to 2 MiB and, where the system can, in huge pages: for memory of
 * megabytes in which accesses jump about. */
strata_status st_huge_pages_new(void **out, size_t n_bytes, const char *what, strata_error *err);
void st_pages_free(void *pages, size_t n_bytes);

#endif
