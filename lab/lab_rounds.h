/* Rounds of paired batches, whatever a batch is and wherever it runs. */
#ifndef LAB_ROUNDS_H
#define LAB_ROUNDS_H

#include "lab/lab_stats.h"

/* Where samples go: plain data, so that it may lie in shared memory and outlive a
 * run that is killed. */
typedef struct lab_samples {
  int32_t n;
  bool changed; /* a timed batch left other outputs than base: then there are no samples */
  double began; /* st_clock_seconds */
  lab_sample items[];
} lab_samples;
/* Bytes of a lab_samples for a rule's rounds. */
size_t lab_samples_bytes(const lab_rule *rule);

/* What is timed. Each call may fail as its machine does. */
typedef struct lab_timer {
  void *self;
  /* Runs some 50 ms of an arm and one batch more. */
  strata_status (*warm)(void *self, lab_arm arm, strata_error *err);
  /* Puts back what batches change, untimed, and times one batch. */
  strata_status (*batch)(void *self, lab_arm arm, double *seconds, strata_error *err);
  /* Keeps what the last batch left as what is expected of all others. */
  strata_status (*keep)(void *self, strata_error *err);
  /* Whether the last batch, of this arm, left the same. */
  strata_status (*same)(void *self, lab_arm arm, bool *same, strata_error *err);
} lab_timer;

/* Rounds until the rule is content, a batch left something else, or seconds are over: the pair of base and
 * candidate, unless this is a null run, and that of base and null. */
strata_status lab_rounds(const lab_timer *timer, bool has_cand, const lab_rule *rule, double seconds,
                         lab_samples *samples, strata_error *err);

#endif
