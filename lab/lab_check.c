/* Every variant of every op against its oracle. */
#include "lab/lab_check.h"

#include <stdio.h>
#include <string.h>

#include "kreg/st_kreg.h"
#include "lab/lab_case.h"

void lab_tally_add(lab_tally *tally, const char *name, const char *detail) {
  if (detail) ++tally->n_failed;
  else ++tally->n_passed;
  tally->report(tally->user, name, detail);
}

static void describe(const lab_difference *d, int32_t index, int32_t n_parts, uint64_t seed,
                     char *text, size_t n_bytes) {
  if (d->guard)
    snprintf(text, n_bytes, "case %d, %d parts, seed %d: wrote outside %s", index, n_parts,
             (int)seed, d->tensor);
  else
    snprintf(text, n_bytes,
             "case %d, %d parts, seed %d: %s differs, first at %zu, %zu of %zu, at most %.3g", index,
             n_parts, (int)seed, d->tensor, d->first, d->count, d->n, d->max_abs);
}

/* One case of one variant; *detail stays empty if it passes. */
static strata_status run_case(const stk_op *op, const stk_kernel *kernel, int32_t index,
                              int32_t n_parts, uint64_t seed, int poison, char *detail,
                              size_t n_bytes, strata_error *err) {
  const void *shape = (const char *)op->cases + (size_t)index * op->args_bytes;
  lab_case want, got;
  ST_TRY(lab_case_init(&want, op, shape, seed, poison, err));
  strata_status status = lab_case_init(&got, op, shape, seed, poison, err);
  if (status == STRATA_OK) {
    lab_case_run(&want, op->oracle, 2);
    lab_case_run(&got, kernel, n_parts);
    lab_difference d = lab_case_compare(&want, &got);
    if (d.tensor) describe(&d, index, n_parts, seed, detail, n_bytes);
    lab_case_release(&got);
  }
  lab_case_release(&want);
  return status;
}

static strata_status check_variant(const stk_op *op, const stk_kernel *kernel, lab_tally *tally,
                                   strata_error *err) {
  static const int32_t parts[] = {1, 2, 3, 7};
  char name[96], detail[256] = "";
  snprintf(name, sizeof name, "%s.%s = oracle", op->name, kernel->variant);
  if (kernel->contract != op->contract || kernel->args_bytes != op->args_bytes)
    snprintf(detail, sizeof detail, "built for another contract");
  for (int32_t c = 0; c < op->n_cases && !detail[0]; ++c)
    for (size_t p = 0; p < sizeof parts / sizeof *parts && !detail[0]; ++p)
      ST_TRY(run_case(op, kernel, c, parts[p], 1 + p, p % 2 ? 0xa5 : 0x5a, detail, sizeof detail, err));
  lab_tally_add(tally, name, detail[0] ? detail : NULL);
  return STRATA_OK;
}

static bool begins_with(const char *text, const char *start) {
  return strncmp(text, start, strlen(start)) == 0;
}

strata_status lab_check(const char *what, lab_report *report, void *user, int32_t *n_passed,
                        int32_t *n_failed, strata_error *err) {
  lab_tally tally = {.report = report, .user = user};
  for (int op = 0; op < ST_OPS; ++op) {
    const stk_op *contract = st_kreg_op((st_op)op);
    if (what && !begins_with(contract->name, what)) continue;
    const stk_kernel *kernel;
    for (int32_t i = 0; (kernel = st_kreg_variant((st_op)op, i)); ++i)
      if (st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa)))
        ST_TRY(check_variant(contract, kernel, &tally, err));
  }
  if (!what || strcmp(what, "gdn") == 0) ST_TRY(lab_check_gdn(&tally, err));
  *n_passed = tally.n_passed;
  *n_failed = tally.n_failed;
  if (tally.n_passed + tally.n_failed == 0)
    ST_FAIL(err, ARG, "lab check: %s: the name of an op, or the beginning of some, expected", what);
  return STRATA_OK;
}
