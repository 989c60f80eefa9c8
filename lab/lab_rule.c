/* Reading the rule of a verdict. */
#include "lab/lab_rule.h"

#include <jansson.h>
#include <stddef.h>
#include <string.h>

#include "core/st_mem.h"
#include "lab/lab_files.h"
#include "lab/lab_seal.h"

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
    {"calls", offsetof(lab_rule, calls), true, 1, LAB_CALLS_MAX},
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

static strata_status parse_keys(lab_rule *rule, const char *name, const char *text, strata_error *err) {
  json_error_t where;
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
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
  if (rule->min_rounds > rule->max_rounds)
    ST_FAIL_OUT(err, ARG, "%s: max_rounds: at least min_rounds (%d) expected", name, rule->min_rounds);
out:
  json_decref(root);
  return status;
}

strata_status lab_rule_parse(const char *text, const char *name, lab_rule *out, strata_error *err) {
  *out = (lab_rule){.calls = LAB_CALLS_MAX};
  if (strlen(text) >= sizeof out->text)
    ST_FAIL(err, ARG, "%s: %zu bytes: at most %zu expected", name, strlen(text), sizeof out->text - 1);
  ST_TRY(parse_keys(out, "the built-in rule", built_in, err));
  ST_TRY(parse_keys(out, name, text, err));
  memcpy(out->text, text, strlen(text) + 1);
  return lab_seal_hash(text, strlen(text), out->sha256, err);
}

strata_status lab_rule_read(const char *path, lab_rule *out, strata_error *err) {
  if (!path) return lab_rule_parse(built_in, "the built-in rule", out, err);
  char *text;
  size_t n_bytes;
  ST_TRY(lab_file_read(path, LAB_RULE_BYTES_MAX - 1, &text, &n_bytes, err));
  strata_status status = lab_rule_parse(text, path, out, err);
  st_free(text);
  return status;
}
