/* Reading the rule of a verdict. */
#include "lab/lab_rule.h"

#include <jansson.h>
#include <stddef.h>
#include <string.h>

#include "core/st_mem.h"
#include "os/st_file.h"

enum { RULE_BYTES_MAX = 64 * 1024 };

static const char built_in[] =
    "{\"min_gain\": 0.03, \"confidence\": 0.95, \"narrow\": 0.01, \"min_rounds\": 8,\n"
    " \"max_rounds\": 200, \"disturbed\": 3.0, \"max_disturbed\": 0.3333}\n";

static const struct {
  const char *key;
  size_t offset;
  bool whole; /* an int32_t field, else a double */
  double low, high;
} keys[] = {
    {"min_gain", offsetof(lab_rule, min_gain), false, 0.001, 0.5},
    {"confidence", offsetof(lab_rule, confidence), false, 0.5, 0.999},
    {"narrow", offsetof(lab_rule, narrow), false, 0.0001, 0.5},
    {"min_rounds", offsetof(lab_rule, min_rounds), true, 4, 10000},
    {"max_rounds", offsetof(lab_rule, max_rounds), true, 4, 10000},
    {"disturbed", offsetof(lab_rule, disturbed), false, 1.1, 100},
    {"max_disturbed", offsetof(lab_rule, max_disturbed), false, 0, 1},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

static strata_status set_key(lab_rule *rule, const char *name, const char *key, const json_t *value,
                             strata_error *err) {
  size_t i = 0;
  while (i < N_KEYS && strcmp(key, keys[i].key) != 0) ++i;
  if (i == N_KEYS) ST_FAIL(err, ARG, "%s: %s: a key of a rule expected (docs/lab.md)", name, key);
  double x = json_number_value(value);
  bool good = keys[i].whole ? json_is_integer(value) : json_is_number(value);
  if (!good || !(x >= keys[i].low && x <= keys[i].high))
    ST_FAIL(err, ARG, "%s: %s: a%s number from %g to %g expected", name, key,
            keys[i].whole ? " whole" : "", keys[i].low, keys[i].high);
  char *field = (char *)rule + keys[i].offset;
  if (keys[i].whole) memcpy(field, &(int32_t){(int32_t)x}, sizeof(int32_t));
  else memcpy(field, &x, sizeof x);
  return STRATA_OK;
}

static strata_status parse(lab_rule *rule, const char *name, const char *text, size_t n_bytes,
                           strata_error *err) {
  json_error_t where;
  json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &where);
  if (!json_is_object(root)) {
    st_error_set(err, STRATA_ARG, "%s: line %d: %s", name, root ? 1 : where.line,
                 root ? "a JSON object expected" : where.text);
    json_decref(root);
    return STRATA_ARG;
  }
  strata_status status = STRATA_OK;
  const char *key;
  json_t *value;
  json_object_foreach(root, key, value) ST_TRY_OUT(set_key(rule, name, key, value, err));
out:
  json_decref(root);
  return status;
}

static strata_status hash_text(const char *text, size_t n_bytes, char hex[65], strata_error *err) {
  strata_sha256 *hash;
  ST_TRY(strata_sha256_new(&hash, err));
  strata_sha256_update(hash, text, n_bytes);
  strata_sha256_finish(&hash, hex);
  return STRATA_OK;
}

strata_status lab_rule_read(const char *path, lab_rule *out, strata_error *err) {
  *out = (lab_rule){0};
  ST_TRY(parse(out, "the built-in rule", built_in, sizeof built_in - 1, err));
  if (!path) return hash_text(built_in, sizeof built_in - 1, out->sha256, err);
  char *text;
  size_t n_bytes;
  ST_TRY(st_file_read(path, RULE_BYTES_MAX, &text, &n_bytes, err));
  strata_status status = parse(out, path, text, n_bytes, err);
  if (status == STRATA_OK) status = hash_text(text, n_bytes, out->sha256, err);
  st_free(text);
  if (status == STRATA_OK && out->min_rounds > out->max_rounds)
    ST_FAIL(err, ARG, "%s: max_rounds: at least min_rounds (%d) expected", path, out->min_rounds);
  return status;
}
