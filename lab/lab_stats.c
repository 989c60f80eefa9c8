/* Paired ratios, their bootstrap interval, and the verdict. */
#include "lab/lab_stats.h"

#include <math.h>
#include <stdlib.h>

#include "core/st_mem.h"
#include "lab/lab_case.h"

enum { RESAMPLES = 2000 };

const char *lab_verdict_name(lab_verdict verdict) {
  static const char *const names[LAB_VERDICTS] = {"no verdict", "faster", "same", "slower", "wrong"};
  return names[verdict];
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double sorted_median(const double *x, int32_t n) {
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

double lab_stats_median(double *x, int32_t n) {
  qsort(x, (size_t)n, sizeof *x, compare_doubles);
  return sorted_median(x, n);
}

/* Medians of an arm's samples, with or without the disturbed ones. */
static double arm_median(const lab_sample *samples, int32_t n, lab_arm arm, bool all, double *room) {
  int32_t count = 0;
  for (int32_t i = 0; i < n; ++i)
    if (samples[i].arm == arm && (all || !samples[i].disturbed)) room[count++] = samples[i].seconds;
  return count ? lab_stats_median(room, count) : 0;
}

static int32_t mark_disturbed(lab_sample *samples, int32_t n, double limit, double *room) {
  double medians[LAB_ARMS];
  int32_t count = 0;
  for (int arm = 0; arm < LAB_ARMS; ++arm)
    medians[arm] = arm_median(samples, n, (lab_arm)arm, true, room);
  for (int32_t i = 0; i < n; ++i) {
    samples[i].disturbed = samples[i].seconds > limit * medians[samples[i].arm];
    count += samples[i].disturbed;
  }
  return count;
}

/* Of some arm more than this share. */
static bool too_many_disturbed(const lab_sample *samples, int32_t n, double share) {
  int32_t all[LAB_ARMS] = {0}, disturbed[LAB_ARMS] = {0};
  bool too_many = false;
  for (int32_t i = 0; i < n; ++i) {
    ++all[samples[i].arm];
    disturbed[samples[i].arm] += samples[i].disturbed;
  }
  for (int arm = 0; arm < LAB_ARMS; ++arm) too_many |= disturbed[arm] > share * all[arm];
  return too_many;
}

/* A machine disturbs both arms of the candidate's pairs alike. If it is one of them again
 * and again, its kernel is now fast and now slow, and leaving out what is slow would give
 * it a speed that it does not have. The sign test, at 1 %. */
static bool disturbs_itself(const lab_sample *samples, int32_t n) {
  int32_t alone[LAB_ARMS] = {0};
  for (int32_t i = 0; i + 1 < n; ++i) {
    const lab_sample *a = &samples[i], *b = &samples[i + 1];
    if (a->pair != LAB_CAND || b->pair != LAB_CAND || a->round != b->round || a->disturbed == b->disturbed) continue;
    ++alone[a->disturbed ? a->arm : b->arm];
  }
  const double sum = alone[LAB_BASE] + alone[LAB_CAND], difference = alone[LAB_CAND] - alone[LAB_BASE];
  return difference * difference > 6.63 * sum;
}

/* Logarithms of the ratios of one pair kind, by which arm ran first. */
typedef struct ratios {
  double *log_ratio[2]; /* [0] base first */
  int32_t n[2];
} ratios;

static void collect(const lab_sample *samples, int32_t n, lab_arm pair, ratios *r) {
  r->n[0] = r->n[1] = 0;
  for (int32_t i = 0; i + 1 < n; ++i) {
    const lab_sample *a = &samples[i], *b = &samples[i + 1];
    if (a->pair != pair || b->pair != pair || a->round != b->round || a->order != 0) continue;
    if (a->disturbed || b->disturbed) continue;
    int base_last = b->arm == LAB_BASE;
    const lab_sample *base = base_last ? b : a, *other = base_last ? a : b;
    r->log_ratio[base_last][r->n[base_last]++] = log(other->seconds / base->seconds);
  }
  for (int k = 0; k < 2; ++k)
    qsort(r->log_ratio[k], (size_t)r->n[k], sizeof(double), compare_doubles);
}

/* The median of n values drawn from the n sorted ones. Drawing an index twice keeps
 * the order, so counting replaces sorting. */
static double resampled_median(const double *sorted, int32_t n, int32_t *times, uint64_t *random) {
  for (int32_t i = 0; i < n; ++i) times[i] = 0;
  for (int32_t i = 0; i < n; ++i) ++times[lab_random(random) % (uint64_t)n];
  int32_t low = (n - 1) / 2, high = n / 2, seen = 0, i = 0;
  while (seen + times[i] <= low) seen += times[i++];
  double at_low = sorted[i];
  while (seen + times[i] <= high) seen += times[i++];
  return (at_low + sorted[i]) / 2;
}

/* room: RESAMPLES doubles; times: as many counts as there are pairs. */
static lab_estimate estimate(const ratios *r, double confidence, double *room, int32_t *times) {
  lab_estimate e = {.n_pairs = r->n[0] + r->n[1]};
  if (r->n[0] == 0 || r->n[1] == 0) return e;
  uint64_t random = 1;
  e.ratio = exp((sorted_median(r->log_ratio[0], r->n[0]) + sorted_median(r->log_ratio[1], r->n[1])) / 2);
  for (int i = 0; i < RESAMPLES; ++i)
    room[i] = (resampled_median(r->log_ratio[0], r->n[0], times, &random) +
               resampled_median(r->log_ratio[1], r->n[1], times, &random)) / 2;
  qsort(room, RESAMPLES, sizeof *room, compare_doubles);
  int cut = (int)((1 - confidence) / 2 * RESAMPLES);
  e.low = exp(room[cut]);
  e.high = exp(room[RESAMPLES - 1 - cut]);
  return e;
}

/* How far an interval reaches from its ratio, relative. */
static double reach(const lab_estimate *e) {
  double down = e->ratio / e->low, up = e->high / e->ratio;
  return (down > up ? down : up) - 1;
}

bool lab_stats_done(const lab_outcome *o, const lab_rule *rule) {
  return o->n_rounds >= rule->min_rounds && o->cand.ratio > 0 && o->null.ratio > 0 &&
         reach(&o->cand) <= rule->narrow && reach(&o->null) <= rule->narrow;
}

/* The verdict on undisturbed pairs enough. The null band holds 1, the null run's
 * interval and, since which copy is called null is chance, its mirror image. */
static void judge(lab_outcome *o, const lab_rule *rule) {
  const lab_estimate *c = &o->cand, *n = &o->null;
  double band = fmax(fmax(n->high, 1 / n->low), 1);
  double gain = 1 - rule->min_gain;
  o->reason = "";
  if (c->ratio <= gain && c->high < 1 / band) o->verdict = LAB_FASTER;
  else if (1 / c->ratio <= gain && c->low > band) o->verdict = LAB_SLOWER;
  else if (reach(c) > rule->min_gain || reach(n) > rule->min_gain) o->reason = "the intervals are too wide to tell";
  else if (c->ratio > gain && 1 / c->ratio > gain) o->verdict = LAB_SAME;
  else o->reason = "the difference lies inside the null band";
}

strata_status lab_stats_judge(lab_sample *samples, int32_t n, const lab_rule *rule,
                              lab_outcome *out, strata_error *err) {
  strata_status status = STRATA_OK;
  void *doubles = NULL, *counts = NULL;
  *out = (lab_outcome){.verdict = LAB_NO_VERDICT, .reason = "too few rounds"};
  ST_TRY_OUT(st_calloc(&doubles, (size_t)n * 3 + RESAMPLES, sizeof(double), "statistics", err));
  ST_TRY_OUT(st_calloc(&counts, (size_t)n + 1, sizeof(int32_t), "statistics", err));
  double *room = doubles;
  ratios r = {.log_ratio = {room + n + RESAMPLES, room + 2 * n + RESAMPLES}};
  int32_t *times = counts;
  bool has_cand = false;
  out->n_disturbed = mark_disturbed(samples, n, rule->disturbed, room);
  for (int32_t i = 0; i < n; ++i) {
    has_cand |= samples[i].pair == LAB_CAND;
    if (samples[i].round >= out->n_rounds) out->n_rounds = samples[i].round + 1;
  }
  for (int arm = 0; arm < LAB_ARMS; ++arm)
    out->seconds[arm] = arm_median(samples, n, (lab_arm)arm, false, room);
  collect(samples, n, LAB_NULL, &r);
  out->null = out->cand = estimate(&r, rule->confidence, room, times);
  if (has_cand) {
    collect(samples, n, LAB_CAND, &r);
    out->cand = estimate(&r, rule->confidence, room, times);
  }
  if (too_many_disturbed(samples, n, rule->max_disturbed)) out->reason = "too many disturbed samples";
  else if (disturbs_itself(samples, n)) out->reason = "one kernel is disturbed again and again, the other is not";
  else if (out->n_rounds >= rule->min_rounds && out->cand.ratio > 0 && out->null.ratio > 0) {
    judge(out, rule);
    if (!has_cand && out->verdict != LAB_SAME) {
      out->verdict = LAB_NO_VERDICT;
      if (reach(&out->null) <= rule->min_gain) out->reason = "two copies differ by more than the least gain";
    }
  }
out:
  st_free(doubles);
  st_free(counts);
  return status;
}

lab_verdict lab_stats_overall(const lab_verdict *sizes, int32_t n) {
  int32_t count[LAB_VERDICTS] = {0};
  for (int32_t i = 0; i < n; ++i) ++count[sizes[i]];
  if (count[LAB_WRONG]) return LAB_WRONG;
  if (count[LAB_SLOWER]) return LAB_SLOWER;
  if (count[LAB_NO_VERDICT] || n == 0) return LAB_NO_VERDICT;
  return count[LAB_FASTER] == n ? LAB_FASTER : LAB_SAME;
}
