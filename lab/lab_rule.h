/* The rule by which paired timings become a verdict. It is read, and hashed, before
 * anything is timed.
 *
 * A rule file is a JSON object; a missing key keeps the built-in rule's value:
 *
 *   min_gain       0.03   what a win must exceed: cand/base at most 1 - min_gain;
 *                         a loss is the same with the arms swapped
 *   confidence     0.95   of the bootstrap intervals
 *   narrow         0.01   measuring ends when both intervals are at most this far
 *                         (relative) from their ratio on either side ...
 *   min_rounds     8      ... and this many rounds were measured
 *   max_rounds     200    or this many
 *   disturbed      3      a sample longer than this many medians of its arm is
 *                         disturbed: kept, marked, and left out with its pair
 *   max_disturbed  0.3333 more than this share of an arm's: no verdict
 *   calls          36     of a batch, 1 to 36; as many as there are sets of buffers
 *                         at least. For calls that take long, so that there is time
 *                         for enough rounds. */
#ifndef LAB_RULE_H
#define LAB_RULE_H

#include "core/st_error.h"

enum { LAB_RULE_BYTES_MAX = 4096, LAB_CALLS_MAX = 36 };

typedef struct lab_rule {
  char text[LAB_RULE_BYTES_MAX]; /* as it was read, with a NUL behind */
  char sha256[65];               /* of the text */
  double min_gain, confidence, narrow, disturbed, max_disturbed;
  int32_t min_rounds, max_rounds, calls;
} lab_rule;

/* path NULL: the built-in rule. ARG, naming file and key, for anything else than
 * the above. */
strata_status lab_rule_read(const char *path, lab_rule *out, strata_error *err);

/* The rule that a text makes; name is for messages. */
strata_status lab_rule_parse(const char *text, const char *name, lab_rule *out, strata_error *err);

#endif
