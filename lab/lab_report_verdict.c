/* The verdict over all of a report, and the line that says it. */
#include <math.h>
#include <string.h>

#include "lab/lab_report.h"
#include "lab/lab_text.h"

/* ---- verdict --------------------------------------------------------------------- */

static bool controls_behaved(const json_t *stage) {
  const json_t *controls = json_object_get(stage, "controls");
  size_t i;
  json_t *control;
  json_array_foreach(controls, i, control)
    if (!lab_json_true(control, "ok")) return false;
  return json_array_size(controls) > 0;
}

/* The first case in which the candidate's bytes are wrong, else NULL. */
static const json_t *first_failure(const json_t *stage) {
  size_t i;
  json_t *parity;
  json_array_foreach(json_object_get(stage, "parity"), i, parity)
    if (!lab_report_case_passed(parity)) return parity;
  return NULL;
}

static const json_t *oracle_of(const json_t *stage, const char *side) {
  return json_object_get(json_object_get(stage, "oracle"), side);
}

static bool is_wrong(const json_t *stage) {
  return first_failure(stage) || !lab_report_oracle_passed(oracle_of(stage, "cand"));
}

/* The first size that was found wrong only when it was timed, else NULL. */
static const json_t *wrong_timing(const json_t *timings) {
  size_t i;
  json_t *timing;
  json_array_foreach(timings, i, timing)
    if (strcmp(lab_json_text(timing, "verdict"), lab_verdict_name(LAB_WRONG)) == 0) return timing;
  return NULL;
}

static const json_t *first_wrong_timing(const json_t *report) {
  const json_t *timings, *found = NULL;
  const char *name;
  for (size_t i = 0; !found && (timings = lab_report_timings(report, i, &name)); ++i) found = wrong_timing(timings);
  return found;
}

static bool is_kind(const json_t *report, const char *kind) {
  return strcmp(lab_json_text(report, "kind"), kind) == 0;
}

const json_t *lab_report_deciding(const json_t *report) {
  const json_t *stages = json_object_get(report, "stages");
  if (is_kind(report, "pipeline")) return json_object_get(report, "total");
  return json_object_get(json_array_get(stages, 0), "timings");
}

lab_verdict lab_verdict_by_name(const char *name) {
  for (int v = 0; v < LAB_VERDICTS; ++v)
    if (strcmp(name, lab_verdict_name((lab_verdict)v)) == 0) return (lab_verdict)v;
  return LAB_NO_VERDICT;
}

static lab_verdict over_sizes(const json_t *timings) {
  lab_verdict sizes[100]; /* lab_report_check allows no more */
  int32_t n = 0;
  size_t i;
  json_t *timing;
  json_array_foreach(timings, i, timing)
    if (n < 100) sizes[n++] = lab_verdict_by_name(lab_json_text(timing, "verdict"));
  return lab_stats_overall(sizes, n);
}

lab_verdict lab_report_overall(const json_t *report) {
  size_t i;
  json_t *stage;
  const json_t *stages = json_object_get(report, "stages");
  json_array_foreach(stages, i, stage)
    if (!controls_behaved(stage) || !lab_report_oracle_passed(oracle_of(stage, "base")))
      return LAB_NO_VERDICT;
  json_array_foreach(stages, i, stage)
    if (is_wrong(stage)) return LAB_WRONG;
  return first_wrong_timing(report) ? LAB_WRONG : over_sizes(lab_report_deciding(report));
}

/* ---- headline --------------------------------------------------------------------- */

static void put_ops(lab_text *t, const json_t *stages) {
  size_t i, n = json_array_size(stages);
  json_t *stage;
  json_array_foreach(stages, i, stage) {
    lab_text_puts(t, i == 0 ? "" : i + 1 == n ? " and " : ", ");
    lab_text_puts(t, lab_json_text(stage, "op"));
  }
}

/* A side as one word: a file without its folders, or a variant. */
static void put_side(lab_text *t, const json_t *report, const char *side) {
  const char *given = lab_json_text(
      json_object_get(json_array_get(json_object_get(report, "stages"), 0), side), "given");
  const char *slash = strrchr(given, '/');
  if (is_kind(report, "pipeline"))
    lab_text_puts(t, strcmp(side, "base") == 0 ? "the base" : "the candidate");
  else lab_text_puts(t, slash && slash[1] ? slash + 1 : given);
}

static void put_sizes(lab_text *t, const json_t *timings) {
  size_t i, n = json_array_size(timings);
  json_t *timing;
  lab_text_puts(t, " (");
  if (n > 4) lab_text_printf(t, "%zu sizes, ", n);
  json_array_foreach(timings, i, timing) {
    if (n > 4 && i > 0 && i + 1 < n) continue;
    lab_text_puts(t, i == 0 ? "" : n > 4 ? " to " : ", ");
    lab_text_puts(t, lab_json_text(timing, "size"));
  }
  lab_text_puts(t, ")");
}

typedef struct spread {
  double least, most;
} spread;

static spread spread_of(const json_t *timings, double (*value)(const json_t *timing)) {
  spread s = {INFINITY, 0};
  size_t i;
  json_t *timing;
  json_array_foreach(timings, i, timing) {
    s.least = fmin(s.least, value(timing));
    s.most = fmax(s.most, value(timing));
  }
  return s;
}

static double ratio_of(const json_t *timing) { return lab_json_real(timing, "ratio"); }

static void put_range(lab_text *t, double low, double high, int digits) {
  lab_text_real(t, low, digits);
  if (low == high) return;
  lab_text_puts(t, " to ");
  lab_text_real(t, high, digits);
}

static void put_pace(lab_text *t, const json_t *report, lab_verdict verdict) {
  const json_t *timings = lab_report_deciding(report);
  spread s = spread_of(timings, ratio_of);
  put_side(t, report, "cand");
  lab_text_puts(t, verdict == LAB_FASTER   ? " is "
                   : verdict == LAB_SLOWER ? " is slower, taking "
                                           : " is as fast as ");
  if (verdict == LAB_FASTER) {
    put_range(t, 1 / s.most, 1 / s.least, 3);
    lab_text_puts(t, " times as fast as ");
  } else if (verdict == LAB_SLOWER) {
    put_range(t, s.least, s.most, 3);
    lab_text_puts(t, " times the time of ");
  }
  put_side(t, report, "base");
  put_sizes(t, timings);
}

static const char *failed_buffer(const json_t *parity) {
  size_t i;
  json_t *buffer;
  json_array_foreach(json_object_get(parity, "buffers"), i, buffer)
    if (strcmp(lab_json_text(buffer, "result"), "FAIL") == 0) return lab_json_text(buffer, "name");
  return NULL;
}

static void put_wrong_when_timed(lab_text *t, const json_t *timing) {
  lab_text_puts(t, " is wrong when timed at ");
  lab_text_puts(t, lab_json_text(timing, "size"));
  lab_text_puts(t, ": ");
  lab_text_puts(t, lab_json_text(timing, "reason"));
}

static void put_wrong(lab_text *t, const json_t *report) {
  const json_t *stages = json_object_get(report, "stages"), *stage;
  size_t i = 0;
  while ((stage = json_array_get(stages, i)) && !is_wrong(stage)) ++i;
  put_side(t, report, "cand");
  if (!stage) {
    put_wrong_when_timed(t, first_wrong_timing(report));
    return;
  }
  const json_t *parity = first_failure(stage);
  const char *word = lab_json_text(parity ? parity : oracle_of(stage, "cand"),
                                   parity ? "result" : "word");
  const char *buffer = strcmp(word, "wrong") == 0 ? failed_buffer(parity) : NULL;
  lab_text_puts(t, is_kind(report, "pipeline") ? " is wrong in " : " is wrong");
  if (is_kind(report, "pipeline")) lab_text_puts(t, lab_json_text(stage, "op"));
  lab_text_puts(t, parity ? " at " : " in the op's test cases");
  if (parity) lab_text_puts(t, lab_json_text(parity, "size"));
  lab_text_puts(t, ": ");
  lab_text_puts(t, buffer ? buffer : word);
  if (buffer) lab_text_puts(t, " differs");
}

static void put_null_run(lab_text *t, const json_t *report) {
  const json_t *timings = lab_report_deciding(report);
  put_side(t, report, "base");
  lab_text_puts(t, " against itself varies by up to ");
  lab_text_real(t, 100 * (spread_of(timings, lab_report_null_band).most - 1), 2);
  lab_text_puts(t, " %");
  put_sizes(t, timings);
}

strata_status lab_report_headline(const json_t *report, char **text, size_t *n_bytes,
                                  strata_error *err) {
  lab_text t = {.err = err};
  lab_verdict verdict = lab_report_overall(report);
  put_ops(&t, json_object_get(report, "stages"));
  lab_text_puts(&t, ": ");
  if (verdict == LAB_WRONG) put_wrong(&t, report);
  else if (verdict == LAB_NO_VERDICT) {
    lab_text_puts(&t, "no verdict on ");
    put_side(&t, report, "cand");
    if (lab_json_text(report, "reason")[0]) lab_text_puts(&t, ": ");
    lab_text_puts(&t, lab_json_text(report, "reason"));
  } else if (is_kind(report, "aa")) put_null_run(&t, report);
  else put_pace(&t, report, verdict);
  return lab_text_finish(&t, text, n_bytes);
}
