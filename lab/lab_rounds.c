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
    lab_sample *sample = &samples->items[samples->n];
    bool same;
    *sample = (lab_sample){.round = round, .pair = pair, .arm = arm, .order = order,
                           .at = st_clock_seconds() - samples->began};
    ST_TRY(t->batch(t->self, arm, &sample->seconds, err));
    ++samples->n; /* whole now, should this process be killed */
    ST_TRY(t->same(t->self, arm, &same, err));
    samples->changed |= !same;
  }
  return STRATA_OK;
}

/* What base leaves is kept before any other arm has run: nothing that another arm does to
 * the buffers can become what is expected. */
static strata_status warm_up(const lab_timer *t, bool has_cand, strata_error *err) {
  ST_TRY(t->warm(t->self, LAB_BASE, err));
  ST_TRY(t->keep(t->self, err));
  if (has_cand) ST_TRY(t->warm(t->self, LAB_CAND, err));
  return t->warm(t->self, LAB_NULL, err);
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
    if (samples->changed) {
      samples->n = 0; /* how fast wrong results come is nobody's business */
      break;
    }
    if (round % 2 == 0 || round + 1 < rule->min_rounds) continue;
    ST_TRY(lab_stats_judge(samples->items, samples->n, rule, &outcome, err));
    if (lab_stats_done(&outcome, rule)) break;
  }
  return STRATA_OK;
}
