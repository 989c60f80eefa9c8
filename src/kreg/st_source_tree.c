/* The embedded sources as files. */
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "kreg/st_source.h"
#include "os/st_dir.h"
#include "os/st_file.h"

static bool has_bytes(const char *file, const st_source *source) {
  char *text;
  size_t n_bytes;
  if (st_file_read(file, source->n_bytes, &text, &n_bytes, NULL) != STRATA_OK) return false;
  bool same = n_bytes == source->n_bytes && memcmp(text, source->text, n_bytes) == 0;
  st_free(text);
  return same;
}

static strata_status write_file(char *file, const st_source *source, strata_error *err) {
  st_writer *writer = NULL;
  char *slash = strrchr(file, '/');
  *slash = 0;
  strata_status status = st_dir_make(file, err);
  *slash = '/';
  if (status == STRATA_OK) status = st_writer_open(file, &writer, err);
  if (status == STRATA_OK) status = st_writer_write(writer, source->text, source->n_bytes, err);
  if (status == STRATA_OK) status = st_writer_commit(writer, err);
  st_writer_close(&writer);
  return status;
}

strata_status st_source_write_tree(const char *directory, strata_error *err) {
  for (int32_t i = 0; i < st_source_count(); ++i) {
    st_source source = st_source_at(i);
    /* strata/kernel.h is the one public header among them. */
    const char *folder = strncmp(source.path, "strata/", 7) == 0 ? "include" : "kernels";
    char name[256], *file;
    snprintf(name, sizeof name, "%s/%s", folder, source.path);
    ST_TRY(st_path_join(&file, directory, name, err));
    strata_status status = has_bytes(file, &source) ? STRATA_OK : write_file(file, &source, err);
    st_free(file);
    if (status != STRATA_OK) return status;
  }
  return STRATA_OK;
}
