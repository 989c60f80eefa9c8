/* The parts of report.html that go by stage: correctness, controls, sources with
 * their difference, contract. */
#include <string.h>

#include "lab/lab_report.h"
#include "lab/lab_report_html.h"

/* Longer ones are folded away. */
enum { DIFF_LINES_OPEN = 60, CONTRACT_LINES_OPEN = 40 };

static size_t count_lines(const char *text) {
  size_t n = 0;
  for (; *text; ++text) n += *text == '\n';
  return n;
}

/* ---- correctness ------------------------------------------------------------------- */

static void put_oracle(lab_text *t, const json_t *stage, const char *side, const char *name) {
  const json_t *arm = json_object_get(json_object_get(stage, "oracle"), side);
  bool passed = lab_report_oracle_passed(arm);
  lab_text_printf(
      t, "<li><b class=\"%s\">%s</b> %s: %lld of %lld of the op's test cases agree with its oracle",
      passed ? "good" : "bad", passed ? "✓" : "✕", name, (long long)lab_json_int(arm, "passed"),
      (long long)lab_json_int(arm, "n"));
  if (!passed) {
    lab_text_puts(t, ": <b>");
    lab_text_html_puts(t, lab_json_text(arm, "word"));
    lab_text_puts(t, "</b> ");
    lab_text_html_puts(t, lab_json_text(arm, "detail"));
  }
  lab_text_puts(t, "</li>\n");
}

static void put_matrix_cell(lab_text *t, const json_t *buffer) {
  const char *result = lab_json_text(buffer, "result");
  if (strcmp(result, "PASS") == 0) lab_text_puts(t, "<td class=\"c good\">✓ PASS</td>");
  else if (strcmp(result, "FAIL") == 0) lab_text_puts(t, "<td class=\"c bad\"><b>✕ FAIL</b></td>");
  else lab_text_printf(t, "<td class=\"c dim\">%s</td>", buffer ? "◦ POISON KEPT" : "-");
}

static void put_matrix(lab_text *t, const json_t *stage) {
  const char *names[LAB_REPORT_BUFFERS_MAX];
  size_t n = lab_report_buffer_names(stage, names), i, b;
  json_t *parity;
  if (json_array_size(json_object_get(stage, "parity")) == 0) return;
  lab_html_table_open(t, "");
  lab_text_puts(t, "<thead><tr><th>case</th>");
  for (b = 0; b < n; ++b) lab_html_element(t, "th", "c", names[b]);
  lab_text_puts(t, "<th>result</th><th class=\"n\">seed</th></tr></thead>\n<tbody>\n");
  json_array_foreach(json_object_get(stage, "parity"), i, parity) {
    lab_text_puts(t, "<tr>");
    lab_html_element(t, "th", "", lab_json_text(parity, "size"));
    for (b = 0; b < n; ++b) put_matrix_cell(t, lab_report_buffer(parity, names[b]));
    lab_html_element(t, "td", lab_report_case_passed(parity) ? "w" : "w bad",
                     lab_json_text(parity, "result"));
    lab_text_printf(t, "<td class=\"n\">%lld</td></tr>\n", (long long)lab_json_int(parity, "seed"));
  }
  lab_html_table_close(t);
}

static void put_failed_buffer(lab_text *t, const json_t *buffer) {
  lab_text_puts(t, "<br/>");
  lab_text_html_puts(t, lab_json_text(buffer, "name"));
  lab_text_puts(t, ": ");
  lab_text_html_puts(t, lab_json_text(buffer, "word"));
  lab_text_printf(t, ", first at %lld, %lld of %lld", (long long)lab_json_int(buffer, "first"),
                  (long long)lab_json_int(buffer, "count"), (long long)lab_json_int(buffer, "n"));
  if (json_is_number(json_object_get(buffer, "max_abs")))
    lab_text_printf(t, ", at most %.3g apart", lab_json_real(buffer, "max_abs"));
  if (json_is_number(json_object_get(buffer, "rel_l2")))
    lab_text_printf(t, ", relative L2 %.3g", lab_json_real(buffer, "rel_l2"));
}

static void put_failure(lab_text *t, const json_t *parity) {
  size_t b;
  json_t *buffer;
  lab_text_puts(t, "<li>");
  lab_text_html_puts(t, lab_json_text(parity, "size"));
  lab_text_puts(t, ": <b class=\"bad\">");
  lab_text_html_puts(t, lab_json_text(parity, "result"));
  lab_text_puts(t, "</b> ");
  lab_text_html_puts(t, lab_json_text(parity, "detail"));
  json_array_foreach(json_object_get(parity, "buffers"), b, buffer)
    if (strcmp(lab_json_text(buffer, "result"), "FAIL") == 0) put_failed_buffer(t, buffer);
  lab_text_puts(t, "</li>\n");
}

void lab_html_correctness(lab_text *t, const json_t *stages) {
  size_t i, c;
  json_t *stage, *parity;
  lab_html_section(t, "correctness", "Correctness");
  json_array_foreach(stages, i, stage) {
    lab_html_name(t, lab_json_text(stage, "op"));
    lab_text_puts(t, "<ul class=\"any\">\n");
    put_oracle(t, stage, "base", "base");
    put_oracle(t, stage, "cand", "candidate");
    json_array_foreach(json_object_get(stage, "parity"), c, parity)
      if (!lab_report_case_passed(parity)) put_failure(t, parity);
    lab_text_puts(t, "</ul>\n");
    put_matrix(t, stage);
  }
}

void lab_html_controls(lab_text *t, const json_t *stages) {
  size_t i, c;
  json_t *stage, *control;
  lab_html_section(t, "controls", "Controls");
  lab_text_puts(t, "<p class=\"dim\">Before anything is believed, the check itself is checked: it "
                   "must pass the base "
                   "against itself and find two planted faults.</p>\n");
  lab_html_table_open(t, "");
  lab_text_puts(t, "<thead><tr><th>op</th><th>control</th><th>expected</th><th>got</th><th>seen</"
                   "th><th></th></tr></thead>\n<tbody>\n");
  json_array_foreach(stages, i, stage)
    json_array_foreach(json_object_get(stage, "controls"), c, control) {
      lab_text_puts(t, "<tr>");
      lab_html_element(t, "td", "", lab_json_text(stage, "op"));
      lab_html_element(t, "td", "", lab_json_text(control, "name"));
      lab_html_element(t, "td", "", lab_json_text(control, "expected"));
      lab_html_element(t, "td", "", lab_json_text(control, "got"));
      lab_html_element(t, "td", "dim", lab_json_text(control, "detail"));
      lab_text_puts(t, lab_json_true(control, "ok")
                           ? "<td class=\"w good\">✓ ok</td></tr>\n"
                           : "<td class=\"w bad\"><b>✕ not ok</b></td></tr>\n");
    }
  lab_html_table_close(t);
}

/* ---- sources ------------------------------------------------------------------------- */

/* A setting in which the sides differ is marked: it may be all that was measured. */
static void source_row(lab_text *t, const json_t *stage, const char *name, const char *key,
                       bool is_setting) {
  const json_t *sides[] = {json_object_get(stage, "base"), json_object_get(stage, "cand")};
  bool differs = strcmp(lab_json_text(sides[0], key), lab_json_text(sides[1], key)) != 0;
  lab_text_printf(t, "<tr><th>%s%s</th>", name,
                  is_setting && differs ? " <b class=\"warn\">≠</b>" : "");
  for (int side = 0; side < 2; ++side) {
    lab_text_puts(t, "<td>");
    lab_html_element(t, "code", "", lab_json_text(sides[side], key));
    lab_text_puts(t, "</td>");
  }
  lab_text_puts(t, "</tr>\n");
}

static const char *line_style(const char *line, size_t n) {
  if (n >= 3 && (strncmp(line, "---", 3) == 0 || strncmp(line, "+++", 3) == 0)) return "file";
  if (n && line[0] == '+') return "add";
  if (n && line[0] == '-') return "del";
  return n >= 2 && strncmp(line, "@@", 2) == 0 ? "hunk" : "";
}

static void put_diff(lab_text *t, const char *diff) {
  size_t n_lines = count_lines(diff);
  lab_text_printf(
      t, "<details%s><summary>Difference of the sources, %zu lines</summary>\n<pre class=\"diff\">",
      n_lines <= DIFF_LINES_OPEN ? " open=\"open\"" : "", n_lines);
  while (*diff) {
    size_t n = strcspn(diff, "\n");
    lab_text_printf(t, "<span class=\"%s\">", line_style(diff, n));
    lab_text_html(t, diff, n);
    lab_text_puts(t, "\n</span>");
    diff += n + (diff[n] == '\n');
  }
  lab_text_puts(t, "</pre></details>\n");
}

void lab_html_sources(lab_text *t, const json_t *stages) {
  size_t i;
  json_t *stage;
  lab_html_section(t, "sources", "Sources");
  json_array_foreach(stages, i, stage) {
    lab_html_name(t, lab_json_text(stage, "op"));
    lab_html_table_open(t, "facts");
    lab_text_puts(t, "<thead><tr><th></th><th>base</th><th>candidate</th></tr></thead>\n<tbody>\n");
    source_row(t, stage, "given", "given", false);
    source_row(t, stage, "variant", "variant", false);
    source_row(t, stage, "frozen as", "file", false);
    source_row(t, stage, "SHA-256", "sha256", false);
    source_row(t, stage, "level", "level", true);
    source_row(t, stage, "class", "class", true);
    source_row(t, stage, "compiler", "compiler", true);
    source_row(t, stage, "flags", "flags", true);
    source_row(t, stage, "fp mode", "fp_mode", true);
    source_row(t, stage, "module", "module", false);
    lab_html_table_close(t);
    if (lab_json_text(stage, "diff")[0]) put_diff(t, lab_json_text(stage, "diff"));
  }
}

void lab_html_contracts(lab_text *t, const json_t *stages) {
  size_t i;
  json_t *stage;
  lab_html_section(t, "contract", "Contract");
  json_array_foreach(stages, i, stage) {
    const char *text = lab_json_text(stage, "contract_text");
    lab_text_printf(t, "<details%s><summary>",
                    count_lines(text) <= CONTRACT_LINES_OPEN ? " open=\"open\"" : "");
    lab_text_puts(t, "<b>");
    lab_text_html_puts(t, lab_json_text(stage, "op"));
    lab_text_printf(t, "</b>, contract %lld, class %s", (long long)lab_json_int(stage, "contract"),
                    lab_json_text(stage, "class"));
    if (json_is_number(json_object_get(stage, "bound")))
      lab_text_printf(t, ", bound %.3g", lab_json_real(stage, "bound"));
    lab_text_puts(t, "</summary>\n<pre>");
    lab_text_html_puts(t, text);
    lab_text_puts(t, "</pre></details>\n");
  }
}
