/* Walking a report's parts and hashing each. */
#include "lab/lab_seal.h"

#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"

/* A path grows and shrinks at its end while the walk goes down and up. */
typedef struct walk {
  st_string path;
  json_t *seals;
  strata_error *err;
} walk;

enum { DEPTH_MAX = 8 }; /* a report has 7 levels */

strata_status lab_seal_hash(const void *data, size_t n_bytes, char hex[65], strata_error *err) {
  strata_sha256 *hash;
  ST_TRY(strata_sha256_new(&hash, err));
  strata_sha256_update(hash, data, n_bytes);
  strata_sha256_finish(&hash, hex);
  return STRATA_OK;
}

static int add_bytes(const char *bytes, size_t n_bytes, void *hash) {
  strata_sha256_update(hash, bytes, n_bytes);
  return 0;
}

static strata_status seal_part(walk *w, const json_t *value) {
  char hex[65];
  strata_sha256 *hash;
  ST_TRY(strata_sha256_new(&hash, w->err));
  int failed = json_dump_callback(value, add_bytes, hash,
                                  JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
  strata_sha256_finish(&hash, hex);
  if (failed || json_object_set_new(w->seals, w->path.text, json_string(hex)) != 0)
    return st_error_nomem(w->err, "a seal", sizeof hex);
  return STRATA_OK;
}

static bool is_whole(const char *key) {
  return strcmp(key, "samples") == 0 || strcmp(key, "buffers") == 0;
}

static bool is_list_of_objects(const json_t *value) {
  if (json_array_size(value) == 0) return false;
  for (size_t i = 0; i < json_array_size(value); ++i)
    if (!json_is_object(json_array_get(value, i))) return false;
  return true;
}

static strata_status seal_value(walk *w, json_t *value, const char *key, int depth);

static strata_status seal_object(walk *w, json_t *object, int depth) {
  size_t n_path = w->path.n_bytes;
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    if (depth == 0 && strcmp(key, "seals") == 0) continue;
    if (n_path) ST_TRY(st_string_puts(&w->path, ".", w->err));
    ST_TRY(st_string_puts(&w->path, key, w->err));
    ST_TRY(seal_value(w, value, key, depth + 1));
    w->path.n_bytes = n_path;
  }
  return STRATA_OK;
}

static strata_status seal_list(walk *w, const json_t *list, int depth) {
  size_t n_path = w->path.n_bytes;
  for (size_t i = 0; i < json_array_size(list); ++i) {
    ST_TRY(st_string_printf(&w->path, w->err, "[%zu]", i));
    ST_TRY(seal_object(w, json_array_get(list, i), depth + 1));
    w->path.n_bytes = n_path;
  }
  return STRATA_OK;
}

static strata_status seal_value(walk *w, json_t *value, const char *key, int depth) {
  if (depth >= DEPTH_MAX || is_whole(key)) return seal_part(w, value);
  if (json_is_object(value) && json_object_size(value)) return seal_object(w, value, depth);
  if (is_list_of_objects(value)) return seal_list(w, value, depth);
  return seal_part(w, value);
}

strata_status lab_seal_make(const json_t *report, json_t **seals, strata_error *err) {
  walk w = {.seals = json_object(), .err = err};
  strata_status status = w.seals ? STRATA_OK : st_error_nomem(err, "seals", sizeof w);
  *seals = NULL;
  /* jansson's loop wants it without const; nothing is changed. */
  if (status == STRATA_OK) status = seal_object(&w, (json_t *)(uintptr_t)report, 0);
  st_string_release(&w.path);
  if (status == STRATA_OK) *seals = w.seals;
  else json_decref(w.seals);
  return status;
}
