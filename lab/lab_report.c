/* Writing a report's three files, and what its readers share. */
#include "lab/lab_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "lab/lab_files.h"
#include "lab/lab_seal.h"
#include "lab/lab_text.h"
#include "os/st_file.h"

/* ---- shared questions ----------------------------------------------------------- */

const json_t *lab_report_timings(const json_t *report, size_t index, const char **name) {
  const json_t *stages = json_object_get(report, "stages"),
               *total = json_object_get(report, "total");
  const json_t *stage = json_array_get(stages, index);
  *name = stage ? lab_json_text(stage, "op") : "all stages together";
  if (stage) return json_object_get(stage, "timings");
  return index == json_array_size(stages) && json_array_size(total) ? total : NULL;
}

double lab_report_null_band(const json_t *timing) {
  double low = lab_json_end(timing, "null_interval", 0),
         high = lab_json_end(timing, "null_interval", 1);
  return low > 0 ? fmax(fmax(high, 1 / low), 1) : 0;
}

bool lab_report_case_passed(const json_t *parity) {
  size_t i;
  json_t *buffer;
  json_array_foreach(json_object_get(parity, "buffers"), i, buffer)
    if (strcmp(lab_json_text(buffer, "result"), "FAIL") == 0) return false;
  return strcmp(lab_json_text(parity, "result"), "pass") == 0;
}

bool lab_report_oracle_passed(const json_t *arm) {
  return lab_json_int(arm, "n") > 0 && lab_json_int(arm, "passed") == lab_json_int(arm, "n");
}

lab_unit lab_report_unit(const json_t *timings) {
  static const lab_unit units[] = {{"s", 1}, {"ms", 1e3}, {"µs", 1e6}};
  double least = INFINITY;
  size_t i, u = 0;
  json_t *timing;
  json_array_foreach(timings, i, timing) {
    double seconds = lab_json_real(timing, "base_seconds");
    if (seconds > 0) least = fmin(least, seconds);
  }
  if (!isfinite(least)) return units[1];
  while (u < 2 && least * units[u].per_second < 1) ++u;
  return units[u];
}

void lab_report_batch_note(const json_t *report, char *text, size_t n_bytes) {
  const json_t *timings;
  const char *name;
  text[0] = 0;
  for (size_t i = 0; !text[0] && (timings = lab_report_timings(report, i, &name)); ++i)
    if (json_array_size(timings))
      snprintf(text, n_bytes,
               "Times are those of a batch: %lld calls on sets of buffers in turn. Medians leave "
               "out the disturbed samples. Ratios are of pairs that ran side by side, in both "
               "orders; less than "
               "1 is faster.",
               (long long)lab_json_int(json_array_get(timings, 0), "calls"));
}

const char *lab_report_verdict_meaning(const json_t *report) {
  static const struct {
    const char *word, *meaning;
  } meanings[] = {
      {"faster",
       "At every size the candidate takes less time by the rule's least gain or more, and its "
       "interval lies outside the null band."},
      {"same",
       "No size is slower, and not every size is faster. A difference of the rule's least gain "
       "would have been seen."},
      {"slower",
       "At one size or more the candidate takes more time by the rule's least gain or more, and "
       "its interval lies outside the null band."},
      {"wrong", "The candidate does not give the base's results. The speed of wrong results means "
                "nothing; none is claimed."},
      {"no verdict", "This run says nothing about the candidate's speed."},
  };
  const char *verdict = lab_json_text(report, "verdict");
  if (strcmp(lab_json_text(report, "kind"), "aa") == 0 && strcmp(verdict, "same") == 0)
    return "Two copies of one kernel cannot be told apart. The null band is the noise of this "
           "machine: "
           "what lies inside it says nothing.";
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; ++i)
    if (strcmp(verdict, meanings[i].word) == 0) return meanings[i].meaning;
  return "";
}

size_t lab_report_buffer_names(const json_t *stage, const char *names[LAB_REPORT_BUFFERS_MAX]) {
  size_t n = 0, i, b, k;
  json_t *parity, *buffer;
  json_array_foreach(json_object_get(stage, "parity"), i, parity)
    json_array_foreach(json_object_get(parity, "buffers"), b, buffer) {
      const char *name = lab_json_text(buffer, "name");
      for (k = 0; k < n && strcmp(names[k], name) != 0; ++k) continue;
      if (k < n) continue;
      if (n == LAB_REPORT_BUFFERS_MAX) return n + 1;
      names[n++] = name;
    }
  return n;
}

const json_t *lab_report_buffer(const json_t *parity, const char *name) {
  size_t i;
  json_t *buffer;
  json_array_foreach(json_object_get(parity, "buffers"), i, buffer)
    if (strcmp(lab_json_text(buffer, "name"), name) == 0) return buffer;
  return NULL;
}

strata_status lab_report_patch(const json_t *report, char **text, size_t *n_bytes,
                               strata_error *err) {
  lab_text t = {.err = err};
  size_t i;
  json_t *stage;
  *text = NULL;
  *n_bytes = 0;
  ST_TRY(lab_report_check(report, err));
  json_array_foreach(json_object_get(report, "stages"), i, stage)
    lab_text_puts(&t, lab_json_text(stage, "diff"));
  return lab_text_finish(&t, text, n_bytes);
}

/* ---- writing ------------------------------------------------------------------- */

static strata_status write_file(const char *dir, const char *name, const char *text, size_t n_bytes,
                                strata_error *err) {
  char *path;
  ST_TRY(st_path_join(&path, dir, name, err));
  strata_status status = lab_file_write(path, text, n_bytes, err);
  st_free(path);
  return status;
}

typedef strata_status renderer(const json_t *report, char **text, size_t *n_bytes,
                               strata_error *err);

static strata_status write_rendered(const json_t *report, renderer *render, const char *dir,
                                    const char *name, strata_error *err) {
  char *text;
  size_t n_bytes;
  ST_TRY(render(report, &text, &n_bytes, err));
  strata_status status = write_file(dir, name, text, n_bytes, err);
  st_free(text);
  return status;
}

static strata_status write_sealed(const json_t *report, const char *dir, strata_error *err) {
  strata_status status = STRATA_OK;
  json_t *seals = NULL, *sealed = json_deep_copy(report);
  char *text = NULL;
  if (!sealed) ST_FAIL_OUT(err, NOMEM, "out of memory: a copy of the report");
  ST_TRY_OUT(lab_seal_make(report, &seals, err));
  if (json_object_set(sealed, "seals", seals) == 0) text = json_dumps(sealed, JSON_INDENT(1));
  if (!text) ST_FAIL_OUT(err, NOMEM, "out of memory: the report as JSON");
  ST_TRY_OUT(write_file(dir, "report.json", text, strlen(text), err));
out:
  free(text);
  json_decref(seals);
  json_decref(sealed);
  return status;
}

strata_status lab_report_write(const json_t *report, const char *dir, strata_error *err) {
  ST_TRY(write_rendered(report, lab_report_markdown, dir, "report.md", err));
  ST_TRY(write_rendered(report, lab_report_html, dir, "report.html", err));
  ST_TRY(write_rendered(report, lab_report_patch, dir, "candidate.patch", err));
  return write_sealed(report, dir, err);
}
