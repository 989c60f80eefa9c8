/* Reading safetensors: the header of one file, the files of a directory, and
 * the checks that hold across files. Tensor bytes are never touched here. */
#include "model/safetensors/st_safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "model/st_json.h"
#include "os/st_file.h"

#define INDEX_NAME "model.safetensors.index.json"
#define SUFFIX ".safetensors"

enum { HEADER_LENGTH_BYTES = 8 };

static const struct {
  const char *name;
  size_t n_bytes;
} dtypes[] = {
    [ST_DTYPE_F32] = {"F32", 4},         [ST_DTYPE_F16] = {"F16", 2},
    [ST_DTYPE_BF16] = {"BF16", 2},       [ST_DTYPE_F64] = {"F64", 8},
    [ST_DTYPE_I64] = {"I64", 8},         [ST_DTYPE_I32] = {"I32", 4},
    [ST_DTYPE_I16] = {"I16", 2},         [ST_DTYPE_I8] = {"I8", 1},
    [ST_DTYPE_U64] = {"U64", 8},         [ST_DTYPE_U32] = {"U32", 4},
    [ST_DTYPE_U16] = {"U16", 2},         [ST_DTYPE_U8] = {"U8", 1},
    [ST_DTYPE_BOOL] = {"BOOL", 1},       [ST_DTYPE_F8_E4M3] = {"F8_E4M3", 1},
    [ST_DTYPE_F8_E5M2] = {"F8_E5M2", 1},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *st_tensor_dtype_name(st_tensor_dtype dtype) { return dtypes[dtype].name; }

size_t st_tensor_dtype_bytes(st_tensor_dtype dtype) { return dtypes[dtype].n_bytes; }

typedef struct tensor_file {
  char *path;
  char *names; /* the names of its tensors, each with a NUL */
  st_mapping mapping;
} tensor_file;

struct st_safetensors {
  char *path;
  tensor_file *files;
  size_t n_files, files_capacity;
  st_tensor *tensors;
  size_t n_tensors, tensors_capacity;
};

/* ---- one entry of a header ------------------------------------------------ */

/* One tensor's entry while it is read: what the messages name. */
typedef struct entry {
  const char *file, *name;
  const json_t *json;
} entry;

static strata_status read_dtype(const entry *e, st_tensor_dtype *out, strata_error *err) {
  const char *text = json_string_value(json_object_get(e->json, "dtype"));
  if (!text)
    ST_FAIL(err, FORMAT, "%s: tensor %s: dtype: missing or not a string: a string expected",
            e->file, e->name);
  for (int32_t i = 0; i < N_DTYPES; i++)
    if (strcmp(text, dtypes[i].name) == 0) {
      *out = (st_tensor_dtype)i;
      return STRATA_OK;
    }
  ST_FAIL(err, FORMAT, "%s: tensor %s: dtype %s: a safetensors dtype expected", e->file, e->name,
          text);
}

/* Fills shape, n_dims, n_elems and n_bytes from the entry's shape. */
static strata_status read_shape(const entry *e, st_tensor *t, strata_error *err) {
  const json_t *shape = json_object_get(e->json, "shape");
  if (!json_is_array(shape))
    ST_FAIL(err, FORMAT, "%s: tensor %s: shape: missing or not a list: a list expected", e->file,
            e->name);
  size_t n_dims = json_array_size(shape);
  if (n_dims > ST_TENSOR_DIMS_MAX)
    ST_FAIL(err, FORMAT, "%s: tensor %s: shape has %zu dimensions: at most %d expected", e->file,
            e->name, n_dims, ST_TENSOR_DIMS_MAX);
  t->n_dims = (int32_t)n_dims;
  t->n_elems = 1;
  for (size_t i = 0; i < n_dims; i++) {
    const json_t *dim = json_array_get(shape, i);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0)
      ST_FAIL(err, FORMAT, "%s: tensor %s: shape[%zu]: an integer of at least 0 expected", e->file,
              e->name, i);
    t->shape[i] = json_integer_value(dim);
    if (__builtin_mul_overflow(t->n_elems, t->shape[i], &t->n_elems))
      ST_FAIL(err, FORMAT, "%s: tensor %s: shape: the product of its dimensions overflows",
              e->file, e->name);
  }
  if (__builtin_mul_overflow((size_t)t->n_elems, dtypes[t->dtype].n_bytes, &t->n_bytes))
    ST_FAIL(err, FORMAT, "%s: tensor %s: shape: %" PRId64 " elements of %s overflow", e->file,
            e->name, t->n_elems, dtypes[t->dtype].name);
  return STRATA_OK;
}

/* Fills t->data from the entry's data_offsets; t->n_bytes must be set. */
static strata_status read_offsets(const entry *e, const uint8_t *data, size_t data_bytes,
                                  st_tensor *t, strata_error *err) {
  const json_t *offsets = json_object_get(e->json, "data_offsets");
  const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second) ||
      json_integer_value(first) < 0 || json_integer_value(second) < 0)
    ST_FAIL(err, FORMAT, "%s: tensor %s: data_offsets: two integers of at least 0 expected",
            e->file, e->name);
  uint64_t begin = (uint64_t)json_integer_value(first);
  uint64_t end = (uint64_t)json_integer_value(second);
  if (begin > end)
    ST_FAIL(err, FORMAT,
            "%s: tensor %s: data_offsets [%" PRIu64 ", %" PRIu64 "]: they end before they begin",
            e->file, e->name, begin, end);
  if (end > data_bytes)
    ST_FAIL(err, FORMAT,
            "%s: tensor %s: data_offsets [%" PRIu64 ", %" PRIu64
            "]: past the end of the file, which has %zu bytes of data",
            e->file, e->name, begin, end, data_bytes);
  if (end - begin != t->n_bytes)
    ST_FAIL(err, FORMAT,
            "%s: tensor %s: data_offsets [%" PRIu64 ", %" PRIu64
            "]: %zu bytes expected by its shape and dtype",
            e->file, e->name, begin, end, t->n_bytes);
  t->data = data + begin;
  return STRATA_OK;
}

/* ---- one file ------------------------------------------------------------- */

/* By place in the file, an empty tensor before another that begins there. */
static int compare_place(const void *a, const void *b) {
  const st_tensor *x = a, *y = b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

/* Sorts the n >= 1 tensors of one file by place. */
static strata_status check_overlap(st_tensor *tensors, size_t n, strata_error *err) {
  const st_tensor *last = NULL;
  qsort(tensors, n, sizeof *tensors, compare_place);
  for (size_t i = 0; i < n; i++) {
    if (tensors[i].n_bytes == 0) continue;
    if (last && last->data + last->n_bytes > tensors[i].data)
      ST_FAIL(err, FORMAT, "%s: tensor %s: its bytes overlap those of tensor %s",
              tensors[i].file, tensors[i].name, last->name);
    last = &tensors[i];
  }
  return STRATA_OK;
}

/* Finds the header's JSON text in a file image and where the data begin. */
static strata_status find_header(const char *path, const uint8_t *image, size_t n_bytes,
                                 const char **text, size_t *text_bytes, strata_error *err) {
  if (n_bytes < HEADER_LENGTH_BYTES)
    ST_FAIL(err, FORMAT, "%s: %zu bytes: at least %d expected of a safetensors file", path,
            n_bytes, HEADER_LENGTH_BYTES);
  uint64_t length = 0;
  for (int32_t i = HEADER_LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | image[i];
  if (length > n_bytes - HEADER_LENGTH_BYTES)
    ST_FAIL(err, FORMAT, "%s: header length %" PRIu64 ": past the end of the file of %zu bytes",
            path, length, n_bytes);
  if (length > ST_SAFETENSORS_HEADER_MAX)
    ST_FAIL(err, FORMAT, "%s: header length %" PRIu64 ": at most %zu expected", path, length,
            ST_SAFETENSORS_HEADER_MAX);
  *text = (const char *)image + HEADER_LENGTH_BYTES;
  *text_bytes = (size_t)length;
  return STRATA_OK;
}

/* Copies the names of header's tensors into one block of memory. */
static strata_status copy_names(json_t *header, char **out, strata_error *err) {
  const char *name;
  json_t *value;
  size_t n_bytes = 0;
  void *block;
  json_object_foreach(header, name, value) n_bytes += strlen(name) + 1;
  ST_TRY(st_calloc(&block, n_bytes, 1, "tensor names", err));
  *out = block;
  char *to = block;
  json_object_foreach(header, name, value) {
    size_t name_bytes = strlen(name) + 1;
    memcpy(to, name, name_bytes);
    to += name_bytes;
  }
  return STRATA_OK;
}

/* Appends the tensors of file, whose header is given, to s. names holds the
 * header's keys in its order. */
static strata_status add_tensors(st_safetensors *s, const char *file, json_t *header,
                                 const char *names, const uint8_t *data, size_t data_bytes,
                                 strata_error *err) {
  size_t n_before = s->n_tensors;
  const char *key;
  json_t *value;
  void *items = s->tensors;
  size_t need = s->n_tensors + json_object_size(header);
  if (need > INT32_MAX)
    ST_FAIL(err, LIMIT, "%s: %zu tensors so far: at most %d expected", file, need, INT32_MAX);
  ST_TRY(st_grow(&items, &s->tensors_capacity, need, sizeof *s->tensors, "tensors", err));
  s->tensors = items;
  json_object_foreach(header, key, value) {
    const char *name = names;
    names += strlen(names) + 1;
    if (!json_is_object(value))
      ST_FAIL(err, FORMAT, "%s: tensor %s: not a JSON object: an object expected", file, name);
    if (strcmp(name, "__metadata__") == 0) continue;
    entry e = {.file = file, .name = name, .json = value};
    st_tensor t = {.name = name, .file = file};
    ST_TRY(read_dtype(&e, &t.dtype, err));
    ST_TRY(read_shape(&e, &t, err));
    ST_TRY(read_offsets(&e, data, data_bytes, &t, err));
    s->tensors[s->n_tensors++] = t;
  }
  if (s->n_tensors == n_before) return STRATA_OK;
  return check_overlap(s->tensors + n_before, s->n_tensors - n_before, err);
}

/* Reads the header in image into s, as that of f, which s owns. */
static strata_status parse_image(st_safetensors *s, tensor_file *f, const uint8_t *image,
                                 size_t n_bytes, strata_error *err) {
  strata_status status = STRATA_OK;
  json_t *header = NULL;
  const char *text = NULL;
  size_t text_bytes = 0;
  ST_TRY(find_header(f->path, image, n_bytes, &text, &text_bytes, err));
  ST_TRY_OUT(st_json_parse_object(f->path, text, text_bytes, &header, err));
  ST_TRY_OUT(copy_names(header, &f->names, err));
  const uint8_t *data = image + HEADER_LENGTH_BYTES + text_bytes;
  size_t data_bytes = n_bytes - HEADER_LENGTH_BYTES - text_bytes;
  ST_TRY_OUT(add_tensors(s, f->path, header, f->names, data, data_bytes, err));
out:
  json_decref(header);
  return status;
}

/* Appends an empty file record; takes path, also on failure. */
static strata_status add_file(st_safetensors *s, char *path, tensor_file **out,
                              strata_error *err) {
  void *items = s->files;
  strata_status status = st_grow(&items, &s->files_capacity, s->n_files + 1, sizeof *s->files,
                                 "tensor files", err);
  if (status != STRATA_OK) {
    st_free(path);
    return status;
  }
  s->files = items;
  *out = &s->files[s->n_files++];
  **out = (tensor_file){.path = path};
  return STRATA_OK;
}

/* Maps and reads one file; takes path, also on failure. */
static strata_status open_file(st_safetensors *s, char *path, strata_error *err) {
  tensor_file *f;
  ST_TRY(add_file(s, path, &f, err));
  ST_TRY(st_mapping_open(f->path, &f->mapping, err));
  return parse_image(s, f, f->mapping.data, f->mapping.n_bytes, err);
}

/* ---- the whole ------------------------------------------------------------ */

static int compare_name(const void *a, const void *b) {
  return strcmp(((const st_tensor *)a)->name, ((const st_tensor *)b)->name);
}

/* Sorts by name; JSON already refuses duplicates within a file. */
static strata_status sort_tensors(st_safetensors *s, strata_error *err) {
  if (s->n_tensors) qsort(s->tensors, s->n_tensors, sizeof *s->tensors, compare_name);
  for (size_t i = 1; i < s->n_tensors; i++) {
    const st_tensor *a = &s->tensors[i - 1], *b = &s->tensors[i];
    if (strcmp(a->name, b->name) == 0)
      ST_FAIL(err, FORMAT, "%s: tensor %s: also in %s: one tensor of a name expected", b->file,
              b->name, a->file);
  }
  return STRATA_OK;
}

static strata_status open_named(st_safetensors *s, const char *directory, const char *name,
                                strata_error *err) {
  char *path;
  ST_TRY(st_path_join(&path, directory, name, err));
  return open_file(s, path, err);
}

static int compare_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_tensor_file_name(const char *name) {
  size_t n = strlen(name), suffix = strlen(SUFFIX);
  return n > suffix && strcmp(name + n - suffix, SUFFIX) == 0;
}

/* ---- a directory with an index -------------------------------------------- */

/* A shard is a plain name in the directory, never a path that leads out. */
static strata_status check_shard_name(const char *index, const char *tensor, const json_t *value,
                                      strata_error *err) {
  const char *shard = json_string_value(value);
  if (!shard)
    ST_FAIL(err, FORMAT, "%s: tensor %s: not a string: the name of a file expected", index,
            tensor);
  if (strchr(shard, '/') || strstr(shard, "..") || !is_tensor_file_name(shard))
    ST_FAIL(err, FORMAT, "%s: tensor %s: %s: the plain name of a %s file expected", index, tensor,
            shard, SUFFIX);
  return STRATA_OK;
}

/* Opens each file that weight_map names, once. */
static strata_status open_shards(st_safetensors *s, const char *directory, const char *index,
                                 json_t *weight_map, strata_error *err) {
  strata_status status = STRATA_OK;
  const char *tensor;
  json_t *value;
  void *memory;
  size_t n = 0;
  ST_TRY(st_calloc(&memory, json_object_size(weight_map), sizeof(char *), "shard names", err));
  const char **names = memory;
  json_object_foreach(weight_map, tensor, value) {
    ST_TRY_OUT(check_shard_name(index, tensor, value, err));
    names[n++] = json_string_value(value);
  }
  if (n) qsort(names, n, sizeof *names, compare_text);
  for (size_t i = 0; i < n; i++)
    if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
      ST_TRY_OUT(open_named(s, directory, names[i], err));
out:
  st_free(memory);
  return status;
}

/* Each tensor of the index must lie in the shard that it names. */
static strata_status check_index(const st_safetensors *s, const char *index, json_t *weight_map,
                                 strata_error *err) {
  const char *name;
  json_t *value;
  json_object_foreach(weight_map, name, value) {
    const char *shard = json_string_value(value);
    const st_tensor *t = st_safetensors_find(s, name);
    if (!t || strcmp(strrchr(t->file, '/') + 1, shard) != 0)
      ST_FAIL(err, FORMAT, "%s: tensor %s: %s does not have it", index, name, shard);
  }
  return STRATA_OK;
}

static strata_status open_index(st_safetensors *s, const char *index, strata_error *err) {
  strata_status status = STRATA_OK;
  char *text = NULL;
  size_t n_bytes;
  json_t *root = NULL;
  ST_TRY(st_file_read(index, ST_SAFETENSORS_HEADER_MAX, &text, &n_bytes, err));
  ST_TRY_OUT(st_json_parse_object(index, text, n_bytes, &root, err));
  json_t *weight_map = json_object_get(root, "weight_map");
  if (!json_is_object(weight_map))
    ST_FAIL_OUT(err, FORMAT, "%s: weight_map: missing or not an object: an object expected",
                index);
  ST_TRY_OUT(open_shards(s, s->path, index, weight_map, err));
  ST_TRY_OUT(sort_tensors(s, err));
  ST_TRY_OUT(check_index(s, index, weight_map, err));
out:
  json_decref(root);
  st_free(text);
  return status;
}

/* ---- a directory without an index ----------------------------------------- */

typedef struct name_list {
  char **items;
  size_t n, capacity;
} name_list;

static void name_list_release(name_list *list) {
  for (size_t i = 0; i < list->n; i++) st_free(list->items[i]);
  st_free(list->items);
  *list = (name_list){0};
}

static strata_status name_list_add(name_list *list, const char *name, strata_error *err) {
  void *items = list->items;
  ST_TRY(st_grow(&items, &list->capacity, list->n + 1, sizeof *list->items, "file names", err));
  list->items = items;
  ST_TRY(st_strndup(&list->items[list->n], name, strlen(name), err));
  list->n++;
  return STRATA_OK;
}

/* Fills list with the *.safetensors names of directory, in ascending order;
 * the caller releases it, also after a failure. */
static strata_status list_directory(const char *directory, name_list *list, strata_error *err) {
  strata_status status = STRATA_OK;
  DIR *handle = opendir(directory);
  if (!handle)
    ST_FAIL(err, IO, "%s: %s: a readable directory expected", directory, strerror(errno));
  for (;;) {
    errno = 0;
    const struct dirent *item = readdir(handle);
    if (!item && errno)
      ST_FAIL_OUT(err, IO, "%s: %s: reading the directory", directory, strerror(errno));
    if (!item) break;
    if (is_tensor_file_name(item->d_name)) ST_TRY_OUT(name_list_add(list, item->d_name, err));
  }
  if (list->n) qsort(list->items, list->n, sizeof *list->items, compare_text);
out:
  closedir(handle);
  return status;
}

static strata_status open_all(st_safetensors *s, strata_error *err) {
  strata_status status = STRATA_OK;
  name_list list = {0};
  ST_TRY_OUT(list_directory(s->path, &list, err));
  if (list.n == 0)
    ST_FAIL_OUT(err, IO, "%s: no *%s file: at least one expected", s->path, SUFFIX);
  for (size_t i = 0; i < list.n; i++) ST_TRY_OUT(open_named(s, s->path, list.items[i], err));
  ST_TRY_OUT(sort_tensors(s, err));
out:
  name_list_release(&list);
  return status;
}

/* ---- public --------------------------------------------------------------- */

static strata_status new_set(const char *path, st_safetensors **out, strata_error *err) {
  void *memory;
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "a set of tensors", err));
  *out = memory;
  return st_strndup(&(*out)->path, path, strlen(path), err);
}

static strata_status open_directory(st_safetensors *s, strata_error *err) {
  char *index;
  ST_TRY(st_path_join(&index, s->path, INDEX_NAME, err));
  bool has_index = st_path_probe(index) != ST_PATH_NONE;
  strata_status status = has_index ? open_index(s, index, err) : open_all(s, err);
  st_free(index);
  return status;
}

static strata_status open_single(st_safetensors *s, strata_error *err) {
  char *path;
  ST_TRY(st_strndup(&path, s->path, strlen(s->path), err));
  ST_TRY(open_file(s, path, err));
  return sort_tensors(s, err);
}

strata_status st_safetensors_open(const char *path, st_safetensors **out, strata_error *err) {
  strata_status status = STRATA_OK;
  st_safetensors *s = NULL;
  *out = NULL;
  ST_TRY_OUT(new_set(path, &s, err));
  bool is_directory = st_path_probe(path) == ST_PATH_DIRECTORY;
  ST_TRY_OUT(is_directory ? open_directory(s, err) : open_single(s, err));
  *out = s;
  s = NULL;
out:
  st_safetensors_close(&s);
  return status;
}

strata_status st_safetensors_parse(const char *label, const uint8_t *image, size_t n_bytes,
                                   st_safetensors **out, strata_error *err) {
  strata_status status = STRATA_OK;
  st_safetensors *s = NULL;
  tensor_file *f;
  char *path;
  *out = NULL;
  ST_TRY_OUT(new_set(label, &s, err));
  ST_TRY_OUT(st_strndup(&path, label, strlen(label), err));
  ST_TRY_OUT(add_file(s, path, &f, err));
  ST_TRY_OUT(parse_image(s, f, image, n_bytes, err));
  ST_TRY_OUT(sort_tensors(s, err));
  *out = s;
  s = NULL;
out:
  st_safetensors_close(&s);
  return status;
}

void st_safetensors_close(st_safetensors **tensors) {
  st_safetensors *s = *tensors;
  if (!s) return;
  for (size_t i = 0; i < s->n_files; i++) {
    st_free(s->files[i].path);
    st_free(s->files[i].names);
    st_mapping_close(&s->files[i].mapping);
  }
  st_free(s->files);
  st_free(s->tensors);
  st_free(s->path);
  st_free(s);
  *tensors = NULL;
}

const char *st_safetensors_path(const st_safetensors *tensors) { return tensors->path; }

int32_t st_safetensors_count(const st_safetensors *tensors) {
  return (int32_t)tensors->n_tensors;
}

const st_tensor *st_safetensors_at(const st_safetensors *tensors, int32_t index) {
  return &tensors->tensors[index];
}

const st_tensor *st_safetensors_find(const st_safetensors *tensors, const char *name) {
  if (tensors->n_tensors == 0) return NULL;
  const st_tensor key = {.name = name};
  return bsearch(&key, tensors->tensors, tensors->n_tensors, sizeof key, compare_name);
}
