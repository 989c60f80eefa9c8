/* A folder's versions of embedded sources. */
#include "device/cuda/st_cuda_sources.h"

#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "device/cuda/st_cuda_kernels.h"
#include "kreg/st_source.h"
#include "os/st_dir.h"
#include "os/st_file.h"

enum { FILE_BYTES_MAX = 4 << 20 };

struct st_cuda_sources {
  st_cuda_replaced *items;
  size_t n, capacity;
};

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

static const char *last_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* A source that some GPU kernel is made of: that of one in the list, or a header. */
static bool is_of_kernel(const char *path) {
  const stk_cuda_kernel *kernel;
  if (ends_with(path, ".h") || ends_with(path, ".inc")) return true;
  for (int32_t i = 0; (kernel = st_cuda_kernel_at(i)); ++i)
    if (strcmp(kernel->source, path) == 0) return true;
  return false;
}

/* The path of the embedded source with that last name; NULL if there is none. */
static const char *path_of(const char *name) {
  for (int32_t i = 0; i < st_source_count(); ++i) {
    const char *path = st_source_at(i).path;
    if (strcmp(last_name(path), name) == 0 && is_of_kernel(path)) return path;
  }
  return NULL;
}

static strata_status read_text(st_cuda_replaced *item, strata_error *err) {
  ST_TRY(st_file_read(item->file, FILE_BYTES_MAX, &item->text, &item->n_bytes, err));
  if (strlen(item->text) != item->n_bytes) ST_FAIL(err, FORMAT, "%s: a NUL byte: text expected", item->file);
  return STRATA_OK;
}

/* What a folder is read into. */
typedef struct reading {
  const char *directory;
  st_cuda_sources *sources;
} reading;

static strata_status add(void *user, const char *name, strata_error *err) {
  const reading *r = user;
  st_cuda_sources *s = r->sources;
  void *items = s->items;
  const char *path = path_of(name);
  if (!path)
    ST_FAIL(err, ARG, "%s/%s: the name of a GPU kernel's source, such as %s, or of a header of one expected", r->directory,
            name, last_name(st_cuda_kernel_at(0)->source));
  ST_TRY(st_grow(&items, &s->capacity, s->n + 1, sizeof *s->items, "sources", err));
  s->items = items;
  st_cuda_replaced *item = &s->items[s->n++];
  *item = (st_cuda_replaced){.path = path};
  ST_TRY(st_path_join(&item->file, r->directory, name, err));
  return read_text(item, err);
}

static int by_path(const void *a, const void *b) {
  const st_cuda_replaced *x = a, *y = b;
  return strcmp(x->path, y->path);
}

static strata_status read_folder(const char *directory, st_cuda_sources *sources, strata_error *err) {
  reading r = {directory, sources};
  ST_TRY(st_dir_each(directory, add, &r, err));
  if (sources->n == 0)
    ST_FAIL(err, ARG, "%s: an empty folder: sources of GPU kernels, such as %s, expected", directory,
            last_name(st_cuda_kernel_at(0)->source));
  qsort(sources->items, sources->n, sizeof *sources->items, by_path);
  return STRATA_OK;
}

strata_status st_cuda_sources_open(const char *directory, st_cuda_sources **out, strata_error *err) {
  void *memory;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "sources", err));
  *out = memory;
  strata_status status = read_folder(directory, *out, err);
  if (status != STRATA_OK) st_cuda_sources_close(out);
  return status;
}

void st_cuda_sources_close(st_cuda_sources **sources) {
  st_cuda_sources *s = *sources;
  if (!s) return;
  for (size_t i = 0; i < s->n; ++i) {
    st_free(s->items[i].file);
    st_free(s->items[i].text);
  }
  st_free(s->items);
  st_free(s);
  *sources = NULL;
}

const st_cuda_replaced *st_cuda_sources_at(const st_cuda_sources *sources, int32_t index) {
  return sources && index >= 0 && (size_t)index < sources->n ? &sources->items[index] : NULL;
}

const st_cuda_replaced *st_cuda_sources_find(const st_cuda_sources *sources, const char *path) {
  const st_cuda_replaced *item;
  for (int32_t i = 0; (item = st_cuda_sources_at(sources, i)); ++i)
    if (strcmp(item->path, path) == 0) return item;
  return NULL;
}
