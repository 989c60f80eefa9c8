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

/* A case of a kernel, one way of running it. */
typedef struct trial {
  const stk_op *op;
  const stk_kernel *kernel;
  int32_t index, n_parts;
  uint64_t seed;
  uint8_t poison;
  bool tiny; /* as in lab_fill */
} trial;

static void describe(const trial *t, const char *against, const lab_difference *d, char *text,
                     size_t n_bytes) {
  char what[160];
  lab_difference_describe(d, t->op->fast_bound, what, sizeof what);
  snprintf(text, n_bytes, "case %d, %d parts, seed %d%s: %s", t->index, t->n_parts, (int)t->seed,
           against, what);
}

static strata_status new_case(lab_case *c, const trial *t, strata_error *err) {
  const void *shape = (const char *)t->op->cases + (size_t)t->index * t->op->args_bytes;
  lab_fill fill = {t->seed, t->poison, (uint8_t)(t->poison ^ 0xff), 0xff, t->tiny};
  return lab_case_init(c, t->op, shape, fill, err);
}

/* Runs a fast kernel once more, in one part and over the other poison: the bytes of
 * got are expected. */
static strata_status repeat(const trial *t, const lab_case *got, char *detail, size_t n_bytes,
                            strata_error *err) {
  trial other = *t;
  lab_case again;
  other.poison = (uint8_t)(t->poison ^ 0xff);
  ST_TRY(new_case(&again, &other, err));
  lab_case_run(&again, t->kernel, 1);
  lab_difference d = lab_case_compare(got, &again);
  if (d.tensor) describe(t, ", run after run", &d, detail, n_bytes);
  lab_case_release(&again);
  return STRATA_OK;
}

/* Against the oracle; *detail stays empty if it passes. */
static strata_status run_trial(const trial *t, char *detail, size_t n_bytes, strata_error *err) {
  const bool fast = t->kernel->numerics == STK_FAST;
  lab_case want, got;
  ST_TRY(new_case(&want, t, err));
  strata_status status = new_case(&got, t, err);
  if (status == STRATA_OK) {
    lab_case_run(&want, t->op->oracle, 2);
    lab_case_run(&got, t->kernel, t->n_parts);
    if (fast) status = repeat(t, &got, detail, n_bytes, err);
    if (status == STRATA_OK && !detail[0]) {
      lab_difference d = fast ? lab_case_compare_fast(&want, &got) : lab_case_compare(&want, &got);
      if (d.tensor) describe(t, "", &d, detail, n_bytes);
    }
    lab_case_release(&got);
  }
  lab_case_release(&want);
  return status;
}

strata_status lab_check_kernel(const stk_op *op, const stk_kernel *kernel, lab_tally *tally,
                               strata_error *err) {
  static const int32_t parts[] = {1, 2, 3, 7};
  const bool fast = kernel->numerics == STK_FAST;
  char name[96], detail[256] = "";
  snprintf(name, sizeof name, "%s.%s %s oracle", op->name, kernel->variant, fast ? "near" : "=");
  if (kernel->contract != op->contract || kernel->args_bytes != op->args_bytes)
    snprintf(detail, sizeof detail, "built for another contract");
  else if (fast && !(op->fast_bound > 0))
    snprintf(detail, sizeof detail, "class fast, but the contract has no bound");
  for (int32_t c = 0; c < op->n_cases && !detail[0]; ++c)
    for (int32_t p = 0; p < (int32_t)(sizeof parts / sizeof *parts) && !detail[0]; ++p) {
      trial t = {op, kernel, c, parts[p], 1 + (uint64_t)p, p % 2 ? 0xa5 : 0x5a, parts[p] == 3};
      ST_TRY(run_trial(&t, detail, sizeof detail, err));
    }
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
        ST_TRY(lab_check_kernel(contract, kernel, &tally, err));
  }
  if (!what || strcmp(what, "gdn") == 0) ST_TRY(lab_check_gdn(&tally, err));
  if (!what || strcmp(what, "qsa") == 0) ST_TRY(lab_check_qsa(&tally, err));
  if (what && strcmp(what, "qsa-long") == 0) ST_TRY(lab_check_qsa_long(&tally, err));
  *n_passed = tally.n_passed;
  *n_failed = tally.n_failed;
  if (tally.n_passed + tally.n_failed == 0)
    ST_FAIL(err, ARG, "lab check: %s: the name of an op, or the beginning of some, expected", what);
  return STRATA_OK;
}
