/* From paired timings to a verdict: plain arithmetic on samples, the same numbers
 * for the same samples, used when measuring and when a report is verified.
 *
 * A round has two pairs: base and candidate, base and null (a second copy of the
 * base), each in an order that turns every round: A B, then B A. The ratio of a
 * pair is its second arm over base. The estimate is the geometric mean of two
 * medians, of the pairs that ran base first and of those that ran it last: what
 * favours a place in the order, a steady drift of the machine too, cancels. Its
 * interval comes from the bootstrap: 2000 resamples of the pairs of each order,
 * from a fixed seed. All of it in logarithms, so that swapped arms give exactly
 * the reciprocal. */
#ifndef LAB_STATS_H
#define LAB_STATS_H

#include "lab/lab_rule.h"

typedef enum lab_arm { LAB_BASE, LAB_CAND, LAB_NULL, LAB_ARMS } lab_arm;

/* One batch. */
typedef struct lab_sample {
  int32_t round;
  lab_arm pair;  /* LAB_CAND or LAB_NULL: which pair it belongs to */
  lab_arm arm;   /* LAB_BASE, or the pair's */
  int32_t order; /* 0 or 1: its place in the pair */
  double at;     /* seconds since the measuring began */
  double seconds;
  bool disturbed;
} lab_sample;

typedef struct lab_estimate {
  double ratio, low, high; /* 0 if there is no pair of each order */
  int32_t n_pairs;         /* that were not left out */
} lab_estimate;

typedef enum lab_verdict {
  LAB_NO_VERDICT, LAB_FASTER, LAB_SAME, LAB_SLOWER, LAB_WRONG, LAB_VERDICTS
} lab_verdict;
/* "no verdict", "faster", ... */
const char *lab_verdict_name(lab_verdict verdict);

/* What the samples of one size say. */
typedef struct lab_outcome {
  lab_verdict verdict;
  const char *reason; /* of LAB_NO_VERDICT, else "" */
  double seconds[LAB_ARMS]; /* median of the undisturbed batches; 0: none */
  lab_estimate cand, null;
  int32_t n_rounds, n_disturbed;
} lab_outcome;

/* Marks disturbed samples, then estimates and judges. Without candidate pairs (a
 * null run) the null pairs take their place, and the verdict can only be "same" or
 * none. NOMEM. */
strata_status lab_stats_judge(lab_sample *samples, int32_t n, const lab_rule *rule,
                              lab_outcome *out, strata_error *err);

/* Both intervals are narrow and there are rounds enough. */
bool lab_stats_done(const lab_outcome *outcome, const lab_rule *rule);

/* Over sizes: slower if one is slower, else none if one has none, faster if all
 * are faster, else same. */
lab_verdict lab_stats_overall(const lab_verdict *sizes, int32_t n);

/* The median, by sorting x. n >= 1. */
double lab_stats_median(double *x, int32_t n);

#endif
