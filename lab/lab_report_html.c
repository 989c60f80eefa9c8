/* report.html: the page, its head, timings, machine, rule, limits. */
#include "lab/lab_report_html.h"

#include <string.h>

#include "lab/lab_report.h"
#include "lab/lab_report_plot.h"
#include "lab/lab_svg.h"

/* More plots of samples than this are folded away. */
enum { SAMPLE_PLOTS_OPEN = 9 };

/* ---- elements -------------------------------------------------------------------- */

void lab_html_section(lab_text *t, const char *id, const char *title) {
  lab_text_printf(t, "<h2 id=\"%s\">%s</h2>\n", id, title);
}

void lab_html_name(lab_text *t, const char *name) {
  lab_text_puts(t, "<h3>");
  lab_text_html_puts(t, name);
  lab_text_puts(t, "</h3>\n");
}

void lab_html_table_open(lab_text *t, const char *style) {
  lab_text_printf(t, "<div class=\"scroll\"><table class=\"%s\">\n", style);
}

void lab_html_table_close(lab_text *t) { lab_text_puts(t, "</tbody></table></div>\n"); }

void lab_html_element(lab_text *t, const char *tag, const char *style, const char *text) {
  if (style[0]) lab_text_printf(t, "<%s class=\"%s\">", tag, style);
  else lab_text_printf(t, "<%s>", tag);
  lab_text_html_puts(t, text);
  lab_text_printf(t, "</%s>\n", tag);
}

void lab_html_real(lab_text *t, double value, int digits) {
  lab_text_puts(t, "<td class=\"n\">");
  lab_text_real(t, value, digits);
  lab_text_puts(t, "</td>\n");
}

void lab_html_verdict(lab_text *t, const char *tag, const char *style, const char *verdict) {
  static const char *const signs[][3] = {{"faster", "▲", "good"},
                                         {"same", "=", "even"},
                                         {"slower", "▼", "bad"},
                                         {"wrong", "✕", "bad"},
                                         {"no verdict", "?", "warn"}};
  size_t i = 0;
  while (i < 4 && strcmp(verdict, signs[i][0]) != 0) ++i;
  lab_text_printf(t, "<%s class=\"%s %s\">%s ", tag, style, signs[i][2], signs[i][1]);
  lab_text_html_puts(t, verdict);
  lab_text_printf(t, "</%s>\n", tag);
}

/* ---- head ------------------------------------------------------------------------- */

static void put_head(lab_text *t, const json_t *r) {
  lab_text_puts(t, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                   "<meta name=\"color-scheme\" content=\"light dark\"/>\n");
  lab_html_element(t, "title", "", lab_json_text(r, "headline"));
  lab_text_puts(t, "<style>\n");
  lab_text_puts(t, lab_report_style);
  lab_text_puts(t, "</style>\n</head>\n<body>\n");
  lab_svg_shapes(t);
}

static void put_top(lab_text *t, const json_t *r) {
  const char *verdict = lab_json_text(r, "verdict"), *reason = lab_json_text(r, "reason");
  lab_text_puts(t, "<main>\n");
  lab_html_verdict(t, "div", "chip", verdict);
  lab_html_element(t, "h1", "", lab_json_text(r, "headline"));
  lab_html_element(t, "p", "", lab_report_verdict_meaning(r));
  if (reason[0]) {
    lab_text_puts(t, "<p><b>Reason:</b> ");
    lab_text_html_puts(t, reason);
    lab_text_puts(t, "</p>\n");
  }
  lab_text_puts(t, "<p class=\"dim\">");
  lab_text_html_puts(t, lab_json_text(json_object_get(r, "machine"), "cpu"));
  lab_text_printf(t, ", %lld threads · ",
                  (long long)lab_json_int(json_object_get(r, "machine"), "threads"));
  lab_text_html_puts(t, lab_json_text(r, "started"));
  lab_text_puts(t, " · took ");
  lab_text_real(t, lab_json_real(r, "seconds"), 1);
  lab_text_puts(t, " s</p>\n<nav>"
                   "<a href=\"#timings\">Timings</a><a href=\"#correctness\">Correctness</a>"
                   "<a href=\"#controls\">Controls</a><a href=\"#samples\">Samples</a>"
                   "<a href=\"#sources\">Sources</a><a href=\"#contract\">Contract</a>"
                   "<a href=\"#decision\">Decision</a><a href=\"#machine\">Machine</a>"
                   "<a href=\"#limits\">Limits</a><a href=\"#repeat\">Repeat</a></nav>\n");
}

/* ---- timings ----------------------------------------------------------------------- */

static bool is_null_run(const json_t *r) { return strcmp(lab_json_text(r, "kind"), "aa") == 0; }

static void put_ratio(lab_text *t, const json_t *timing, const char *ratio, const char *interval) {
  lab_text_puts(t, "<td class=\"n\">");
  if (lab_json_real(timing, ratio) > 0) {
    lab_text_puts(t, "<b>");
    lab_text_real(t, lab_json_real(timing, ratio), 4);
    lab_text_puts(t, "</b> <span class=\"dim\">[");
    lab_text_real(t, lab_json_end(timing, interval, 0), 4);
    lab_text_puts(t, ", ");
    lab_text_real(t, lab_json_end(timing, interval, 1), 4);
    lab_text_puts(t, "]</span>");
  } else {
    lab_text_puts(t, "-");
  }
  lab_text_puts(t, "</td>\n");
}

static void put_size_verdict(lab_text *t, const json_t *timing) {
  const char *reason = lab_json_text(timing, "reason");
  lab_text_puts(t, "<td class=\"w\">");
  lab_html_verdict(t, "b", "", lab_json_text(timing, "verdict"));
  if (reason[0]) lab_html_element(t, "span", "why", reason);
  lab_text_puts(t, "</td>\n");
}

static void put_timing(lab_text *t, const json_t *timing, lab_unit unit, bool null_run) {
  lab_text_puts(t, "<tr>");
  lab_html_element(t, "th", "", lab_json_text(timing, "size"));
  put_size_verdict(t, timing);
  if (!null_run) put_ratio(t, timing, "ratio", "interval");
  put_ratio(t, timing, "null_ratio", "null_interval");
  lab_html_real(t, lab_json_real(timing, "base_seconds") * unit.per_second, 3);
  if (!null_run) lab_html_real(t, lab_json_real(timing, "cand_seconds") * unit.per_second, 3);
  lab_html_real(t, lab_json_real(timing, "null_seconds") * unit.per_second, 3);
  lab_html_real(t, lab_json_real(timing, "floor_seconds") * unit.per_second, 3);
  lab_html_element(t, "td", "", lab_json_text(timing, "bound"));
  lab_text_printf(
      t,
      "<td class=\"n\">%lld</td><td class=\"n\">%lld/%zu</td><td class=\"n\">%lld, %.0f MiB</td>\n",
      (long long)lab_json_int(timing, "rounds"), (long long)lab_json_int(timing, "disturbed"),
      json_array_size(json_object_get(timing, "samples")),
      (long long)lab_json_int(timing, "buffer_sets"),
      (double)lab_json_int(timing, "buffer_bytes") / (1 << 20));
  lab_text_puts(t, "</tr>\n");
}

static void put_timing_table(lab_text *t, const json_t *timings, bool null_run) {
  lab_unit unit = lab_report_unit(timings);
  size_t i;
  json_t *timing;
  lab_html_table_open(t, "");
  lab_text_printf(t,
                  "<thead><tr><th>size</th><th>verdict</th>%s<th class=\"n\">null/base</th>"
                  "<th class=\"n\">base %s</th>",
                  null_run ? "" : "<th class=\"n\">candidate/base</th>", unit.name);
  if (!null_run) lab_text_printf(t, "<th class=\"n\">cand %s</th>", unit.name);
  lab_text_printf(t,
                  "<th class=\"n\">null %s</th><th class=\"n\">floor %s</th><th>bound by</th>"
                  "<th class=\"n\">rounds</th><th class=\"n\">disturbed</th><th class=\"n\">buffer "
                  "sets</th></tr></thead>\n<tbody>\n",
                  unit.name, unit.name);
  json_array_foreach(timings, i, timing) put_timing(t, timing, unit, null_run);
  lab_html_table_close(t);
}

static void put_timings(lab_text *t, const json_t *r) {
  const json_t *timings;
  const char *name;
  char note[400];
  lab_report_batch_note(r, note, sizeof note);
  lab_html_section(t, "timings", "Paired timings");
  for (size_t i = 0; (timings = lab_report_timings(r, i, &name)); ++i) {
    if (json_array_size(timings) == 0) continue;
    lab_html_name(t, name);
    put_timing_table(t, timings, is_null_run(r));
    lab_text_puts(t, "<div class=\"plots\">\n");
    lab_plot_ratios(t, r, timings, name);
    lab_plot_roofline(t, r, timings, name);
    lab_text_puts(t, "</div>\n");
  }
  lab_html_element(t, "p", "dim", note[0] ? note : "Nothing was timed.");
}

static size_t count_timings(const json_t *r) {
  const json_t *timings;
  const char *name;
  size_t n = 0;
  for (size_t i = 0; (timings = lab_report_timings(r, i, &name)); ++i)
    n += json_array_size(timings);
  return n;
}

static void put_sample_plots(lab_text *t, const json_t *timings, const char *name) {
  lab_unit unit = lab_report_unit(timings);
  size_t i;
  json_t *timing;
  lab_html_name(t, name);
  lab_text_puts(t, "<div class=\"plots\">\n");
  json_array_foreach(timings, i, timing) lab_plot_samples(t, timing, unit);
  lab_text_puts(t, "</div>\n");
}

static void put_samples(lab_text *t, const json_t *r) {
  const json_t *timings;
  const char *name;
  size_t n = count_timings(r);
  lab_html_section(t, "samples", "Samples in time order");
  if (n == 0) {
    lab_html_element(t, "p", "dim", "Nothing was timed.");
    return;
  }
  lab_text_puts(t, "<p class=\"legend\">");
  lab_svg_legend(t, "base", "base");
  if (!is_null_run(r)) lab_svg_legend(t, "cand", "candidate");
  lab_svg_legend(t, "null", "null: a second copy of the base");
  lab_svg_legend(t, "off", "disturbed, left out; drawn above the scale");
  lab_text_printf(t, "</p>\n<details%s><summary>%zu size%s</summary>\n",
                  n <= SAMPLE_PLOTS_OPEN ? " open=\"open\"" : "", n, n == 1 ? "" : "s");
  for (size_t i = 0; (timings = lab_report_timings(r, i, &name)); ++i)
    if (json_array_size(timings)) put_sample_plots(t, timings, name);
  lab_text_puts(t, "</details>\n");
}

/* ---- decision, machine, limits ------------------------------------------------------ */

static void put_decision(lab_text *t, const json_t *r) {
  const json_t *rule = json_object_get(r, "rule");
  lab_html_section(t, "decision", "Decision");
  lab_text_puts(t, "<p>");
  lab_html_verdict(t, "b", "", lab_json_text(r, "verdict"));
  lab_text_puts(t, "by the rule that was read before anything was timed: ");
  lab_text_html_puts(t, lab_json_text(rule, "file"));
  lab_text_puts(t, ", SHA-256 ");
  lab_html_element(t, "code", "", lab_json_text(rule, "sha256"));
  lab_text_printf(t,
                  "</p>\n<ul>\n<li>A win takes at least %g %% less time, and its interval lies "
                  "outside the null "
                  "band; a loss is the same with the arms swapped.</li>\n",
                  100 * lab_json_real(rule, "min_gain"));
  lab_text_printf(
      t,
      "<li>Intervals hold %g %% of the resampled estimates. Measuring ends when they reach at most "
      "%g %% to either side, after %lld rounds at the earliest.</li>\n",
      100 * lab_json_real(rule, "confidence"), 100 * lab_json_real(rule, "narrow"),
      (long long)lab_json_int(rule, "min_rounds"));
  lab_text_printf(t,
                  "<li>A sample longer than %g medians of its arm is disturbed: kept, marked, left "
                  "out. More than "
                  "%.4g %% of them: no verdict.</li>\n</ul>\n",
                  lab_json_real(rule, "disturbed"), 100 * lab_json_real(rule, "max_disturbed"));
}

static void fact(lab_text *t, const char *name, const char *value) {
  lab_text_printf(t, "<tr><th>%s</th>", name);
  lab_html_element(t, "td", "any", value);
  lab_text_puts(t, "</tr>\n");
}

static void fact_bytes(lab_text *t, const char *name, int64_t n_bytes) {
  lab_text_printf(t, "<tr><th>%s</th><td>%lld KiB</td></tr>\n", name, (long long)n_bytes / 1024);
}

static void fact_rate(lab_text *t, const char *name, double per_second, const char *unit) {
  if (per_second > 0)
    lab_text_printf(t, "<tr><th>%s, measured</th><td>%.4g %s</td></tr>\n", name, per_second / 1e9,
                    unit);
}

static void put_machine(lab_text *t, const json_t *r) {
  const json_t *m = json_object_get(r, "machine"), *c = json_object_get(r, "ceilings");
  const json_t *levels = json_object_get(c, "bytes_per_s");
  lab_html_section(t, "machine", "Machine");
  lab_html_table_open(t, "facts");
  lab_text_puts(t, "<tbody>\n");
  fact(t, "CPU", lab_json_text(m, "cpu"));
  lab_text_printf(t, "<tr><th>CPUs, threads</th><td>%lld, %lld</td></tr>\n",
                  (long long)lab_json_int(m, "cpus"), (long long)lab_json_int(m, "threads"));
  fact(t, "level", lab_json_text(m, "level"));
  fact_bytes(t, "L1", lab_json_int(m, "l1_bytes"));
  fact_bytes(t, "L2", lab_json_int(m, "l2_bytes"));
  fact_bytes(t, "L3", lab_json_int(m, "l3_bytes"));
  fact_rate(t, "arithmetic", lab_json_real(c, "flops_per_s"), "GFLOP/s");
  fact_rate(t, "L1", lab_json_real(levels, "l1"), "GB/s");
  fact_rate(t, "L2", lab_json_real(levels, "l2"), "GB/s");
  fact_rate(t, "L3", lab_json_real(levels, "l3"), "GB/s");
  fact_rate(t, "memory", lab_json_real(levels, "dram"), "GB/s");
  fact(t, "system", lab_json_text(m, "system"));
  fact(t, "id", lab_json_text(m, "id"));
  fact(t, "strata", lab_json_text(m, "strata"));
  fact(t, "its sources", lab_json_text(m, "sources_sha256"));
  lab_html_table_close(t);
}

static void put_limits(lab_text *t, const json_t *limits) {
  size_t i;
  json_t *limit;
  lab_html_section(t, "limits", "Limits of the claim");
  lab_text_puts(t, "<ul>\n");
  json_array_foreach(limits, i, limit) lab_html_element(t, "li", "any", json_string_value(limit));
  lab_text_puts(t, "</ul>\n");
}

static void put_repeat(lab_text *t, const json_t *command) {
  size_t i;
  json_t *word;
  lab_text line = {.err = t->err};
  lab_html_section(t, "repeat", "How to repeat it");
  lab_text_puts(t, "<pre class=\"wrap\">");
  json_array_foreach(command, i, word) {
    lab_text_puts(&line, i ? " " : "");
    lab_text_shell(&line, json_string_value(word));
  }
  if (line.status != STRATA_OK) t->status = line.status;
  else if (line.out.text) lab_text_html(t, line.out.text, line.out.n_bytes);
  st_string_release(&line.out);
  lab_text_puts(t, "</pre>\n<p>Whether this report is as it was written:</p>\n"
                   "<pre>strata lab verify DIR</pre>\n</main>\n</body>\n</html>\n");
}

strata_status lab_report_html(const json_t *report, char **text, size_t *n_bytes,
                              strata_error *err) {
  lab_text t = {.err = err};
  *text = NULL;
  *n_bytes = 0;
  ST_TRY(lab_report_check(report, err));
  const json_t *stages = json_object_get(report, "stages");
  put_head(&t, report);
  put_top(&t, report);
  put_timings(&t, report);
  lab_html_correctness(&t, stages);
  lab_html_controls(&t, stages);
  put_samples(&t, report);
  lab_html_sources(&t, stages);
  lab_html_contracts(&t, stages);
  put_decision(&t, report);
  put_machine(&t, report);
  put_limits(&t, json_object_get(report, "limits"));
  put_repeat(&t, json_object_get(report, "command"));
  return lab_text_finish(&t, text, n_bytes);
}
