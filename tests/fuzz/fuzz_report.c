/* libFuzzer entry: any bytes as a report.json. One that is accepted is rendered
 * and verified; what is refused or edited is said in one line. */
#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "lab/lab_report.h"
#include "lab/lab_verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Stops the fuzzer: a promise of the header is broken. */
static void check(bool ok) {
  if (!ok) abort();
}

static bool is_line(const char *text) { return text[0] && !strpbrk(text, "\n\r\033"); }

static void check_line(void *user, bool edited, const char *text) {
  (void)user;
  (void)edited;
  check(is_line(text));
}

typedef strata_status renderer(const json_t *report, char **text, size_t *n_bytes,
                               strata_error *err);

static void check_rendering(const json_t *report, renderer *render, strata_status want) {
  char *text;
  size_t n_bytes;
  check(render(report, &text, &n_bytes, NULL) == want);
  check((want == STRATA_OK) == (text != NULL));
  if (text) check(strlen(text) == n_bytes && !strpbrk(text, "\r\033"));
  if (text && render == lab_report_html) check(!strstr(text, "<script"));
  st_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  strata_error err;
  json_t *report;
  lab_verify_sink sink = {.line = check_line};
  strata_status status = lab_verify_parse("fuzz", (const char *)data, n_bytes, &report, &err);
  check((status == STRATA_OK) == (report != NULL));
  if (!report) {
    check(status == STRATA_ARG && is_line(err.message));
    return 0;
  }
  status = lab_report_check(report, &err);
  check(status == STRATA_OK || (status == STRATA_FORMAT && is_line(err.message)));
  check_rendering(report, lab_report_html, status);
  check_rendering(report, lab_report_markdown, status);
  check(lab_verify_numbers(report, &sink, NULL) == STRATA_OK);
  json_decref(report);
  return 0;
}
