/* Verdicts on made-up machines: quiet, noisy, drifting, disturbed. Times come from
 * a seed, so every run sees the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lab/lab_case.h"
#include "lab/lab_stats.h"

enum { SAMPLES_MAX = 4000 };

/* A machine: what a batch takes on it. */
typedef struct machine {
  uint64_t random;
  double cand;       /* candidate over base */
  double noise;      /* relative, uniform on both sides */
  double drift;      /* growth of all times, a batch */
  double hit_chance; /* of a batch that takes eight times as long */
  int32_t slow, slow_of; /* so many of so many batches of the candidate are slow by themselves */
  double second;     /* the second arm of a pair takes this much more */
  int32_t n_batches, n_cands;
} machine;

static double unit(machine *m) { return (double)(lab_random(&m->random) >> 11) / 9007199254740992.0; }

static double batch(machine *m, lab_arm arm, int32_t order) {
  double t = 0.01 * (arm == LAB_CAND ? m->cand : 1);
  t *= 1 + m->noise * (2 * unit(m) - 1);
  t *= pow(1 + m->drift, m->n_batches++);
  if (order) t *= 1 + m->second;
  if (arm == LAB_CAND && m->slow && m->n_cands++ % m->slow_of < m->slow) t *= 8;
  return unit(m) < m->hit_chance ? 8 * t : t;
}

static int32_t measure(machine *m, int32_t n_rounds, lab_sample *samples) {
  int32_t n = 0;
  for (int32_t round = 0; round < n_rounds; ++round)
    for (lab_arm pair = LAB_CAND; pair <= LAB_NULL; ++pair)
      for (int32_t order = 0; order < 2; ++order, ++n) {
        bool base_first = round % 2 == 0;
        lab_arm arm = (order == 0) == base_first ? LAB_BASE : pair;
        samples[n] = (lab_sample){.round = round, .pair = pair, .arm = arm, .order = order,
                                  .seconds = batch(m, arm, order)};
      }
  return n;
}

static lab_outcome judged(machine m, int32_t n_rounds) {
  static lab_sample samples[SAMPLES_MAX];
  lab_outcome o;
  lab_rule rule;
  assert_int_equal(lab_rule_read(NULL, &rule, NULL), STRATA_OK);
  int32_t n = measure(&m, n_rounds, samples);
  assert_int_equal(lab_stats_judge(samples, n, &rule, &o, NULL), STRATA_OK);
  return o;
}

static void test_faster_slower_same(void **state) {
  (void)state;
  machine quiet = {.random = 3, .noise = 0.005, .cand = 0.95};
  assert_int_equal(judged(quiet, 8).verdict, LAB_FASTER);
  quiet.cand = 1.05;
  lab_outcome o = judged(quiet, 8);
  assert_int_equal(o.verdict, LAB_SLOWER);
  assert_true(fabs(o.cand.ratio - 1.05) < 0.005);
  quiet.cand = 0.985; /* a gain, but not one the rule calls so */
  assert_int_equal(judged(quiet, 8).verdict, LAB_SAME);
  quiet.cand = 1;
  assert_int_equal(judged(quiet, 8).verdict, LAB_SAME);
}

static void test_null_comparisons(void **state) {
  (void)state;
  int n_false = 0, n_same = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    machine noisy = {.random = seed * 77, .noise = 0.08, .cand = 1, .hit_chance = 0.05};
    lab_outcome o = judged(noisy, 8 + (int32_t)(seed % 30));
    n_false += o.verdict == LAB_FASTER || o.verdict == LAB_SLOWER;
    n_same += o.verdict == LAB_SAME;
  }
  assert_true(n_false <= 10);
  assert_true(n_same > 0);
}

static void test_drift_cancels(void **state) {
  (void)state;
  /* A batch is 4 % slower than the one before it: seen in one order only, equal
   * kernels would differ by that. */
  machine drifting = {.random = 5, .noise = 0.004, .drift = 0.04, .cand = 1};
  lab_outcome o = judged(drifting, 12);
  assert_int_equal(o.verdict, LAB_SAME);
  assert_true(fabs(o.cand.ratio - 1) < 0.005);
  machine biased = {.random = 5, .noise = 0.004, .second = 0.06, .cand = 1};
  assert_int_equal(judged(biased, 12).verdict, LAB_SAME);
}

static void test_swapped_arms_give_the_reciprocal(void **state) {
  (void)state;
  static lab_sample samples[SAMPLES_MAX];
  lab_rule rule;
  lab_outcome there, back;
  machine m = {.random = 9, .noise = 0.03, .cand = 0.91, .hit_chance = 0.1};
  assert_int_equal(lab_rule_read(NULL, &rule, NULL), STRATA_OK);
  int32_t n = measure(&m, 14, samples);
  assert_int_equal(lab_stats_judge(samples, n, &rule, &there, NULL), STRATA_OK);
  for (int32_t i = 0; i < n; ++i)
    if (samples[i].pair == LAB_CAND) samples[i].arm = samples[i].arm == LAB_CAND ? LAB_BASE : LAB_CAND;
  assert_int_equal(lab_stats_judge(samples, n, &rule, &back, NULL), STRATA_OK);
  assert_true(fabs(there.cand.ratio * back.cand.ratio - 1) < 1e-12);
}

static void test_disturbed(void **state) {
  (void)state;
  machine hit = {.random = 4, .noise = 0.004, .cand = 0.9, .hit_chance = 0.15};
  lab_outcome o = judged(hit, 20);
  assert_int_equal(o.verdict, LAB_FASTER);
  assert_true(o.n_disturbed > 0);
  assert_true(o.cand.n_pairs < 20);
  hit.random = 5;
  hit.hit_chance = 0.4;
  o = judged(hit, 60);
  assert_int_equal(o.verdict, LAB_NO_VERDICT);
  assert_string_equal(o.reason, "too many disturbed samples");
}

/* A candidate that is fast three times in four is not fast. */
static void test_a_kernel_that_disturbs_itself(void **state) {
  (void)state;
  machine m = {.random = 4, .noise = 0.004, .cand = 0.9, .slow = 1, .slow_of = 4};
  lab_outcome o = judged(m, 40);
  assert_int_equal(o.verdict, LAB_NO_VERDICT);
  assert_string_equal(o.reason, "one kernel is disturbed again and again, the other is not");
  m.slow = 2, m.slow_of = 5; /* a tenth of all samples, but more than a third of its own */
  assert_string_equal(judged(m, 40).reason, "too many disturbed samples");
}

static void test_too_little(void **state) {
  (void)state;
  machine quiet = {.random = 4, .noise = 0.004, .cand = 0.9};
  assert_int_equal(judged(quiet, 3).verdict, LAB_NO_VERDICT);
  machine loud = {.random = 4, .noise = 0.4, .cand = 1.01};
  lab_outcome o = judged(loud, 8);
  assert_int_equal(o.verdict, LAB_NO_VERDICT);
  assert_string_equal(o.reason, "the intervals are too wide to tell");
  lab_rule rule;
  assert_int_equal(lab_rule_read(NULL, &rule, NULL), STRATA_OK);
  assert_false(lab_stats_done(&o, &rule));
  o = judged(quiet, 8);
  assert_true(lab_stats_done(&o, &rule));
  assert_int_equal(lab_stats_judge(NULL, 0, &rule, &o, NULL), STRATA_OK);
  assert_int_equal(o.verdict, LAB_NO_VERDICT);
}

static void test_overall(void **state) {
  (void)state;
  const lab_verdict f = LAB_FASTER, s = LAB_SAME, l = LAB_SLOWER, n = LAB_NO_VERDICT;
  assert_int_equal(lab_stats_overall((lab_verdict[]){f, f}, 2), LAB_FASTER);
  assert_int_equal(lab_stats_overall((lab_verdict[]){f, s}, 2), LAB_SAME);
  assert_int_equal(lab_stats_overall((lab_verdict[]){f, l}, 2), LAB_SLOWER);
  assert_int_equal(lab_stats_overall((lab_verdict[]){n, l}, 2), LAB_SLOWER);
  assert_int_equal(lab_stats_overall((lab_verdict[]){f, n}, 2), LAB_NO_VERDICT);
  assert_int_equal(lab_stats_overall(NULL, 0), LAB_NO_VERDICT);
}

/* ---- rules -------------------------------------------------------------------- */

static void put_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

static void test_rule_files(void **state) {
  (void)state;
  char path[] = "/tmp/strata-rule-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  lab_rule rule, built_in;
  strata_error err;
  assert_int_equal(lab_rule_read(NULL, &built_in, &err), STRATA_OK);
  assert_int_equal(built_in.calls, 36);
  put_file(path, "{\"min_gain\": 0.1, \"min_rounds\": 4, \"calls\": 5}");
  assert_int_equal(lab_rule_read(path, &rule, &err), STRATA_OK);
  assert_true(rule.min_gain == 0.1 && rule.min_rounds == 4 && rule.calls == 5 && rule.narrow == built_in.narrow);
  assert_string_not_equal(rule.sha256, built_in.sha256);
  static const char *const bad[] = {"", "[]", "{", "{\"min_gain\": \"x\"}", "{\"min_gain\": 0}",
                                    "{\"min_rounds\": 4.5}", "{\"speed\": 1}", "{\"calls\": 0}", "{\"calls\": 37}", "{\"max_rounds\": 4}",
                                    "{\"narrow\": 0.01, \"narrow\": 0.02}", "{\"confidence\": 1e999}"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    put_file(path, bad[i]);
    assert_int_equal(lab_rule_read(path, &rule, &err), STRATA_ARG);
    assert_non_null(strstr(err.message, path));
  }
  assert_int_equal(remove(path), 0);
  assert_int_not_equal(lab_rule_read(path, &rule, &err), STRATA_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_faster_slower_same),
      cmocka_unit_test(test_null_comparisons),
      cmocka_unit_test(test_drift_cancels),
      cmocka_unit_test(test_swapped_arms_give_the_reciprocal),
      cmocka_unit_test(test_disturbed),
      cmocka_unit_test(test_a_kernel_that_disturbs_itself),
      cmocka_unit_test(test_too_little),
      cmocka_unit_test(test_overall),
      cmocka_unit_test(test_rule_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
