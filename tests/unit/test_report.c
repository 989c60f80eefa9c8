/* Reports of made-up comparisons: what is checked, how they render, and that
 * verifying names every edit by its place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/st_mem.h"
#include "lab/lab_case.h"
#include "lab/lab_report.h"
#include "lab/lab_seal.h"
#include "lab/lab_verify.h"
#include "os/st_file.h"
#include "st_test_model.h"

/* ---- a made-up comparison --------------------------------------------------------- */

enum { SAMPLES_MAX = 2400 };

typedef struct fixture {
  const char *kind;
  int32_t n_stages, n_sizes, n_rounds;
  double cand, noise, hit_chance; /* time over base; relative noise; of a disturbed batch */
  bool wrong, nasty, no_ceilings;
} fixture;

static const fixture good = {.kind = "ab",
                             .n_stages = 1,
                             .n_sizes = 3,
                             .n_rounds = 8,
                             .cand = 0.95,
                             .noise = 0.004,
                             .hit_chance = 0.04};
static const fixture same = {
    .kind = "ab", .n_stages = 1, .n_sizes = 1, .n_rounds = 8, .cand = 0.99, .noise = 0.004};
static const fixture slower = {
    .kind = "ab", .n_stages = 1, .n_sizes = 2, .n_rounds = 8, .cand = 1.08, .noise = 0.004};
static const fixture unclear = {.kind = "ab",
                                .n_stages = 1,
                                .n_sizes = 2,
                                .n_rounds = 3,
                                .cand = 0.9,
                                .noise = 0.2,
                                .no_ceilings = true};
static const fixture wrong = {.kind = "ab", .n_stages = 1, .wrong = true};
static const fixture null_run = {
    .kind = "aa", .n_stages = 1, .n_sizes = 2, .n_rounds = 8, .cand = 1, .noise = 0.004};
static const fixture pipeline = {
    .kind = "pipeline", .n_stages = 3, .n_sizes = 9, .n_rounds = 8, .cand = 0.9, .noise = 0.004};
static const fixture many = {.kind = "ab",
                             .n_stages = 1,
                             .n_sizes = 1,
                             .n_rounds = 125,
                             .cand = 0.97,
                             .noise = 0.03,
                             .hit_chance = 0.02};
static const fixture nasty = {.kind = "ab",
                              .n_stages = 1,
                              .n_sizes = 2,
                              .n_rounds = 8,
                              .cand = 0.95,
                              .noise = 0.004,
                              .nasty = true};

static const char *const op_names[] = {"gdn_pre", "gdn_scan", "gdn_post"};
static const char *const buffer_names[] = {"o", "state", "y"};
#define NASTY \
  "<script>alert(\"1&2\")</script> | `x` *\xc3\xa9\xe4\xb8\x96* \x1b[31m \xe2\x80\xae\xef\xbb\xbf]]> --> '"

static json_t *must(json_t *value) {
  assert_non_null(value);
  return value;
}

static double unit(uint64_t *random) {
  return (double)(lab_random(random) >> 11) / 9007199254740992.0;
}

static int32_t measure(const fixture *f, uint64_t *random, double base, lab_sample *samples) {
  int32_t n = 0;
  double clock = 0;
  bool null_only = strcmp(f->kind, "aa") == 0;
  for (int32_t round = 0; round < f->n_rounds; ++round)
    for (lab_arm pair = null_only ? LAB_NULL : LAB_CAND; pair <= LAB_NULL; ++pair)
      for (int32_t order = 0; order < 2; ++order, ++n) {
        lab_arm arm = (order == 0) == (round % 2 == 0) ? LAB_BASE : pair;
        double seconds = base * (arm == LAB_CAND ? f->cand : 1) *
                         (1 + f->noise * (2 * unit(random) - 1));
        if (unit(random) < f->hit_chance) seconds *= 8;
        samples[n] = (lab_sample){.round = round,
                                  .pair = pair,
                                  .arm = arm,
                                  .order = order,
                                  .at = clock,
                                  .seconds = seconds};
        clock += seconds;
      }
  return n;
}

static json_t *samples_json(const lab_sample *samples, int32_t n) {
  static const char *const arms[LAB_ARMS] = {"base", "cand", "null"};
  json_t *list = must(json_array());
  for (int32_t i = 0; i < n; ++i)
    json_array_append_new(
        list, must(json_pack("{s:i,s:s,s:i,s:s,s:f,s:f,s:b}", "round", samples[i].round, "pair",
                             arms[samples[i].pair], "order", samples[i].order, "arm",
                             arms[samples[i].arm], "at", samples[i].at, "seconds",
                             samples[i].seconds, "disturbed", (int)samples[i].disturbed)));
  return list;
}

static void add_outcome(json_t *timing, const lab_outcome *o) {
  json_t *found = must(json_pack(
      "{s:i,s:s,s:s,s:f,s:f,s:f,s:f,s:[ff],s:f,s:[ff],s:i}", "rounds", o->n_rounds, "verdict",
      lab_verdict_name(o->verdict), "reason", o->reason, "base_seconds", o->seconds[LAB_BASE],
      "cand_seconds", o->seconds[LAB_CAND], "null_seconds", o->seconds[LAB_NULL], "ratio",
      o->cand.ratio, "interval", o->cand.low, o->cand.high, "null_ratio", o->null.ratio,
      "null_interval", o->null.low, o->null.high, "disturbed", o->n_disturbed));
  json_object_update(timing, found);
  json_decref(found);
}

static void size_name(const fixture *f, int32_t index, char *name, size_t n_bytes) {
  snprintf(name, n_bytes, "T=%d f32=%d%s", 512 << index / 2, index % 2,
           f->nasty ? " a_very_long_parameter_name=12345 <&>" : "");
}

static json_t *timing_json(const fixture *f, const lab_rule *rule, int32_t index,
                           uint64_t *random) {
  static lab_sample samples[SAMPLES_MAX];
  char name[200];
  lab_outcome outcome;
  double base = 0.05 * (1 << index / 2), flops = base * 30e9;
  int32_t n = measure(f, random, base, samples);
  assert_int_equal(lab_stats_judge(samples, n, rule, &outcome, NULL), STRATA_OK);
  size_name(f, index, name, sizeof name);
  json_t *timing = must(json_pack(
      "{s:s,s:{s:i},s:i,s:i,s:i,s:f,s:f,s:f,s:s}", "size", name, "params", "T", 512 << index / 2,
      "calls", 36, "buffer_sets", 4, "buffer_bytes", 123456789, "flops", flops, "bytes",
      flops / (4 + index), "floor_seconds", base * 0.6, "bound", "operations"));
  add_outcome(timing, &outcome);
  json_object_set_new(timing, "samples", samples_json(samples, n));
  return timing;
}

static json_t *timings_json(const fixture *f, const lab_rule *rule, uint64_t *random) {
  json_t *list = must(json_array());
  for (int32_t i = 0; i < f->n_sizes; ++i)
    json_array_append_new(list, timing_json(f, rule, i, random));
  return list;
}

static json_t *parity_json(const fixture *f) {
  json_t *list = must(json_array());
  for (int32_t i = 0; i < 6; ++i) {
    char name[200];
    bool fails = f->wrong && i == 3;
    json_t *buffers = must(json_array());
    size_name(f, i, name, sizeof name);
    for (int32_t b = 0; b < 3; ++b) {
      const char *result = fails && b == 0 ? "FAIL" : b == 2 && i % 2 == 0 ? "POISON KEPT" : "PASS";
      json_array_append_new(
          buffers,
          must(json_pack("{s:s,s:s,s:s,s:i,s:i,s:i,s:f,s:f}", "name", buffer_names[b], "result",
                         result, "word", fails && b == 0 ? "wrong" : "", "n", 3145728, "first",
                         fails && b == 0 ? 17 : 0, "count", fails && b == 0 ? 3 : 0, "max_abs",
                         fails ? 0.25 : 0.0, "rel_l2", fails ? 1e-6 : 0.0)));
    }
    json_array_append_new(list, must(json_pack("{s:s,s:i,s:s,s:s,s:o}", "size", name, "seed", 21,
                                               "result", fails ? "wrong" : "pass", "detail",
                                               fails ? "o differs, first at 17, 3 of 3145728" : "",
                                               "buffers", buffers)));
  }
  return list;
}

static const char *source_text(const char *side, int32_t stage) {
  static char text[200];
  snprintf(text, sizeof text, "/* isa: avx2\n * %s of stage %d */\nint x;\n", side, stage);
  return text;
}

static json_t *source_json(const fixture *f, const char *side, int32_t stage) {
  char file[100], hex[65];
  const char *text = source_text(side, stage);
  bool cand = strcmp(side, "cand") == 0;
  snprintf(file, sizeof file, "%s/%s.c", side, op_names[stage]);
  assert_int_equal(lab_seal_hash(text, strlen(text), hex, NULL), STRATA_OK);
  return must(json_pack(
      "{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "given",
      !cand      ? "avx512"
      : f->nasty ? "/tmp/" NASTY ".c"
                 : "/home/me/ideas/scan_two_tokens.c",
      "variant", cand ? "" : "avx512", "file", file, "sha256", hex, "module", "9f86d081884c7d65",
      "level", "avx512", "class", "exact", "compiler", "gcc 12.2.0 (Debian 12.2.0-14)", "flags",
      "-std=c17 -O2 -ffp-contract=off -fPIC -shared -mavx512f -mavx512bw -mavx512dq -mavx512vl",
      "fp_mode", "unchanged"));
}

static json_t *diff_json(const fixture *f) {
  st_string diff = {0};
  assert_int_equal(
      st_string_puts(
          &diff, "--- base/gdn_scan.c\n+++ cand/gdn_scan.c\n@@ -1,3 +1,3 @@\n int a;\n-  old();\n",
          NULL),
      0);
  assert_int_equal(st_string_puts(&diff, f->nasty ? "+  " NASTY "\n" : "+  new_one(a, b);\n", NULL),
                   0);
  for (int i = 0; f->nasty && i < 400; ++i)
    assert_int_equal(st_string_printf(&diff, NULL, "+\tline %d, %0200d\n", i, i), 0);
  json_t *text = must(json_string(diff.text));
  st_string_release(&diff);
  return text;
}

static json_t *stage_json(const fixture *f, const lab_rule *rule, int32_t index, uint64_t *random) {
  return must(json_pack(
      "{s:s,s:i,s:s,s:n,s:s,s:o,s:o,s:[{s:s,s:s,s:s,s:s,s:b},{s:s,s:s,s:s,s:s,s:b},{s:s,s:s,s:s,s:"
      "s,s:b}],"
      "s:{s:{s:i,s:i,s:s,s:s},s:{s:i,s:i,s:s,s:s}},s:o,s:o,s:o}",
      "op", op_names[index], "contract", 2, "class", "exact", "bound", "contract_text",
      "gdn_scan: the recurrence of a gated delta net.\n\n  S_t = g_t S_{t-1} (I - b_t k_t k_t^T) + "
      "b_t v_t k_t^T\n\n"
      "Shapes   o  out  f32 [T, Hv, Dv]\n",
      "base", source_json(f, "base", index), "cand", source_json(f, "cand", index), "controls",
      "name", "base against base", "expected", "pass", "got", "pass", "detail", "", "ok", 1, "name",
      "one bit of base's output flipped", "expected", "wrong", "got", "wrong", "detail",
      "o differs, first at 5, 1 of 3145728", "ok", 1, "name",
      "last head of base's output left unwritten", "expected", "unwritten", "got", "unwritten",
      "detail", "o is unwritten from 3145600 on", "ok", 1, "oracle", "base", "passed", 9, "n", 9,
      "word", "pass", "detail", "", "cand", "passed", 9, "n", 9, "word", "pass", "detail", "",
      "parity", parity_json(f), "diff", diff_json(f), "timings", timings_json(f, rule, random)));
}

static json_t *machine_json(void) {
  return must(json_pack(
      "{s:s,s:s,s:i,s:i,s:s,s:i,s:i,s:i,s:s,s:s,s:s}", "cpu", "Example Processor 9 (16 cores)",
      "id", "3a7bd3e2360a3d29eea436fcfb7e44c735d117c42d1c1835420b6b9942dd4f1b", "cpus", 2,
      "threads", 2, "level", "avx512", "l1_bytes", 32768, "l2_bytes", 1048576, "l3_bytes", 33554432,
      "system", "Linux 6.1.0 x86_64", "strata", STRATA_VERSION, "sources_sha256",
      "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"));
}

static json_t *rule_json(const lab_rule *rule) {
  return must(json_pack("{s:s,s:s,s:s,s:f,s:f,s:i,s:i,s:f,s:f,s:f}", "file", "built in", "sha256",
                        rule->sha256, "text", rule->text, "min_gain", rule->min_gain, "confidence", rule->confidence,
                        "min_rounds", rule->min_rounds, "max_rounds", rule->max_rounds, "narrow",
                        rule->narrow, "disturbed", rule->disturbed, "max_disturbed",
                        rule->max_disturbed));
}

static json_t *ceilings_json(void) {
  return must(json_pack("{s:f,s:{s:f,s:f,s:f,s:f}}", "flops_per_s", 55e9, "bytes_per_s", "l1",
                        200e9, "l2", 90e9, "l3", 40e9, "dram", 11e9));
}

/* gives a report without seals (json_decref). */
static json_t *make_report(const fixture *f) {
  uint64_t random = 7;
  lab_rule rule;
  assert_int_equal(lab_rule_read(NULL, &rule, NULL), STRATA_OK);
  json_t *stages = must(json_array());
  for (int32_t i = 0; i < f->n_stages; ++i)
    json_array_append_new(stages, stage_json(f, &rule, i, &random));
  bool is_chain = strcmp(f->kind, "pipeline") == 0;
  json_t *report = must(json_pack(
      "{s:s,s:i,s:s,s:s,s:s,s:s,s:[sss],s:s,s:f,s:o,s:o,s:o,s:o,s:o,s:[ss]}", "format",
      "strata lab report", "version", 1, "kind", f->kind, "verdict", "", "headline", "", "reason",
      "", "command", "strata", "lab", f->nasty ? NASTY : f->kind, "started", "2026-11-29T23:59:00Z",
      "seconds", 41.25, "machine", machine_json(), "rule", rule_json(&rule), "ceilings",
      f->no_ceilings ? json_null() : ceilings_json(), "stages", stages, "total",
      is_chain ? timings_json(f, &rule, &random) : json_array(), "limits",
      "Standalone kernels on rotating buffers; nothing is claimed for a whole model.",
      "This machine, these sizes, this compiler."));
  char *headline;
  size_t n_bytes;
  assert_int_equal(lab_report_headline(report, &headline, &n_bytes, NULL), STRATA_OK);
  json_object_set_new(report, "headline", json_string(headline));
  json_object_set_new(report, "verdict", json_string(lab_verdict_name(lab_report_overall(report))));
  st_free(headline);
  return report;
}

/* ---- a report directory ------------------------------------------------------------ */

typedef struct folder {
  char dir[ST_TEST_DIR_BYTES], base[ST_TEST_DIR_BYTES + 8], cand[ST_TEST_DIR_BYTES + 8];
} folder;

static void folder_make(folder *d, const fixture *f) {
  st_test_dir_new(d->dir);
  snprintf(d->base, sizeof d->base, "%s/base", d->dir);
  snprintf(d->cand, sizeof d->cand, "%s/cand", d->dir);
  assert_int_equal(mkdir(d->base, 0777), 0);
  assert_int_equal(mkdir(d->cand, 0777), 0);
  for (int32_t i = 0; i < f->n_stages; ++i)
    for (int side = 0; side < 2; ++side) {
      const char *text = source_text(side ? "cand" : "base", i);
      char file[100];
      snprintf(file, sizeof file, "%s.c", op_names[i]);
      st_test_file_write(side ? d->cand : d->base, file, text, strlen(text));
    }
}

static void folder_remove(const folder *d) {
  st_test_dir_remove(d->base);
  st_test_dir_remove(d->cand);
  st_test_dir_remove(d->dir);
}

static void write_report(const folder *d, const json_t *report) {
  strata_error err;
  if (lab_report_write(report, d->dir, &err) != STRATA_OK) fail_msg("%s", err.message);
}

static void keep_edits(void *user, bool edited, const char *text) {
  if (!edited) return;
  assert_int_equal(st_string_puts(user, text, NULL), STRATA_OK);
  assert_int_equal(st_string_puts(user, "\n", NULL), STRATA_OK);
}

/* Verifies; gives the lines of what was edited (st_free), "" for none. */
static char *edits_of(const folder *d) {
  st_string lines = {0};
  lab_verify_sink sink = {.line = keep_edits, .user = &lines};
  strata_error err;
  char *headline;
  assert_int_equal(st_string_puts(&lines, "", NULL), STRATA_OK);
  if (lab_verify(d->dir, &sink, &headline, &err) != STRATA_OK) fail_msg("%s", err.message);
  assert_int_equal(sink.n_edited > 0, lines.n_bytes > 0);
  st_free(headline);
  return lines.text;
}

static void expect_edit(const folder *d, const char *what) {
  char *lines = edits_of(d);
  if (!strstr(lines, what)) fail_msg("\"%s\" expected in:\n%s", what, lines);
  st_free(lines);
}

static json_t *load(const folder *d, const char *name) {
  char path[ST_TEST_DIR_BYTES + 120];
  snprintf(path, sizeof path, "%s/%s", d->dir, name);
  return must(json_load_file(path, 0, NULL));
}

static char *read_text(const folder *d, const char *name) {
  char path[ST_TEST_DIR_BYTES + 120], *text;
  size_t n_bytes;
  snprintf(path, sizeof path, "%s/%s", d->dir, name);
  assert_int_equal(st_file_read(path, 100 << 20, &text, &n_bytes, NULL), STRATA_OK);
  return text;
}

/* ---- rendering --------------------------------------------------------------------- */

/* Every element of a document is closed, in order; attributes are quoted. */
static void expect_well_formed(const char *html) {
  enum { DEPTH = 64 };
  const char *open[DEPTH];
  size_t n_open[DEPTH];
  int depth = 0;
  assert_memory_equal(html, "<!DOCTYPE html>\n", 16);
  for (const char *p = strchr(html + 16, '<'); p; p = strchr(p, '<')) {
    bool closes = p[1] == '/';
    const char *name = p + 1 + closes, *end = name;
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
    assert_true(n > 0);
    for (bool quoted = false; *end && (quoted || *end != '>'); ++end) {
      quoted ^= *end == '"';
      if (*end == '<') fail_msg("< inside a tag: %.60s", p);
    }
    assert_true(*end == '>');
    if (closes) {
      assert_true(depth > 0);
      --depth;
      if (n_open[depth] != n || strncmp(open[depth], name, n) != 0)
        fail_msg("%.*s closed by %.*s: %.80s", (int)n_open[depth], open[depth], (int)n, name, p);
    } else if (end[-1] != '/') {
      assert_true(depth < DEPTH);
      open[depth] = name;
      n_open[depth++] = n;
    }
    p = end;
  }
  assert_int_equal(depth, 0);
}

static void expect_rendering(const fixture *f, const char *verdict) {
  json_t *report = make_report(f);
  strata_error err;
  char *html, *again, *md;
  size_t n_html, n_again, n_md;
  if (lab_report_check(report, &err) != STRATA_OK) fail_msg("%s", err.message);
  assert_string_equal(json_string_value(json_object_get(report, "verdict")), verdict);
  assert_int_equal(lab_report_html(report, &html, &n_html, &err), STRATA_OK);
  assert_int_equal(lab_report_html(report, &again, &n_again, &err), STRATA_OK);
  assert_int_equal(lab_report_markdown(report, &md, &n_md, &err), STRATA_OK);
  assert_int_equal(n_html, n_again);
  assert_memory_equal(html, again, n_html);
  expect_well_formed(html);
  assert_null(strstr(html, "<script"));
  assert_null(strstr(html, "http"));
  assert_null(strpbrk(html, "\033\r"));
  assert_null(strpbrk(md, "\033\r"));
  assert_null(strstr(html, "\xe2\x80\xae"));
  assert_null(strstr(html, "nan"));
  assert_non_null(strstr(md, verdict));
  st_free(html);
  st_free(again);
  st_free(md);
  json_decref(report);
}

static void test_rendering(void **state) {
  (void)state;
  expect_rendering(&good, "faster");
  expect_rendering(&same, "same");
  expect_rendering(&slower, "slower");
  expect_rendering(&unclear, "no verdict");
  expect_rendering(&wrong, "wrong");
  expect_rendering(&null_run, "same");
  expect_rendering(&pipeline, "faster");
  expect_rendering(&many, "faster");
  expect_rendering(&nasty, "faster");
}

static void expect_headline(const fixture *f, const char *headline) {
  json_t *report = make_report(f);
  const char *found = json_string_value(json_object_get(report, "headline"));
  if (!strstr(found, headline)) fail_msg("\"%s\" expected: %s", headline, found);
  json_decref(report);
}

static void test_headlines(void **state) {
  (void)state;
  expect_headline(&good, "gdn_pre: scan_two_tokens.c is 1.05");
  expect_headline(&good, " times as fast as avx512 (T=512 f32=0, T=512 f32=1, T=1024 f32=0)");
  expect_headline(&same, "gdn_pre: scan_two_tokens.c is as fast as avx512 (T=512 f32=0)");
  expect_headline(&slower, "gdn_pre: scan_two_tokens.c is slower, taking 1.0");
  expect_headline(&unclear, "gdn_pre: no verdict on scan_two_tokens.c");
  expect_headline(&wrong, "gdn_pre: scan_two_tokens.c is wrong at T=1024 f32=1: o differs");
  expect_headline(&null_run, "gdn_pre: avx512 against itself varies by up to 0.");
  expect_headline(&pipeline, "gdn_pre, gdn_scan and gdn_post: the candidate is 1.1");
  expect_headline(&pipeline, "(9 sizes, T=512 f32=0 to T=8192 f32=0)");
}

/* What stands in a report as text stands in it as text. */
static void test_escapes(void **state) {
  (void)state;
  json_t *report = make_report(&nasty);
  char *html, *md;
  size_t n;
  assert_int_equal(lab_report_html(report, &html, &n, NULL), STRATA_OK);
  assert_int_equal(lab_report_markdown(report, &md, &n, NULL), STRATA_OK);
  assert_non_null(strstr(
      html, "&lt;script&gt;alert(&quot;1&amp;2&quot;)&lt;/script&gt; | `x` *\xc3\xa9\xe4\xb8\x96* "
            "\\u{1b}[31m \\u{202e}\\u{feff}]]&gt; --&gt; &#39;"));
  assert_non_null(strstr(md, "\\<script\\>alert("));
  st_free(html);
  st_free(md);
  json_decref(report);
}

/* Two sides that were not compiled alike are marked. */
static void test_settings(void **state) {
  (void)state;
  json_t *report = make_report(&good), *cand = json_array_get(json_object_get(report, "stages"), 0);
  char *html;
  size_t n;
  cand = must(json_object_get(cand, "cand"));
  assert_int_equal(lab_report_html(report, &html, &n, NULL), STRATA_OK);
  assert_null(strstr(html, "≠"));
  st_free(html);
  json_object_set_new(cand, "flags", json_string("-O3"));
  assert_int_equal(lab_report_html(report, &html, &n, NULL), STRATA_OK);
  assert_non_null(strstr(html, "<th>flags <b class=\"warn\">≠</b></th>"));
  st_free(html);
  json_decref(report);
}

/* ---- checking ---------------------------------------------------------------------- */

static json_t *at(json_t *value, const char *path) {
  while (*path && value) {
    size_t n = strcspn(path, ".");
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    value = json_is_array(value) ? json_array_get(value, (size_t)strtoul(key, NULL, 10))
                                 : json_object_get(value, key);
    path += n + (path[n] == '.');
  }
  return must(value);
}

static void expect_refused(const char *place, const char *key, json_t *value, const char *message) {
  json_t *report = make_report(&good);
  strata_error err;
  char *text;
  size_t n;
  if (value) json_object_set_new(at(report, place), key, value);
  else json_object_del(at(report, place), key);
  st_test_expect_error(lab_report_check(report, &err), &err, STRATA_FORMAT, message, "expected");
  assert_int_equal(lab_report_html(report, &text, &n, NULL), STRATA_FORMAT);
  assert_null(text);
  json_decref(report);
}

static void test_check(void **state) {
  (void)state;
  json_t *list = json_array();
  strata_error err;
  st_test_expect_error(lab_report_check(list, &err), &err, STRATA_FORMAT, "the document: an object",
                       NULL);
  json_decref(list);
  expect_refused("", "headline", NULL, "report: headline: ");
  expect_refused("", "version", json_integer(2), "report: version: ");
  expect_refused("", "verdict", json_string("fast"),
                 "report: verdict: faster|same|slower|wrong|no verdict");
  expect_refused("", "stages", json_array(), "report: stages: a list of 1 to 16");
  expect_refused("", "limits", json_pack("[i]", 1), "report: limits[0]: a text");
  expect_refused("machine", "threads", json_real(1.5), "report: machine.threads: a whole number");
  expect_refused("rule", "min_gain", json_real(0),
                 "report: rule.min_gain: a number from 0.001 to 0.5");
  expect_refused("stages.0.cand", "sha256", json_string("ABC"),
                 "report: stages[0].cand.sha256: 64 hexadecimal");
  expect_refused("stages.0.cand", "file", json_string("cand/a/x.c"),
                 "report: stages[0].cand.file: base/NAME");
  expect_refused("stages.0.cand", "file", json_string("cand/../../x"),
                 "report: stages[0].cand.file: base/NAME");
  expect_refused("stages.0.controls.1", "ok", json_integer(1),
                 "report: stages[0].controls[1].ok: true or false");
  expect_refused("stages.0.timings.2", "interval", json_pack("[ff]", 2.0, 1.0),
                 "report: stages[0].timings[2].interval: ");
  expect_refused("stages.0.timings.2.samples.5", "seconds", json_real(0),
                 "report: stages[0].timings[2].samples[5].seconds: ");
  expect_refused("stages.0.timings.0.samples.0", "arm", json_string("null"),
                 "samples[0].arm: null in a pair of cand");
}

/* ---- verifying --------------------------------------------------------------------- */

static void test_untouched(void **state) {
  (void)state;
  const fixture *all[] = {&good,     &same,     &slower, &unclear, &wrong,
                          &null_run, &pipeline, &many,   &nasty};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    folder d;
    json_t *report = make_report(all[i]);
    folder_make(&d, all[i]);
    write_report(&d, report);
    char *lines = edits_of(&d);
    assert_string_equal(lines, "");
    st_free(lines);
    folder_remove(&d);
    json_decref(report);
  }
}

typedef void edit(json_t *report);

static void write_json(const folder *d, const json_t *report) {
  char *text = json_dumps(report, JSON_INDENT(1));
  st_test_file_write(d->dir, "report.json", text, strlen(text));
  free(text);
}

/* After an edit of report.json alone the seal names its place. After an edit that
 * was sealed and rendered anew the numbers name it: derived, if it is not NULL. */
static void expect_found(edit *change, const char *sealed, const char *derived) {
  folder d;
  json_t *report = make_report(&good);
  folder_make(&d, &good);
  write_report(&d, report);
  json_t *stored = load(&d, "report.json");
  change(stored);
  write_json(&d, stored);
  expect_edit(&d, sealed);
  if (derived) {
    change(report);
    write_report(&d, report);
    expect_edit(&d, derived);
  }
  json_decref(stored);
  json_decref(report);
  folder_remove(&d);
}

static void edit_sample(json_t *r) {
  json_object_set_new(at(r, "stages.0.timings.2.samples.4"), "seconds", json_real(0.11));
}
static void edit_mark(json_t *r) {
  json_object_set_new(at(r, "stages.0.timings.0.samples.1"), "disturbed", json_true());
}
static void edit_ratio(json_t *r) {
  json_object_set_new(at(r, "stages.0.timings.1"), "ratio", json_real(0.9));
}
static void edit_median(json_t *r) {
  json_object_set_new(at(r, "stages.0.timings.1"), "base_seconds", json_real(0.06));
}
static void edit_rounds(json_t *r) {
  json_object_set_new(at(r, "stages.0.timings.1"), "rounds", json_integer(80));
}
static void edit_count(json_t *r) {
  json_object_set_new(at(r, "stages.0.timings.0"), "disturbed", json_integer(0));
}
static void edit_size_verdict(json_t *r) {
  json_object_set_new(at(r, "stages.0.timings.1"), "verdict", json_string("same"));
}
static void edit_verdict(json_t *r) { json_object_set_new(r, "verdict", json_string("same")); }
static void edit_headline(json_t *r) {
  json_object_set_new(r, "headline", json_string("it is ten times as fast"));
}
static void edit_hash(json_t *r) {
  json_object_set_new(
      at(r, "stages.0.cand"), "sha256",
      json_string("00000000000000000000000000000000000000000000000000000000000000ff"));
}
static void edit_rule(json_t *r) {
  json_object_set_new(at(r, "rule"), "min_gain", json_real(0.01));
}
static void edit_control(json_t *r) {
  json_object_set_new(at(r, "stages.0.controls.1"), "got", json_string("pass"));
}
static void edit_buffer(json_t *r) {
  json_object_set_new(at(r, "stages.0.parity.3.buffers.0"), "count", json_integer(1));
}
static void edit_machine(json_t *r) {
  json_object_set_new(at(r, "machine"), "cpu", json_string("another"));
}
static void remove_sample(json_t *r) { json_array_remove(at(r, "stages.0.timings.2.samples"), 7); }
static void remove_timing(json_t *r) { json_array_remove(at(r, "stages.0.timings"), 2); }
static void remove_key(json_t *r) { json_object_del(at(r, "stages.0"), "oracle"); }
static void remove_seals(json_t *r) { json_object_del(r, "seals"); }
static void add_key(json_t *r) {
  json_object_set_new(at(r, "stages.0"), "note", json_string("trust me"));
}
static void edit_seal(json_t *r) {
  json_object_set_new(at(r, "seals"), "verdict", json_string("0"));
}

static void test_edits(void **state) {
  (void)state;
  expect_found(edit_sample, "stages[0].timings[2].samples was edited", "gdn_pre T=1024 f32=0: ");
  expect_found(edit_mark, "stages[0].timings[0].samples was edited",
               "samples[1].disturbed is true: its seconds say otherwise");
  expect_found(edit_ratio, "stages[0].timings[1].ratio was edited",
               "gdn_pre T=512 f32=1: ratio is 0.9: its samples give 0.9");
  expect_found(edit_median, "stages[0].timings[1].base_seconds was edited",
               "base_seconds is 0.06: its samples give 0.05");
  expect_found(edit_rounds, "stages[0].timings[1].rounds was edited",
               "rounds is 80: its samples give 8");
  expect_found(edit_count, "stages[0].timings[0].disturbed was edited",
               "disturbed is 0: its samples give 1");
  expect_found(edit_size_verdict, "stages[0].timings[1].verdict was edited",
               "verdict is same: its samples give faster");
  expect_found(edit_verdict, "verdict was edited", "verdict is same: its parts give faster");
  expect_found(edit_headline, "headline was edited",
               "headline: its parts give \"gdn_pre: scan_two_tokens.c is 1.05");
  expect_found(edit_hash, "stages[0].cand.sha256 was edited",
               "cand/gdn_pre.c was edited: its SHA-256 is ");
  expect_found(edit_rule, "rule.min_gain was edited", "rule is not what its text says");
  expect_found(edit_control, "stages[0].controls[1].got was edited",
               "control \"one bit of base's output flipped\" is marked ok");
  expect_found(edit_buffer, "stages[0].parity[3].buffers was edited",
               "T=1024 f32=1: o is PASS: 1 of its elements differ");
  expect_found(edit_machine, "machine.cpu was edited", NULL);
  expect_found(remove_sample, "stages[0].timings[2].samples was edited", "gdn_pre T=1024 f32=0: ");
  expect_found(remove_timing, "stages[0].timings[2] was removed\n", NULL);
  expect_found(remove_key, "stages[0].oracle.base was removed\n", NULL);
  expect_found(remove_key, "report: stages[0].oracle: missing", NULL);
  expect_found(remove_seals, "seals was removed", NULL);
  expect_found(add_key, "stages[0].note was added", NULL);
  expect_found(edit_seal, "verdict was edited", NULL);
}

/* The order of keys and the white space between them say nothing. */
static void test_other_layout(void **state) {
  (void)state;
  folder d;
  json_t *report = make_report(&good);
  folder_make(&d, &good);
  write_report(&d, report);
  json_t *stored = load(&d, "report.json");
  char *text = json_dumps(stored, JSON_SORT_KEYS | JSON_INDENT(7));
  st_test_file_write(d.dir, "report.json", text, strlen(text));
  char *lines = edits_of(&d);
  assert_string_equal(lines, "");
  st_free(lines);
  free(text);
  json_decref(stored);
  json_decref(report);
  folder_remove(&d);
}

/* One byte of a file other than report.json. */
static void expect_file_found(const char *sub, const char *name, const char *what) {
  folder d;
  char dir[2 * ST_TEST_DIR_BYTES];
  json_t *report = make_report(&good);
  folder_make(&d, &good);
  write_report(&d, report);
  snprintf(dir, sizeof dir, "%s%s%s", d.dir, *sub ? "/" : "", sub);
  char path[100];
  snprintf(path, sizeof path, "%s%s%s", sub, *sub ? "/" : "", name);
  char *text = read_text(&d, path);
  text[strlen(text) / 2] ^= 1;
  st_test_file_write(dir, name, text, strlen(text));
  expect_edit(&d, what);
  snprintf(dir, sizeof dir, "%s/%s", d.dir, path);
  assert_int_equal(remove(dir), 0);
  snprintf(path + strlen(path), sizeof path - strlen(path), " is missing");
  expect_edit(&d, path);
  st_free(text);
  folder_remove(&d);
  json_decref(report);
}

static void test_edited_files(void **state) {
  (void)state;
  expect_file_found("base", "gdn_pre.c", "base/gdn_pre.c was edited: its SHA-256 is ");
  expect_file_found("cand", "gdn_pre.c", "cand/gdn_pre.c was edited: its SHA-256 is ");
  expect_file_found("", "report.md", "report.md was edited: line ");
  expect_file_found("", "report.html", "report.html was edited: line ");
}

static void expect_no_report(const folder *d, const char *text, const char *message) {
  lab_verify_sink sink = {.line = keep_edits};
  strata_error err;
  char *headline;
  if (text) st_test_file_write(d->dir, "report.json", text, strlen(text));
  st_test_expect_error(lab_verify(d->dir, &sink, &headline, &err), &err, STRATA_ARG, message,
                       "expected");
  assert_null(headline);
  assert_int_equal(sink.n_edited, 0);
}

static void test_no_report(void **state) {
  (void)state;
  folder d;
  folder_make(&d, &good);
  expect_no_report(&d, NULL, "no readable report.json");
  expect_no_report(&d, "{", "report.json: line 1: ");
  expect_no_report(&d, "{\"a\":1,\"a\":2}", "duplicate");
  expect_no_report(&d, "[]", "no \"format\"");
  expect_no_report(&d, "{\"format\":\"strata lab report\",\"version\":2}", "version 2");
  folder_remove(&d);
}

/* ---- failing allocations -------------------------------------------------------------- */

static void test_allocations(void **state) {
  (void)state;
  folder d;
  json_t *report = make_report(&good);
  strata_status status = STRATA_NOMEM;
  folder_make(&d, &good);
  for (int64_t n = 0; status != STRATA_OK && n < 10000; ++n) {
    st_mem_fail_at(n);
    status = lab_report_write(report, d.dir, NULL);
    st_mem_fail_at(-1);
    assert_true(status == STRATA_OK || status == STRATA_NOMEM);
  }
  assert_int_equal(status, STRATA_OK);
  status = STRATA_NOMEM;
  for (int64_t n = 0; status != STRATA_OK && n < 10000; ++n) {
    st_string lines = {0};
    char *headline;
    lab_verify_sink sink = {.line = keep_edits, .user = &lines};
    st_mem_fail_at(n);
    status = lab_verify(d.dir, &sink, &headline, NULL);
    st_mem_fail_at(-1);
    assert_true(status == STRATA_OK || status == STRATA_NOMEM);
    assert_int_equal(sink.n_edited, 0);
    st_free(headline);
  }
  assert_int_equal(status, STRATA_OK);
  folder_remove(&d);
  json_decref(report);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rendering),    cmocka_unit_test(test_headlines),
      cmocka_unit_test(test_escapes),      cmocka_unit_test(test_settings),
      cmocka_unit_test(test_check),
      cmocka_unit_test(test_untouched),    cmocka_unit_test(test_edits),
      cmocka_unit_test(test_edited_files),
      cmocka_unit_test(test_other_layout), cmocka_unit_test(test_no_report),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
