/* What a timed batch must leave: of the last set, and of another one in turn (all of them
 * would take as long as the batch itself), the bytes that base left there before any other
 * arm ran. Inputs and what lies around a tensor count too.
 *
 * A fast candidate's state drifts from base's over a batch, and with it all that later
 * stages of a chain make of it. So its bound, which is one call's, says nothing here; but
 * the bytes that it left itself, in its first batch, must come again. */
#ifndef LAB_EXPECTED_H
#define LAB_EXPECTED_H

#include "lab/lab_case.h"
#include "lab/lab_stats.h"

enum { LAB_STAGES_MAX = 4, LAB_SETS_MAX = LAB_CALLS_MAX };

/* Where batches run: gives a set's case as the last batch left it, a view until the next
 * call. */
typedef struct lab_sets {
  void *self;
  strata_status (*at)(void *self, int32_t set, int32_t stage, const lab_case **out, strata_error *err);
} lab_sets;

/* Whose bytes are expected: base's, or, of a fast candidate, what it left itself. */
typedef enum lab_author { LAB_BY_BASE, LAB_BY_FAST_CAND, LAB_AUTHORS } lab_author;

/* Zero but for what the caller sets. */
typedef struct lab_expected {
  lab_sets sets;
  int32_t n_sets, n_stages;  /* the caller's */
  int32_t n_calls;           /* the caller's: of a batch, set after set */
  bool fast[LAB_STAGES_MAX]; /* the caller's: stages whose candidate is of class fast */
  int32_t n_checks;
  uint64_t hashes[LAB_AUTHORS][LAB_SETS_MAX][LAB_STAGES_MAX];
} lab_expected;

/* Keeps what the last batch, of a stage or of all (-1), left in all sets. */
strata_status lab_expected_keep(lab_expected *e, int32_t stage, lab_author who, strata_error *err);
/* Whether the last batch, of this arm, left what is expected. */
strata_status lab_expected_check(lab_expected *e, int32_t stage, lab_arm arm, bool *same, strata_error *err);

#endif
