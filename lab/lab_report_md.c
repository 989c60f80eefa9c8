/* report.md: the tables of an audit, the verdict first. */
#include <string.h>

#include "lab/lab_report.h"
#include "lab/lab_text.h"

static void heading(lab_text *t, const char *title) { lab_text_printf(t, "\n## %s\n\n", title); }

static void cell(lab_text *t, const char *text) {
  lab_text_puts(t, " ");
  lab_text_md(t, text);
  lab_text_puts(t, " |");
}

static void cell_real(lab_text *t, double value, int digits) {
  lab_text_puts(t, " ");
  lab_text_real(t, value, digits);
  lab_text_puts(t, " |");
}

/* A row of a two-column table. */
static void fact(lab_text *t, const char *name, const char *value) {
  lab_text_printf(t, "| %s |", name);
  cell(t, value);
  lab_text_puts(t, "\n");
}

static void fact_bytes(lab_text *t, const char *name, int64_t n_bytes) {
  lab_text_printf(t, "| %s | %lld bytes |\n", name, (long long)n_bytes);
}

static void put_top(lab_text *t, const json_t *r) {
  lab_text_puts(t, "# ");
  lab_text_md(t, lab_json_text(r, "headline"));
  lab_text_printf(t, "\n\n**Verdict: %s.** %s\n", lab_json_text(r, "verdict"),
                  lab_report_verdict_meaning(r));
  if (lab_json_text(r, "reason")[0]) {
    lab_text_puts(t, "\nReason: ");
    lab_text_md(t, lab_json_text(r, "reason"));
    lab_text_puts(t, "\n");
  }
  lab_text_puts(t, "\nStarted ");
  lab_text_md(t, lab_json_text(r, "started"));
  lab_text_puts(t, ", took ");
  lab_text_real(t, lab_json_real(r, "seconds"), 1);
  lab_text_puts(t, " s.\n");
}

/* ---- contract, machine, sources ------------------------------------------------- */

static void put_contracts(lab_text *t, const json_t *stages) {
  size_t i;
  json_t *stage;
  heading(t, "Contract");
  json_array_foreach(stages, i, stage) {
    lab_text_puts(t, i ? "\n**" : "**");
    lab_text_md(t, lab_json_text(stage, "op"));
    lab_text_printf(t, "**, contract %lld, class %s", (long long)lab_json_int(stage, "contract"),
                    lab_json_text(stage, "class"));
    if (json_is_number(json_object_get(stage, "bound")))
      lab_text_printf(t, ", bound %.3g", lab_json_real(stage, "bound"));
    lab_text_puts(t, ":\n\n");
    lab_text_md_block(t, lab_json_text(stage, "contract_text"));
  }
}

static void put_machine(lab_text *t, const json_t *r) {
  const json_t *m = json_object_get(r, "machine"), *c = json_object_get(r, "ceilings");
  const json_t *levels = json_object_get(c, "bytes_per_s");
  heading(t, "Machine");
  lab_text_puts(t, "| | |\n|---|---|\n");
  fact(t, "CPU", lab_json_text(m, "cpu"));
  fact(t, "id", lab_json_text(m, "id"));
  lab_text_printf(t, "| CPUs, threads | %lld, %lld |\n", (long long)lab_json_int(m, "cpus"),
                  (long long)lab_json_int(m, "threads"));
  fact(t, "level", lab_json_text(m, "level"));
  fact_bytes(t, "L1", lab_json_int(m, "l1_bytes"));
  fact_bytes(t, "L2", lab_json_int(m, "l2_bytes"));
  fact_bytes(t, "L3", lab_json_int(m, "l3_bytes"));
  fact(t, "system", lab_json_text(m, "system"));
  fact(t, "strata", lab_json_text(m, "strata"));
  fact(t, "its sources, SHA-256", lab_json_text(m, "sources_sha256"));
  if (!json_is_object(c)) return;
  lab_text_printf(
      t, "| measured ceilings | %.4g GFLOP/s; L1 %.4g, L2 %.4g, L3 %.4g, memory %.4g GB/s |\n",
      lab_json_real(c, "flops_per_s") / 1e9, lab_json_real(levels, "l1") / 1e9,
      lab_json_real(levels, "l2") / 1e9, lab_json_real(levels, "l3") / 1e9,
      lab_json_real(levels, "dram") / 1e9);
}

static void put_source(lab_text *t, const json_t *stage, const char *side) {
  static const char *const keys[] = {"given", "variant",  "file",  "sha256",  "level",
                                     "class", "compiler", "flags", "fp_mode", "module"};
  const json_t *source = json_object_get(stage, side);
  lab_text_puts(t, "|");
  cell(t, lab_json_text(stage, "op"));
  cell(t, side);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; ++i) cell(t, lab_json_text(source, keys[i]));
  lab_text_puts(t, "\n");
}

static void put_sources(lab_text *t, const json_t *stages) {
  size_t i;
  json_t *stage;
  heading(t, "Sources");
  lab_text_puts(
      t, "| op | side | given | variant | frozen as | SHA-256 | level | class | compiler | flags "
         "| floating-point mode | module |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  json_array_foreach(stages, i, stage) {
    put_source(t, stage, "base");
    put_source(t, stage, "cand");
  }
}

/* ---- controls and correctness ---------------------------------------------------- */

static void put_controls(lab_text *t, const json_t *stages) {
  size_t i, c;
  json_t *stage, *control;
  heading(t, "Controls");
  lab_text_puts(t, "| op | control | expected | got | seen | |\n|---|---|---|---|---|---|\n");
  json_array_foreach(stages, i, stage)
    json_array_foreach(json_object_get(stage, "controls"), c, control) {
      lab_text_puts(t, "|");
      cell(t, lab_json_text(stage, "op"));
      cell(t, lab_json_text(control, "name"));
      cell(t, lab_json_text(control, "expected"));
      cell(t, lab_json_text(control, "got"));
      cell(t, lab_json_text(control, "detail"));
      lab_text_puts(t, lab_json_true(control, "ok") ? " ok |\n" : " **not ok** |\n");
    }
}

static void put_oracle(lab_text *t, const json_t *stage, const char *side) {
  const json_t *arm = json_object_get(json_object_get(stage, "oracle"), side);
  lab_text_printf(t, "- %s: %lld of %lld of the op's test cases agree with its oracle", side,
                  (long long)lab_json_int(arm, "passed"), (long long)lab_json_int(arm, "n"));
  if (!lab_report_oracle_passed(arm)) {
    lab_text_puts(t, ": **");
    lab_text_md(t, lab_json_text(arm, "word"));
    lab_text_puts(t, "** ");
    lab_text_md(t, lab_json_text(arm, "detail"));
  }
  lab_text_puts(t, "\n");
}

static void put_matrix(lab_text *t, const json_t *stage) {
  const char *names[LAB_REPORT_BUFFERS_MAX];
  size_t n = lab_report_buffer_names(stage, names), i, b;
  json_t *parity;
  lab_text_puts(t, "\n| case | seed |");
  for (b = 0; b < n; ++b) cell(t, names[b]);
  lab_text_puts(t, " result |\n|---|---|");
  for (b = 0; b < n; ++b) lab_text_puts(t, "---|");
  lab_text_puts(t, "---|\n");
  json_array_foreach(json_object_get(stage, "parity"), i, parity) {
    lab_text_puts(t, "|");
    cell(t, lab_json_text(parity, "size"));
    lab_text_printf(t, " %lld |", (long long)lab_json_int(parity, "seed"));
    for (b = 0; b < n; ++b) {
      const json_t *buffer = lab_report_buffer(parity, names[b]);
      lab_text_printf(t, " %s |", buffer ? lab_json_text(buffer, "result") : "");
    }
    cell(t, lab_json_text(parity, "result"));
    lab_text_puts(t, "\n");
  }
}

static void put_failed_buffer(lab_text *t, const json_t *parity, const json_t *buffer) {
  lab_text_puts(t, "- ");
  lab_text_md(t, lab_json_text(parity, "size"));
  lab_text_puts(t, ", ");
  lab_text_md(t, lab_json_text(buffer, "name"));
  lab_text_puts(t, ": ");
  lab_text_md(t, lab_json_text(buffer, "word"));
  lab_text_printf(t, ", first at %lld, %lld of %lld", (long long)lab_json_int(buffer, "first"),
                  (long long)lab_json_int(buffer, "count"), (long long)lab_json_int(buffer, "n"));
  if (json_is_number(json_object_get(buffer, "max_abs")))
    lab_text_printf(t, ", at most %.3g apart", lab_json_real(buffer, "max_abs"));
  if (json_is_number(json_object_get(buffer, "rel_l2")))
    lab_text_printf(t, ", relative L2 %.3g", lab_json_real(buffer, "rel_l2"));
  lab_text_puts(t, "\n");
}

static void put_failures(lab_text *t, const json_t *stage) {
  size_t i, b;
  json_t *parity, *buffer;
  lab_text_puts(t, "\n");
  json_array_foreach(json_object_get(stage, "parity"), i, parity) {
    if (lab_report_case_passed(parity)) continue;
    lab_text_puts(t, "- ");
    lab_text_md(t, lab_json_text(parity, "size"));
    lab_text_puts(t, ": **");
    lab_text_md(t, lab_json_text(parity, "result"));
    lab_text_puts(t, "** ");
    lab_text_md(t, lab_json_text(parity, "detail"));
    lab_text_puts(t, "\n");
    json_array_foreach(json_object_get(parity, "buffers"), b, buffer)
      if (strcmp(lab_json_text(buffer, "result"), "FAIL") == 0)
        put_failed_buffer(t, parity, buffer);
  }
}

static void put_correctness(lab_text *t, const json_t *stages) {
  size_t i;
  json_t *stage;
  heading(t, "Correctness");
  json_array_foreach(stages, i, stage) {
    lab_text_puts(t, i ? "\n### " : "### ");
    lab_text_md(t, lab_json_text(stage, "op"));
    lab_text_puts(t, "\n\n");
    put_oracle(t, stage, "base");
    put_oracle(t, stage, "cand");
    put_matrix(t, stage);
    put_failures(t, stage);
  }
}

/* ---- timings -------------------------------------------------------------------- */

static void put_ratio(lab_text *t, const json_t *timing, const char *ratio, const char *interval) {
  lab_text_puts(t, " ");
  lab_text_real(t, lab_json_real(timing, ratio), 4);
  lab_text_puts(t, " [");
  lab_text_real(t, lab_json_end(timing, interval, 0), 4);
  lab_text_puts(t, ", ");
  lab_text_real(t, lab_json_end(timing, interval, 1), 4);
  lab_text_puts(t, "] |");
}

static void put_timing(lab_text *t, const json_t *timing, lab_unit unit, bool is_null_run) {
  lab_text_puts(t, "|");
  cell(t, lab_json_text(timing, "size"));
  cell_real(t, lab_json_real(timing, "base_seconds") * unit.per_second, 3);
  if (!is_null_run) cell_real(t, lab_json_real(timing, "cand_seconds") * unit.per_second, 3);
  cell_real(t, lab_json_real(timing, "null_seconds") * unit.per_second, 3);
  if (!is_null_run) put_ratio(t, timing, "ratio", "interval");
  put_ratio(t, timing, "null_ratio", "null_interval");
  lab_text_printf(t, " %lld | %lld of %zu |", (long long)lab_json_int(timing, "rounds"),
                  (long long)lab_json_int(timing, "disturbed"),
                  json_array_size(json_object_get(timing, "samples")));
  cell_real(t, lab_json_real(timing, "floor_seconds") * unit.per_second, 3);
  lab_text_printf(t, " %s | %lld, %.0f MiB |", lab_json_text(timing, "bound"),
                  (long long)lab_json_int(timing, "buffer_sets"),
                  (double)lab_json_int(timing, "buffer_bytes") / (1 << 20));
  cell(t, lab_json_text(timing, "verdict"));
  cell(t, lab_json_text(timing, "reason"));
  lab_text_puts(t, "\n");
}

static void put_timing_table(lab_text *t, const json_t *timings, const char *name,
                             bool is_null_run) {
  lab_unit unit = lab_report_unit(timings);
  size_t i;
  json_t *timing;
  lab_text_puts(t, "### ");
  lab_text_md(t, name);
  lab_text_printf(t, "\n\n| size | base %s |", unit.name);
  if (!is_null_run) lab_text_printf(t, " candidate %s |", unit.name);
  lab_text_printf(t,
                  " null %s |%s null/base [interval] | rounds | disturbed | floor %s | bound by "
                  "| buffer sets | verdict | |\n|---|",
                  unit.name, is_null_run ? "" : " candidate/base [interval] |", unit.name);
  for (int column = is_null_run ? 10 : 12; column > 0; --column) lab_text_puts(t, "---:|");
  lab_text_puts(t, "\n");
  json_array_foreach(timings, i, timing) put_timing(t, timing, unit, is_null_run);
  lab_text_puts(t, "\n");
}

static void put_timings(lab_text *t, const json_t *r) {
  const json_t *timings;
  const char *name;
  char note[400];
  bool is_null_run = strcmp(lab_json_text(r, "kind"), "aa") == 0;
  lab_report_batch_note(r, note, sizeof note);
  heading(t, "Paired timings");
  for (size_t i = 0; (timings = lab_report_timings(r, i, &name)); ++i)
    if (json_array_size(timings)) put_timing_table(t, timings, name, is_null_run);
  lab_text_puts(t, note[0] ? note : "Nothing was timed.");
  lab_text_puts(t, "\n");
}

/* ---- decision, limits, how to repeat ----------------------------------------------- */

static void put_decision(lab_text *t, const json_t *r) {
  const json_t *rule = json_object_get(r, "rule");
  heading(t, "Decision");
  lab_text_printf(
      t, "**%s.** The rule, read before anything was timed: ", lab_json_text(r, "verdict"));
  lab_text_md(t, lab_json_text(rule, "file"));
  lab_text_printf(t, " (SHA-256 `%s`).\n\n", lab_json_text(rule, "sha256"));
  lab_text_printf(
      t,
      "- A win takes at least %g %% less time, and its interval lies outside the null band; "
      "a loss is the same with the arms swapped.\n",
      100 * lab_json_real(rule, "min_gain"));
  lab_text_printf(
      t,
      "- Intervals hold %g %% of the resampled estimates. Measuring ends when they reach at "
      "most %g %% to either side, after %lld rounds at the earliest.\n",
      100 * lab_json_real(rule, "confidence"), 100 * lab_json_real(rule, "narrow"),
      (long long)lab_json_int(rule, "min_rounds"));
  lab_text_printf(
      t,
      "- A sample longer than %g medians of its arm is disturbed: kept, marked, left out. "
      "More than %.4g %% of them: no verdict.\n",
      lab_json_real(rule, "disturbed"), 100 * lab_json_real(rule, "max_disturbed"));
}

static void put_limits(lab_text *t, const json_t *limits) {
  size_t i;
  json_t *limit;
  heading(t, "Limits of the claim");
  json_array_foreach(limits, i, limit) {
    lab_text_puts(t, "- ");
    lab_text_md(t, json_string_value(limit));
    lab_text_puts(t, "\n");
  }
}

static void put_repeat(lab_text *t, const json_t *command) {
  size_t i;
  json_t *word;
  lab_text line = {.err = t->err};
  heading(t, "How to repeat it");
  json_array_foreach(command, i, word) {
    lab_text_puts(&line, i ? " " : "");
    lab_text_shell(&line, json_string_value(word));
  }
  lab_text_puts(&line, "\n");
  if (line.status != STRATA_OK) t->status = line.status;
  else lab_text_md_block(t, line.out.text);
  st_string_release(&line.out);
  lab_text_puts(t, "\nWhether this report is as it was written:\n\n    strata lab verify DIR\n");
}

strata_status lab_report_markdown(const json_t *report, char **text, size_t *n_bytes,
                                  strata_error *err) {
  lab_text t = {.err = err};
  *text = NULL;
  *n_bytes = 0;
  ST_TRY(lab_report_check(report, err));
  const json_t *stages = json_object_get(report, "stages");
  put_top(&t, report);
  put_contracts(&t, stages);
  put_machine(&t, report);
  put_sources(&t, stages);
  put_controls(&t, stages);
  put_correctness(&t, stages);
  put_timings(&t, report);
  put_decision(&t, report);
  put_limits(&t, json_object_get(report, "limits"));
  put_repeat(&t, json_object_get(report, "command"));
  return lab_text_finish(&t, text, n_bytes);
}
