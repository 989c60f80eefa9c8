/* The parity suite: named tests, a line each, that need no model.
 *
 * For every op, each variant that this CPU can run against the oracle: all the
 * op's cases, several seeds, 1, 2, 3 and 7 parts, two poison patterns, guards. A
 * kernel of class fast has the contract's bound to keep, and to give the same bytes
 * run after run. For the gated delta net and for sparse attention also
 * the suites of lab_gdn.c and lab_qsa.c. */
#ifndef LAB_CHECK_H
#define LAB_CHECK_H

#include <strata/kernel.h>

#include "core/st_error.h"

/* Where results go: one call a test. detail is NULL for a pass. */
typedef void lab_report(void *user, const char *name, const char *detail);

/* Runs the tests of one op by name, of a group ("gdn", "qsa", ...: all ops whose
 * name begins with it), of long caches ("qsa-long"), or all but those (NULL). Counts into n_passed and n_failed. ARG
 * if nothing has that name. */
strata_status lab_check(const char *what, lab_report *report, void *user, int32_t *n_passed,
                        int32_t *n_failed, strata_error *err);

/* What lab_check and its suites share: reports one result and counts it. */
typedef struct lab_tally {
  lab_report *report;
  void *user;
  int32_t n_passed, n_failed;
} lab_tally;

void lab_tally_add(lab_tally *tally, const char *name, const char *detail);

/* One kernel against its op's oracle: bytes, or for class fast the op's bound and the
 * same bytes from two runs that differ in parts and in what the outputs held before. */
strata_status lab_check_kernel(const stk_op *op, const stk_kernel *kernel, lab_tally *tally,
                               strata_error *err);

/* The pipeline gdn_pre, gdn_scan or gdn_step, gdn_post as a whole. */
strata_status lab_check_gdn(lab_tally *tally, strata_error *err);

/* Prep, scores, selection and the routes of sparse attention as a whole; and on a
 * cache of 131073 cells (0.8 GB, minutes). */
strata_status lab_check_qsa(lab_tally *tally, strata_error *err);
strata_status lab_check_qsa_long(lab_tally *tally, strata_error *err);

#endif
