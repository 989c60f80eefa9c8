/* The form of a report, as tables, and the walk that checks a JSON value by them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_report.h"
#include "lab/lab_text.h"

typedef enum kind {
  TEXT,   /* at most max bytes */
  WORD,   /* one of choices, separated by | */
  HASH,   /* 64 hexadecimal digits */
  FROZEN, /* base/NAME or cand/NAME, nothing that leaves the directory */
  WHOLE,  /* an integer in min .. max */
  REAL,   /* a number in min .. max */
  FLAG,
  OBJECT,   /* of fields */
  LIST,     /* of objects of fields, at most max */
  TEXTS,    /* a list of texts, at most max */
  INTERVAL, /* two numbers in min .. max, the lower one first */
  NUMBERS,  /* an object of numbers, at most max */
} kind;

typedef struct field {
  const char *key;
  kind kind;
  double min, max;
  const char *choices;
  const struct field *fields; /* of OBJECT and LIST; ends with a NULL key */
  bool nullable;
} field;

/* A row with its range, and one without. */
#define IN(name, type, low, high, ...) \
  { .key = name, .kind = type, .min = low, .max = high, __VA_ARGS__ }
#define OF(name, type, ...) \
  { .key = name, .kind = type, __VA_ARGS__ }

#define LONG_TEXT (64.0 * 1024 * 1024)
#define SECONDS_MAX 1e6
#define VERDICTS "faster|same|slower|wrong|no verdict"

static const field machine_fields[] = {
    IN("cpu", TEXT, 0, 1000),           IN("id", TEXT, 0, 1000),
    IN("cpus", WHOLE, 0, 1e6),          IN("threads", WHOLE, 0, 1e6),
    IN("level", TEXT, 0, 100),          IN("l1_bytes", WHOLE, 0, 1e15),
    IN("l2_bytes", WHOLE, 0, 1e15),     IN("l3_bytes", WHOLE, 0, 1e15),
    IN("system", TEXT, 0, 1000),        IN("strata", TEXT, 0, 100),
    IN("sources_sha256", TEXT, 0, 100), {.key = NULL}};

static const field rule_fields[] = {
    IN("file", TEXT, 0, 5000),         OF("sha256", HASH),
    IN("text", TEXT, 0, LAB_RULE_BYTES_MAX - 1),
    IN("min_gain", REAL, 0.001, 0.5),  IN("confidence", REAL, 0.5, 0.999),
    IN("min_rounds", WHOLE, 1, 10000), IN("max_rounds", WHOLE, 1, 10000),
    IN("narrow", REAL, 1e-4, 0.5),     IN("disturbed", REAL, 1.1, 100),
    IN("max_disturbed", REAL, 0, 1),   {.key = NULL}};

static const field level_fields[] = {IN("l1", REAL, 0, 1e18),
                                     IN("l2", REAL, 0, 1e18),
                                     IN("l3", REAL, 0, 1e18),
                                     IN("dram", REAL, 0, 1e18),
                                     {.key = NULL}};
static const field ceiling_fields[] = {IN("flops_per_s", REAL, 0, 1e21),
                                       OF("bytes_per_s", OBJECT, .fields = level_fields),
                                       {.key = NULL}};

static const field source_fields[] = {IN("given", TEXT, 0, 5000),
                                      IN("variant", TEXT, 0, 1000),
                                      OF("file", FROZEN),
                                      OF("sha256", HASH),
                                      IN("module", TEXT, 0, 1000),
                                      IN("level", TEXT, 0, 100),
                                      OF("class", WORD, .choices = "exact|fast"),
                                      IN("compiler", TEXT, 0, 1000),
                                      IN("flags", TEXT, 0, 20000),
                                      IN("fp_mode", TEXT, 0, 100),
                                      {.key = NULL}};

static const field control_fields[] = {IN("name", TEXT, 0, 1000),
                                       IN("expected", TEXT, 0, 1000),
                                       IN("got", TEXT, 0, 1000),
                                       IN("detail", TEXT, 0, 5000),
                                       OF("ok", FLAG),
                                       {.key = NULL}};

static const field tally_fields[] = {IN("passed", WHOLE, 0, 1e6),
                                     IN("n", WHOLE, 0, 1e6),
                                     IN("word", TEXT, 0, 1000),
                                     IN("detail", TEXT, 0, 5000),
                                     {.key = NULL}};
static const field oracle_fields[] = {OF("base", OBJECT, .fields = tally_fields),
                                      OF("cand", OBJECT, .fields = tally_fields),
                                      {.key = NULL}};

static const field buffer_fields[] = {IN("name", TEXT, 1, 100),
                                      OF("result", WORD, .choices = "PASS|FAIL|POISON KEPT"),
                                      IN("word", TEXT, 0, 1000),
                                      IN("n", WHOLE, 0, 1e15),
                                      IN("first", WHOLE, -1, 1e15),
                                      IN("count", WHOLE, 0, 1e15),
                                      IN("max_abs", REAL, 0, INFINITY, .nullable = true),
                                      IN("rel_l2", REAL, 0, INFINITY, .nullable = true),
                                      {.key = NULL}};

static const field parity_fields[] = {
    IN("size", TEXT, 0, 200),
    IN("seed", WHOLE, -9.3e18, 9.3e18),
    IN("result", TEXT, 1, 1000),
    IN("detail", TEXT, 0, 5000),
    IN("buffers", LIST, 0, LAB_REPORT_BUFFERS_MAX, .fields = buffer_fields),
    {.key = NULL}};

static const field sample_fields[] = {
    IN("round", WHOLE, 0, 1e6),     OF("pair", WORD, .choices = "cand|null"),
    IN("order", WHOLE, 0, 1),       OF("arm", WORD, .choices = "base|cand|null"),
    IN("at", REAL, 0, SECONDS_MAX), IN("seconds", REAL, 1e-12, SECONDS_MAX),
    OF("disturbed", FLAG),          {.key = NULL}};

static const field timing_fields[] = {IN("size", TEXT, 0, 200),
                                      IN("params", NUMBERS, 0, 32),
                                      IN("calls", WHOLE, 0, 1e9),
                                      IN("buffer_sets", WHOLE, 0, 1e9),
                                      IN("buffer_bytes", WHOLE, 0, 1e15),
                                      IN("flops", REAL, 0, 1e24),
                                      IN("bytes", REAL, 0, 1e24),
                                      IN("floor_seconds", REAL, 0, SECONDS_MAX),
                                      OF("bound", WORD, .choices = "operations|bytes"),
                                      IN("rounds", WHOLE, 0, 1e6),
                                      OF("verdict", WORD, .choices = VERDICTS),
                                      IN("reason", TEXT, 0, 5000),
                                      IN("base_seconds", REAL, 0, SECONDS_MAX),
                                      IN("cand_seconds", REAL, 0, SECONDS_MAX),
                                      IN("null_seconds", REAL, 0, SECONDS_MAX),
                                      IN("ratio", REAL, 0, 1e18),
                                      IN("interval", INTERVAL, 0, 1e18),
                                      IN("null_ratio", REAL, 0, 1e18),
                                      IN("null_interval", INTERVAL, 0, 1e18),
                                      IN("disturbed", WHOLE, 0, 1e6),
                                      IN("samples", LIST, 0, 100000, .fields = sample_fields),
                                      {.key = NULL}};

static const field stage_fields[] = {IN("op", TEXT, 1, 100),
                                     IN("contract", WHOLE, 0, 1e9),
                                     OF("class", WORD, .choices = "exact|fast"),
                                     IN("bound", REAL, 0, 1e6, .nullable = true),
                                     IN("contract_text", TEXT, 0, LONG_TEXT),
                                     OF("base", OBJECT, .fields = source_fields),
                                     OF("cand", OBJECT, .fields = source_fields),
                                     IN("controls", LIST, 0, 100, .fields = control_fields),
                                     OF("oracle", OBJECT, .fields = oracle_fields),
                                     IN("parity", LIST, 0, 1000, .fields = parity_fields),
                                     IN("diff", TEXT, 0, LONG_TEXT),
                                     IN("timings", LIST, 0, 100, .fields = timing_fields),
                                     {.key = NULL}};

static const field report_fields[] = {
    OF("format", WORD, .choices = "strata lab report"),
    IN("version", WHOLE, 1, 1),
    OF("kind", WORD, .choices = "ab|aa|pipeline"),
    OF("verdict", WORD, .choices = VERDICTS),
    IN("headline", TEXT, 1, 5000),
    IN("reason", TEXT, 0, 5000),
    IN("command", TEXTS, 0, 1000),
    IN("started", TEXT, 0, 100),
    IN("seconds", REAL, 0, 1e9),
    OF("machine", OBJECT, .fields = machine_fields),
    OF("rule", OBJECT, .fields = rule_fields),
    OF("ceilings", OBJECT, .fields = ceiling_fields, .nullable = true),
    IN("stages", LIST, 1, 16, .fields = stage_fields),
    IN("total", LIST, 0, 100, .fields = timing_fields),
    IN("limits", TEXTS, 0, 100),
    {.key = NULL}};

/* ---- values ------------------------------------------------------------------- */

static bool is_choice(const char *value, const char *choices) {
  size_t n = strlen(value);
  for (const char *c = choices; n && *c; c += strcspn(c, "|"), c += *c == '|')
    if (strcspn(c, "|") == n && strncmp(c, value, n) == 0) return true;
  return false;
}

static bool is_hash(const char *value) {
  return strlen(value) == 64 && strspn(value, "0123456789abcdef") == 64;
}

static bool is_frozen_name(const char *value) {
  if (strncmp(value, "base/", 5) != 0 && strncmp(value, "cand/", 5) != 0) return false;
  const char *name = value + 5;
  return *name && *name != '.' && !strchr(name, '/') && strlen(name) <= 255;
}

static strata_status check_text(const json_t *value, const field *f, const char *path,
                                strata_error *err) {
  const char *text = json_string_value(value);
  size_t n = text ? json_string_length(value) : 0;
  if (f->kind == WORD && !(text && is_choice(text, f->choices)))
    ST_FAIL(err, FORMAT, "report: %s: %s expected", path, f->choices);
  if (f->kind == HASH && !(text && is_hash(text)))
    ST_FAIL(err, FORMAT, "report: %s: 64 hexadecimal digits expected", path);
  if (f->kind == FROZEN && !(text && is_frozen_name(text)))
    ST_FAIL(err, FORMAT, "report: %s: base/NAME or cand/NAME expected", path);
  if (f->kind == TEXT && !(text && (double)n >= f->min && (double)n <= f->max))
    ST_FAIL(err, FORMAT, "report: %s: a text of %.0f to %.0f bytes expected", path, f->min, f->max);
  return STRATA_OK;
}

static bool in_range(const json_t *value, const field *f) {
  double x = json_number_value(value);
  return json_is_number(value) && x >= f->min && x <= f->max;
}

static strata_status check_interval(const json_t *value, const field *f, const char *path,
                                    strata_error *err) {
  const json_t *low = json_array_get(value, 0), *high = json_array_get(value, 1);
  if (json_array_size(value) != 2 || !in_range(low, f) || !in_range(high, f) ||
      json_number_value(low) > json_number_value(high))
    ST_FAIL(err, FORMAT, "report: %s: two numbers, the lower one first, expected", path);
  return STRATA_OK;
}

static strata_status check_numbers(json_t *value, const field *f, const char *path,
                                   strata_error *err) {
  const char *key;
  json_t *item;
  if (!json_is_object(value) || (double)json_object_size(value) > f->max)
    ST_FAIL(err, FORMAT, "report: %s: an object of at most %.0f numbers expected", path, f->max);
  json_object_foreach(value, key, item)
    if (!json_is_number(item)) ST_FAIL(err, FORMAT, "report: %s.%s: a number expected", path, key);
  return STRATA_OK;
}

static strata_status check_list_size(const json_t *value, const field *f, const char *path,
                                     strata_error *err) {
  double n = (double)json_array_size(value);
  if (!json_is_array(value) || n < f->min || n > f->max)
    ST_FAIL(err, FORMAT, "report: %s: a list of %.0f to %.0f expected", path, f->min, f->max);
  return STRATA_OK;
}

static strata_status check_fields(json_t *object, const field *fields, const char *path,
                                  strata_error *err);

static strata_status check_list(json_t *value, const field *f, const char *path,
                                strata_error *err) {
  size_t i;
  json_t *item;
  ST_TRY(check_list_size(value, f, path, err));
  json_array_foreach(value, i, item) {
    char place[200];
    snprintf(place, sizeof place, "%.160s[%zu]", path, i);
    if (f->kind == LIST) ST_TRY(check_fields(item, f->fields, place, err));
    else if (!json_is_string(item)) ST_FAIL(err, FORMAT, "report: %s: a text expected", place);
  }
  return STRATA_OK;
}

static strata_status check_value(json_t *value, const field *f, const char *path,
                                 strata_error *err) {
  if (!value) ST_FAIL(err, FORMAT, "report: %s: missing: a value expected", path);
  if (f->nullable && json_is_null(value)) return STRATA_OK;
  switch (f->kind) {
    case TEXT:
    case WORD:
    case HASH:
    case FROZEN: return check_text(value, f, path, err);
    case WHOLE:
      if (!json_is_integer(value) || !in_range(value, f))
        ST_FAIL(err, FORMAT, "report: %s: a whole number from %.17g to %.17g expected", path,
                f->min, f->max);
      return STRATA_OK;
    case REAL:
      if (!in_range(value, f))
        ST_FAIL(err, FORMAT, "report: %s: a number from %g to %g expected", path, f->min, f->max);
      return STRATA_OK;
    case FLAG:
      if (!json_is_boolean(value)) ST_FAIL(err, FORMAT, "report: %s: true or false expected", path);
      return STRATA_OK;
    case OBJECT: return check_fields(value, f->fields, path, err);
    case LIST:
    case TEXTS: return check_list(value, f, path, err);
    case INTERVAL: return check_interval(value, f, path, err);
    case NUMBERS: return check_numbers(value, f, path, err);
  }
  return STRATA_OK;
}

static strata_status check_fields(json_t *object, const field *fields, const char *path,
                                  strata_error *err) {
  if (!json_is_object(object))
    ST_FAIL(err, FORMAT, "report: %s: an object expected", path[0] ? path : "the document");
  for (const field *f = fields; f->key; ++f) {
    char place[200];
    snprintf(place, sizeof place, "%s%s%s", path, path[0] ? "." : "", f->key);
    ST_TRY(check_value(json_object_get(object, f->key), f, place, err));
  }
  return STRATA_OK;
}

/* ---- what one table row cannot say ---------------------------------------------- */

/* An arm that is neither base nor its pair's would have no meaning. */
static strata_status check_arms(const json_t *timing, const char *path, size_t index,
                                strata_error *err) {
  size_t i;
  json_t *sample;
  json_array_foreach(json_object_get(timing, "samples"), i, sample) {
    const char *arm = lab_json_text(sample, "arm"), *pair = lab_json_text(sample, "pair");
    if (strcmp(arm, "base") != 0 && strcmp(arm, pair) != 0)
      ST_FAIL(err, FORMAT,
              "report: %s[%zu].samples[%zu].arm: %s in a pair of %s: base or %s expected", path,
              index, i, arm, pair, pair);
  }
  return STRATA_OK;
}

static strata_status check_timings(const json_t *timings, const char *path, strata_error *err) {
  size_t i;
  json_t *timing;
  json_array_foreach(timings, i, timing) ST_TRY(check_arms(timing, path, i, err));
  return STRATA_OK;
}

strata_status lab_report_check(const json_t *report, strata_error *err) {
  const char *names[LAB_REPORT_BUFFERS_MAX];
  size_t i;
  json_t *stage;
  /* jansson's loops want it without const; nothing is changed. */
  ST_TRY(check_fields((json_t *)(uintptr_t)report, report_fields, "", err));
  json_array_foreach(json_object_get(report, "stages"), i, stage) {
    char path[40];
    snprintf(path, sizeof path, "stages[%zu].timings", i);
    ST_TRY(check_timings(json_object_get(stage, "timings"), path, err));
    if (lab_report_buffer_names(stage, names) > LAB_REPORT_BUFFERS_MAX)
      ST_FAIL(err, FORMAT, "report: stages[%zu].parity: at most %d names of buffers expected", i,
              LAB_REPORT_BUFFERS_MAX);
  }
  return check_timings(json_object_get(report, "total"), "total", err);
}
