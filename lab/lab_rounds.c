/* Warming up, rounds, and when to stop. */
#include "lab/lab_rounds.h"

#include "os/st_process.h"

enum { SAMPLES_A_ROUND = 4 };

size_t lab_samples_bytes(const lab_rule *rule) {
  return sizeof(lab_samples) + (size_t)rule->max_rounds * SAMPLES_A_ROUND * sizeof(lab_sample);
}

/* One pair; the round says which arm goes first. */
static strata_status measure_pair(const lab_timer *t, lab_arm pair, int32_t round, lab_samples *samples,
                                  strata_error *err) {
  for (int32_t order = 0; order < 2; ++order) {
    lab_arm arm = (order == 0) == (round % 2 == 0) ? LAB_BASE : pair;
    double at = st_clock_seconds() - samples->began, seconds;
    bool same;
    ST_TRY(t->batch(t->self, arm, &seconds, err));
    ST_TRY(t->same(t->self, arm, &same, err));
    samples->changed |= !same;
    samples->items[samples->n++] = (lab_sample){round, pair, arm, order, at, seconds, false};
  }
  return STRATA_OK;
}

static strata_status warm_up(const lab_timer *t, bool has_cand, strata_error *err) {
  double ignored;
  for (int arm = 0; arm < LAB_ARMS; ++arm)
    if (arm != LAB_CAND || has_cand) ST_TRY(t->warm(t->self, (lab_arm)arm, err));
  ST_TRY(t->batch(t->self, LAB_BASE, &ignored, err));
  return t->keep(t->self, err);
}

strata_status lab_rounds(const lab_timer *t, bool has_cand, const lab_rule *rule, double seconds,
                         lab_samples *samples, strata_error *err) {
  lab_outcome outcome = {0};
  samples->n = 0;
  samples->began = st_clock_seconds();
  const double end = samples->began + seconds;
  ST_TRY(warm_up(t, has_cand, err));
  for (int32_t round = 0; round < rule->max_rounds && st_clock_seconds() < end; ++round) {
    if (has_cand) ST_TRY(measure_pair(t, LAB_CAND, round, samples, err));
    ST_TRY(measure_pair(t, LAB_NULL, round, samples, err));
    if (round % 2 == 0 || round + 1 < rule->min_rounds) continue;
    ST_TRY(lab_stats_judge(samples->items, samples->n, rule, &outcome, err));
    if (lab_stats_done(&outcome, rule)) break;
  }
  return STRATA_OK;
}
