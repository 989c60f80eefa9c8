/* Recomputing a stored report. */
#include "lab/lab_verify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "lab/lab_report.h"
#include "lab/lab_seal.h"
#include "lab/lab_text.h"
#include "os/st_file.h"

enum { REPORT_BYTES_MAX = 512 * 1024 * 1024 };

/* Another C library's logarithm may differ in its last bits; the seals find every
 * smaller edit. */
#define NUMBER_TOLERANCE 1e-9

static void say(lab_verify_sink *sink, bool edited, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(lab_verify_sink *sink, bool edited, const char *format, ...) {
  char raw[sizeof((strata_error *)0)->message];
  strata_error line; /* for its escaping of control characters */
  va_list args;
  va_start(args, format);
  vsnprintf(raw, sizeof raw, format, args);
  va_end(args);
  st_error_set(&line, STRATA_OK, "%s", raw);
  sink->n_edited += edited;
  sink->line(sink->user, edited, line.message);
}

/* ---- reading ---------------------------------------------------------------------- */

strata_status lab_verify_parse(const char *name, const char *text, size_t n_bytes, json_t **report,
                               strata_error *err) {
  json_error_t where;
  *report = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &where);
  if (!*report)
    ST_FAIL(err, ARG, "%s: line %d: %s: a report expected", name, where.line, where.text);
  bool is_report = strcmp(lab_json_text(*report, "format"), "strata lab report") == 0;
  const json_t *version = json_object_get(*report, "version");
  if (is_report && json_integer_value(version) == 1) return STRATA_OK;
  if (is_report)
    st_error_set(err, STRATA_ARG, "%s: version %lld: a report of version 1 expected", name,
                 (long long)json_integer_value(version));
  else
    st_error_set(err, STRATA_ARG, "%s: no \"format\": \"strata lab report\": a report expected",
                 name);
  json_decref(*report);
  *report = NULL;
  return STRATA_ARG;
}

/* ---- seals -------------------------------------------------------------------------- */

/* The bytes of the place that holds a path: what stands before its last dot. */
static size_t place_bytes(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? (size_t)(dot - path) : 0;
}

static bool lies_in(const char *path, const char *place, size_t n_bytes) {
  return strncmp(path, place, n_bytes) == 0 && path[n_bytes] == '.';
}

static bool has_part_in(json_t *seals, const char *place, size_t n_bytes) {
  const char *path;
  json_t *seal;
  json_object_foreach(seals, path, seal)
    if (lies_in(path, place, n_bytes)) return true;
  return false;
}

/* The parts of here that there does not have. A place of which nothing is there is
 * named once instead of part by part. */
static void say_missing(json_t *here, json_t *there, const char *what, lab_verify_sink *sink) {
  const char *path, *said = "";
  size_t n_said = 0;
  json_t *seal;
  json_object_foreach(here, path, seal) {
    size_t n = place_bytes(path);
    if (json_object_get(there, path) || (n_said && lies_in(path, said, n_said))) continue;
    bool whole = n && !has_part_in(there, path, n);
    if (whole) said = path, n_said = n;
    say(sink, true, "%.*s was %s", whole ? (int)n : (int)strlen(path), path, what);
  }
}

static strata_status verify_seals(const json_t *report, lab_verify_sink *sink, strata_error *err) {
  json_t *found, *stored = json_object_get(report, "seals"), *seal;
  const char *path;
  int32_t before = sink->n_edited;
  if (!json_is_object(stored)) {
    say(sink, true, "seals was removed");
    return STRATA_OK;
  }
  ST_TRY(lab_seal_make(report, &found, err));
  json_object_foreach(stored, path, seal) {
    json_t *now = json_object_get(found, path);
    if (now && !json_equal(now, seal)) say(sink, true, "%s was edited", path);
  }
  say_missing(stored, found, "removed", sink);
  say_missing(found, stored, "added", sink);
  if (sink->n_edited == before) say(sink, false, "seals: %zu parts", json_object_size(found));
  json_decref(found);
  return STRATA_OK;
}

/* ---- numbers ------------------------------------------------------------------------ */

/* Where one timing's results go. */
typedef struct timing_check {
  const json_t *timing;
  lab_verify_sink *sink;
  const char *stage;
} timing_check;

static const char *size_of(const timing_check *c) { return lab_json_text(c->timing, "size"); }

static void same_real(const timing_check *c, const char *key, double stored, double found) {
  if (fabs(stored - found) <= NUMBER_TOLERANCE * fabs(found)) return;
  say(c->sink, true, "%s %s: %s is %.9g: its samples give %.9g", c->stage, size_of(c), key, stored,
      found);
}

static void same_whole(const timing_check *c, const char *key, int64_t found) {
  int64_t stored = lab_json_int(c->timing, key);
  if (stored == found) return;
  say(c->sink, true, "%s %s: %s is %lld: its samples give %lld", c->stage, size_of(c), key,
      (long long)stored, (long long)found);
}

static void same_estimate(const timing_check *c, const char *ratio, const char *interval,
                          const lab_estimate *e) {
  same_real(c, ratio, lab_json_real(c->timing, ratio), e->ratio);
  same_real(c, interval, lab_json_end(c->timing, interval, 0), e->low);
  same_real(c, interval, lab_json_end(c->timing, interval, 1), e->high);
}

static lab_arm arm_by_name(const char *name) {
  return strcmp(name, "base") == 0 ? LAB_BASE : strcmp(name, "cand") == 0 ? LAB_CAND : LAB_NULL;
}

static lab_sample sample_of(const json_t *sample) {
  return (lab_sample){.round = (int32_t)lab_json_int(sample, "round"),
                      .pair = arm_by_name(lab_json_text(sample, "pair")),
                      .arm = arm_by_name(lab_json_text(sample, "arm")),
                      .order = (int32_t)lab_json_int(sample, "order"),
                      .at = lab_json_real(sample, "at"),
                      .seconds = lab_json_real(sample, "seconds")};
}

static void same_marks(const timing_check *c, const lab_sample *samples) {
  size_t i;
  json_t *sample;
  json_array_foreach(json_object_get(c->timing, "samples"), i, sample)
    if (lab_json_true(sample, "disturbed") != samples[i].disturbed)
      say(c->sink, true, "%s %s: samples[%zu].disturbed is %s: its seconds say otherwise", c->stage,
          size_of(c), i, samples[i].disturbed ? "false" : "true");
}

/* That a run was stopped, or that a timed batch left other bytes, is not in the
 * samples; either way no speed is claimed. */
static bool claims_nothing(const json_t *timing) {
  const char *verdict = lab_json_text(timing, "verdict"), *reason = lab_json_text(timing, "reason");
  return strcmp(verdict, "wrong") == 0 ||
         (strcmp(verdict, "no verdict") == 0 &&
          (strcmp(reason, LAB_REASON_DEADLINE) == 0 || strcmp(reason, LAB_REASON_CRASHED) == 0));
}

static void same_verdict(const timing_check *c, const lab_outcome *o) {
  const char *stored = lab_json_text(c->timing, "verdict"), *found = lab_verdict_name(o->verdict);
  if (claims_nothing(c->timing)) return;
  if (strcmp(stored, found) != 0)
    say(c->sink, true, "%s %s: verdict is %s: its samples give %s", c->stage, size_of(c), stored,
        found);
  if (strcmp(lab_json_text(c->timing, "reason"), o->reason) != 0)
    say(c->sink, true, "%s %s: reason is \"%s\": its samples give \"%s\"", c->stage, size_of(c),
        lab_json_text(c->timing, "reason"), o->reason);
}

static void same_outcome(const timing_check *c, const lab_sample *samples, const lab_outcome *o) {
  const char *const keys[LAB_ARMS] = {"base_seconds", "cand_seconds", "null_seconds"};
  int32_t before = c->sink->n_edited;
  same_marks(c, samples);
  same_whole(c, "rounds", o->n_rounds);
  same_whole(c, "disturbed", o->n_disturbed);
  for (int arm = 0; arm < LAB_ARMS; ++arm)
    same_real(c, keys[arm], lab_json_real(c->timing, keys[arm]), o->seconds[arm]);
  same_estimate(c, "ratio", "interval", &o->cand);
  same_estimate(c, "null_ratio", "null_interval", &o->null);
  same_verdict(c, o);
  if (c->sink->n_edited == before)
    say(c->sink, false, "%s %s: marks, medians, ratios, intervals, verdict from %zu samples",
        c->stage, size_of(c), json_array_size(json_object_get(c->timing, "samples")));
}

static strata_status verify_timing(const timing_check *c, const lab_rule *rule, strata_error *err) {
  const json_t *samples = json_object_get(c->timing, "samples");
  size_t n = json_array_size(samples);
  lab_outcome outcome;
  void *memory;
  ST_TRY(st_calloc(&memory, n, sizeof(lab_sample), "samples", err));
  for (size_t i = 0; i < n; ++i) ((lab_sample *)memory)[i] = sample_of(json_array_get(samples, i));
  strata_status status = lab_stats_judge(memory, (int32_t)n, rule, &outcome, err);
  if (status == STRATA_OK) same_outcome(c, memory, &outcome);
  st_free(memory);
  return status;
}

static lab_rule rule_of(const json_t *report) {
  const json_t *rule = json_object_get(report, "rule");
  return (lab_rule){.min_gain = lab_json_real(rule, "min_gain"),
                    .confidence = lab_json_real(rule, "confidence"),
                    .narrow = lab_json_real(rule, "narrow"),
                    .disturbed = lab_json_real(rule, "disturbed"),
                    .max_disturbed = lab_json_real(rule, "max_disturbed"),
                    .min_rounds = (int32_t)lab_json_int(rule, "min_rounds"),
                    .max_rounds = (int32_t)lab_json_int(rule, "max_rounds")};
}

static strata_status verify_timings(const json_t *report, lab_verify_sink *sink,
                                    strata_error *err) {
  lab_rule rule = rule_of(report);
  const json_t *timings;
  const char *stage;
  size_t k;
  json_t *timing;
  for (size_t i = 0; (timings = lab_report_timings(report, i, &stage)); ++i)
    json_array_foreach(timings, k, timing)
      ST_TRY(verify_timing(&(timing_check){timing, sink, stage}, &rule, err));
  return STRATA_OK;
}

static bool equal_rules(const lab_rule *a, const lab_rule *b) {
  return a->min_gain == b->min_gain && a->confidence == b->confidence && a->narrow == b->narrow &&
         a->disturbed == b->disturbed && a->max_disturbed == b->max_disturbed &&
         a->min_rounds == b->min_rounds && a->max_rounds == b->max_rounds;
}

/* The rule's numbers and hash follow from its text; one that is said to be the built-in
 * one must be that one. */
static strata_status verify_rule(const json_t *report, lab_verify_sink *sink, strata_error *err) {
  const json_t *stored = json_object_get(report, "rule");
  const char *hash = lab_json_text(stored, "sha256");
  lab_rule built_in, parsed, rule = rule_of(report);
  ST_TRY(lab_rule_read(NULL, &built_in, err));
  bool said = strcmp(lab_json_text(stored, "file"), "built in") == 0;
  strata_status status = lab_rule_parse(lab_json_text(stored, "text"), "rule", &parsed, err);
  if (status == STRATA_NOMEM) return status;
  bool same = status == STRATA_OK && equal_rules(&rule, &parsed) && strcmp(hash, parsed.sha256) == 0;
  if (said && same && strcmp(hash, built_in.sha256) != 0) say(sink, true, "rule is not the built-in one, as it says");
  else say(sink, !same, same ? "rule: what its text says" : "rule is not what its text says");
  return STRATA_OK;
}

/* ---- words ---------------------------------------------------------------------------- */

static void verify_controls(const json_t *stage, lab_verify_sink *sink) {
  size_t i;
  json_t *control;
  json_array_foreach(json_object_get(stage, "controls"), i, control) {
    bool same = strcmp(lab_json_text(control, "expected"), lab_json_text(control, "got")) == 0;
    if (same != lab_json_true(control, "ok"))
      say(sink, true, "%s: control \"%s\" is marked %s: what it got says otherwise",
          lab_json_text(stage, "op"), lab_json_text(control, "name"), same ? "not ok" : "ok");
  }
}

/* A case that has a failed buffer does not pass, and of an exact kernel a buffer of
 * which elements differ does not. */
static void verify_parity(const json_t *stage, lab_verify_sink *sink) {
  size_t i, b;
  json_t *parity, *buffer;
  bool exact = json_is_null(json_object_get(stage, "bound"));
  json_array_foreach(json_object_get(stage, "parity"), i, parity) {
    bool failed = false, says_pass = strcmp(lab_json_text(parity, "result"), "pass") == 0;
    json_array_foreach(json_object_get(parity, "buffers"), b, buffer) {
      bool is_fail = strcmp(lab_json_text(buffer, "result"), "FAIL") == 0;
      failed |= is_fail;
      if (exact && !is_fail && lab_json_int(buffer, "count"))
        say(sink, true, "%s %s: %s is %s: %lld of its elements differ", lab_json_text(stage, "op"),
            lab_json_text(parity, "size"), lab_json_text(buffer, "name"),
            lab_json_text(buffer, "result"), (long long)lab_json_int(buffer, "count"));
    }
    if (failed && says_pass)
      say(sink, true, "%s %s: result is pass: a buffer failed", lab_json_text(stage, "op"),
          lab_json_text(parity, "size"));
  }
}

static strata_status verify_verdict(const json_t *report, lab_verify_sink *sink,
                                    strata_error *err) {
  const char *stored = lab_json_text(report, "verdict"),
             *found = lab_verdict_name(lab_report_overall(report));
  char *headline;
  size_t n_bytes;
  ST_TRY(lab_report_headline(report, &headline, &n_bytes, err));
  bool same_words = strcmp(headline, lab_json_text(report, "headline")) == 0;
  bool same_verdict = strcmp(stored, found) == 0;
  if (!same_verdict) say(sink, true, "verdict is %s: its parts give %s", stored, found);
  if (!same_words) say(sink, true, "headline: its parts give \"%s\"", headline);
  if (same_words && same_verdict) say(sink, false, "verdict over all, and headline");
  st_free(headline);
  return STRATA_OK;
}

strata_status lab_verify_numbers(const json_t *report, lab_verify_sink *sink, strata_error *err) {
  strata_error form;
  size_t i;
  json_t *stage;
  ST_TRY(verify_seals(report, sink, err));
  if (lab_report_check(report, &form) != STRATA_OK) {
    say(sink, true, "%s", form.message);
    return STRATA_OK;
  }
  ST_TRY(verify_rule(report, sink, err));
  json_array_foreach(json_object_get(report, "stages"), i, stage) {
    verify_controls(stage, sink);
    verify_parity(stage, sink);
  }
  ST_TRY(verify_timings(report, sink, err));
  return verify_verdict(report, sink, err);
}

/* ---- files ------------------------------------------------------------------------------ */

/* *text is NULL if the file cannot be read. */
static strata_status read_beside(const char *dir, const char *name, char **text, size_t *n_bytes,
                                 strata_error *err) {
  char *path;
  strata_error unreadable;
  ST_TRY(st_path_join(&path, dir, name, err));
  strata_status status = st_file_read(path, REPORT_BYTES_MAX, text, n_bytes, &unreadable);
  st_free(path);
  if (status == STRATA_NOMEM) return st_error_nomem(err, name, 0);
  return STRATA_OK;
}

static strata_status verify_source(const char *dir, const json_t *source, lab_verify_sink *sink,
                                   strata_error *err) {
  const char *name = lab_json_text(source, "file"), *stored = lab_json_text(source, "sha256");
  char hex[65], *text;
  size_t n_bytes;
  ST_TRY(read_beside(dir, name, &text, &n_bytes, err));
  if (!text) {
    say(sink, true, "%s is missing", name);
    return STRATA_OK;
  }
  strata_status status = lab_seal_hash(text, n_bytes, hex, err);
  st_free(text);
  ST_TRY(status);
  if (strcmp(hex, stored) == 0) say(sink, false, "%s: SHA-256 %.16s...", name, hex);
  else
    say(sink, true, "%s was edited: its SHA-256 is %.16s...: %.16s... expected", name, hex, stored);
  return STRATA_OK;
}

static strata_status verify_sources(const char *dir, const json_t *report, lab_verify_sink *sink,
                                    strata_error *err) {
  size_t i;
  json_t *stage;
  json_array_foreach(json_object_get(report, "stages"), i, stage) {
    ST_TRY(verify_source(dir, json_object_get(stage, "base"), sink, err));
    ST_TRY(verify_source(dir, json_object_get(stage, "cand"), sink, err));
  }
  return STRATA_OK;
}

/* The first line in which two texts differ, from 1. */
static int64_t first_line(const char *a, size_t n_a, const char *b, size_t n_b) {
  int64_t line = 1;
  for (size_t i = 0; i < n_a && i < n_b && a[i] == b[i]; ++i) line += a[i] == '\n';
  return line;
}

typedef strata_status renderer(const json_t *report, char **text, size_t *n_bytes,
                               strata_error *err);

static strata_status verify_rendered(const char *dir, const char *name, const json_t *report,
                                     renderer *render, lab_verify_sink *sink, strata_error *err) {
  char *stored, *found = NULL;
  size_t n_stored, n_found;
  ST_TRY(read_beside(dir, name, &stored, &n_stored, err));
  strata_status status = render(report, &found, &n_found, err);
  if (status == STRATA_OK && !stored) say(sink, true, "%s is missing", name);
  else if (status == STRATA_OK && n_stored == n_found && memcmp(stored, found, n_found) == 0)
    say(sink, false, "%s: the bytes that report.json gives", name);
  else if (status == STRATA_OK)
    say(sink, true, "%s was edited: line %lld is not what report.json gives", name,
        (long long)first_line(stored, n_stored, found, n_found));
  st_free(found);
  st_free(stored);
  return status;
}

static strata_status verify_files(const char *dir, const json_t *report, lab_verify_sink *sink,
                                  strata_error *err) {
  if (lab_report_check(report, NULL) != STRATA_OK) return STRATA_OK; /* has been said */
  ST_TRY(verify_sources(dir, report, sink, err));
  ST_TRY(verify_rendered(dir, "report.md", report, lab_report_markdown, sink, err));
  ST_TRY(verify_rendered(dir, "report.html", report, lab_report_html, sink, err));
  return verify_rendered(dir, "candidate.patch", report, lab_report_patch, sink, err);
}

strata_status lab_verify(const char *dir, lab_verify_sink *sink, char **headline,
                         strata_error *err) {
  strata_status status = STRATA_OK;
  char *path, *text = NULL;
  size_t n_bytes;
  json_t *report = NULL;
  *headline = NULL;
  ST_TRY(st_path_join(&path, dir, "report.json", err));
  status = st_file_read(path, REPORT_BYTES_MAX, &text, &n_bytes, err);
  if (status != STRATA_OK && status != STRATA_NOMEM)
    ST_FAIL_OUT(err, ARG, "%s: no readable report.json: the directory of a report expected", dir);
  ST_TRY_OUT(status);
  ST_TRY_OUT(lab_verify_parse(path, text, n_bytes, &report, err));
  ST_TRY_OUT(lab_verify_numbers(report, sink, err));
  ST_TRY_OUT(verify_files(dir, report, sink, err));
  const char *line = lab_json_text(report, "headline");
  ST_TRY_OUT(st_strndup(headline, line, strlen(line), err));
out:
  json_decref(report);
  st_free(text);
  st_free(path);
  return status;
}
