/* The sampler: exact ids for fixed seeds, the share that each id gets, and what
 * must not change a pick. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <strata/strata.h>

#include "core/st_mem.h"

enum { SMALL = 8, LARGE = 50000 };

/* exp of these is 1, 1/2, 1/4, ... within rounding. */
static float halves(int32_t i) { return -0.693147180559945f * (float)i; }

static strata_sampler *make(strata_sampler_options options) {
  strata_sampler *s;
  strata_error err;
  if (options.top_p == 0) options.top_p = 1;
  if (strata_sampler_new(&options, NULL, &s, &err) != STRATA_OK) fail_msg("%s", err.message);
  return s;
}

static int32_t pick(strata_sampler *s, const float *logits, int32_t n) {
  strata_error err;
  int32_t id;
  if (strata_sampler_pick(s, logits, n, &id, &err) != STRATA_OK) fail_msg("%s", err.message);
  return id;
}

static void fill_halves(float logits[SMALL]) {
  for (int32_t i = 0; i < SMALL; i++) logits[i] = halves((i * 3) % SMALL);
}

/* Pseudo-random logits in [-8, 8) with many ties. */
static float *many_logits(int32_t n) {
  float *logits = malloc((size_t)n * sizeof *logits);
  uint32_t x = 1;
  for (int32_t i = 0; i < n; i++) {
    x = x * 1664525u + 1013904223u;
    logits[i] = (float)(x >> 20) / 256.0f - 8.0f;
  }
  return logits;
}

static void test_greedy(void **state) {
  (void)state;
  strata_sampler_options options;
  strata_sampler_options_default(&options);
  strata_sampler *s = make(options);
  const float ties[] = {-INFINITY, 1, 3, 3, -2, 3};
  const float negative[] = {-5, -INFINITY, -4.5f};
  const float zeros[] = {-0.0f, 0.0f};
  assert_int_equal(pick(s, ties, 6), 2);
  assert_int_equal(pick(s, negative, 3), 2);
  assert_int_equal(pick(s, zeros, 2), 0);
  assert_int_equal(pick(s, zeros, 1), 0);
  strata_sampler_free(&s);
  assert_null(s);
  strata_sampler_free(&s);
}

/* Fixed for ever: another platform or a rewrite must give these ids too. */
static void test_exact_ids(void **state) {
  (void)state;
  static const struct {
    strata_sampler_options options;
    int32_t ids[16];
  } CASES[] = {
      {{.temperature = 1, .seed = 0},
       {6, 0, 0, 6, 0, 0, 0, 3, 0, 6, 0, 3, 1, 1, 3, 1}},
      {{.temperature = 1, .seed = 1},
       {2, 3, 6, 0, 0, 3, 6, 1, 0, 3, 0, 3, 0, 1, 0, 0}},
      {{.temperature = 1.5f, .seed = 12345},
       {0, 0, 0, 0, 3, 0, 0, 1, 2, 6, 0, 1, 4, 6, 7, 1}},
      {{.temperature = 1, .top_k = 3, .seed = 2},
       {3, 3, 3, 3, 0, 0, 3, 3, 0, 3, 0, 0, 0, 0, 6, 0}},
      {{.temperature = 2, .top_p = 0.75f, .seed = 3},
       {0, 6, 3, 0, 0, 3, 0, 1, 3, 1, 6, 6, 3, 0, 6, 6}},
      {{.temperature = 1, .min_p = 0.1f, .seed = 4},
       {0, 6, 6, 0, 0, 3, 6, 0, 0, 3, 3, 3, 3, 3, 6, 3}},
      {{.temperature = 3, .top_k = 6, .top_p = 0.9f, .min_p = 0.4f, .seed = 18446744073709551615u},
       {1, 1, 0, 3, 6, 6, 1, 0, 6, 0, 0, 6, 0, 1, 0, 6}},
  };
  float logits[SMALL];
  fill_halves(logits);
  for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
    strata_sampler *s = make(CASES[i].options);
    for (int k = 0; k < 16; k++) {
      int32_t id = pick(s, logits, SMALL);
      if (id != CASES[i].ids[k]) fail_msg("case %zu, pick %d: id %d", i, k, id);
    }
    strata_sampler_free(&s);
  }
}

/* Each id must come as often as its probability says, within 5 standard
 * deviations of the count. */
static void expect_shares(strata_sampler_options options, const double shares[SMALL]) {
  enum { DRAWS = 100000 };
  float logits[SMALL];
  int counts[SMALL] = {0};
  fill_halves(logits);
  strata_sampler *s = make(options);
  for (int i = 0; i < DRAWS; i++) counts[pick(s, logits, SMALL)]++;
  for (int32_t i = 0; i < SMALL; i++) {
    double p = shares[(i * 3) % SMALL], sd = sqrt(DRAWS * p * (1 - p));
    if (fabs(counts[i] - DRAWS * p) > 5 * sd)
      fail_msg("id %d: %d of %d, %g expected", i, counts[i], DRAWS, DRAWS * p);
  }
  strata_sampler_free(&s);
}

/* shares[r] is that of the id of rank r: its logit is -r ln 2. */
static void test_shares(void **state) {
  (void)state;
  double all[SMALL], warm[SMALL], total = 0, warm_total = 0;
  for (int r = 0; r < SMALL; r++) {
    all[r] = pow(0.5, r);
    warm[r] = pow(0.5, r / 2.0);
    total += all[r];
    warm_total += warm[r];
  }
  for (int r = 0; r < SMALL; r++) {
    all[r] /= total;
    warm[r] /= warm_total;
  }
  const double one[SMALL] = {1}, two[SMALL] = {2 / 3.0, 1 / 3.0};
  const double three[SMALL] = {4 / 7.0, 2 / 7.0, 1 / 7.0};
  expect_shares((strata_sampler_options){.temperature = 1, .seed = 5}, all);
  expect_shares((strata_sampler_options){.temperature = 2, .seed = 6}, warm);
  expect_shares((strata_sampler_options){.temperature = 1, .top_k = 3, .seed = 7}, three);
  expect_shares((strata_sampler_options){.temperature = 1, .top_k = 1, .seed = 8}, one);
  expect_shares((strata_sampler_options){.temperature = 1, .top_p = 0.8f, .seed = 9}, three);
  expect_shares((strata_sampler_options){.temperature = 1, .top_p = 0.7f, .seed = 10}, two);
  expect_shares((strata_sampler_options){.temperature = 1, .top_p = 1e-9f, .seed = 11}, one);
  expect_shares((strata_sampler_options){.temperature = 1, .min_p = 0.3f, .seed = 12}, two);
  expect_shares((strata_sampler_options){.temperature = 1, .min_p = 1, .seed = 13}, one);
  /* top-p is a share of what top-k leaves: 4/7 + 2/7 of three reaches 0.8. */
  expect_shares((strata_sampler_options){.temperature = 1, .top_k = 3, .top_p = 0.8f, .seed = 14},
                two);
  /* The temperature comes before top-p and min-p. */
  expect_shares((strata_sampler_options){.temperature = 0.5f, .top_p = 0.8f, .seed = 15},
                (const double[SMALL]){0.8, 0.2});
  expect_shares((strata_sampler_options){.temperature = 0.5f, .min_p = 0.3f, .seed = 16}, one);
}

/* Two samplers that must pick the same, call by call. */
static void expect_same(strata_sampler_options a, strata_sampler_options b, const float *logits_a,
                        const float *logits_b, int32_t n_a, int32_t n_b) {
  strata_sampler *first = make(a), *second = make(b);
  for (int i = 0; i < 60; i++)
    assert_int_equal(pick(first, logits_a, n_a), pick(second, logits_b, n_b));
  strata_sampler_free(&first);
  strata_sampler_free(&second);
}

static void test_invariances(void **state) {
  (void)state;
  enum { N = 2000 };
  float *logits = many_logits(N), *padded = malloc((N + 100) * sizeof *padded);
  float *shifted = malloc(N * sizeof *shifted);
  for (int i = 0; i < N + 100; i++) padded[i] = i < N ? logits[i] : -INFINITY;
  for (int i = 0; i < N; i++) shifted[i] = logits[i] + 64; /* exact in f32 */
  strata_sampler_options plain = {.temperature = 0.9f, .seed = 3}, other = plain;
  other.top_k = N;
  expect_same(plain, other, logits, logits, N, N);
  other.top_k = 0;
  expect_same(plain, other, logits, padded, N, N + 100);
  expect_same(plain, other, logits, shifted, N, N);
  plain.top_k = 40;
  plain.top_p = 0.9f;
  plain.min_p = 0.01f;
  other = plain;
  expect_same(plain, other, logits, padded, N, N + 100);
  expect_same(plain, other, logits, shifted, N, N);
  free(logits);
  free(padded);
  free(shifted);
}

/* top_k = 1 is greedy, and ties among many go to the lower ids. */
static void test_ranking(void **state) {
  (void)state;
  float *logits = many_logits(LARGE);
  strata_sampler *greedy = make((strata_sampler_options){0});
  strata_sampler *first = make((strata_sampler_options){.temperature = 1, .top_k = 1});
  assert_int_equal(pick(first, logits, LARGE), pick(greedy, logits, LARGE));
  for (int i = 0; i < LARGE; i++) logits[i] = 1;
  strata_sampler *third = make((strata_sampler_options){.temperature = 1, .top_k = 3});
  bool seen[3] = {false};
  for (int i = 0; i < 200; i++) {
    int32_t id = pick(third, logits, LARGE);
    assert_in_range(id, 0, 2);
    seen[id] = true;
  }
  assert_true(seen[0] && seen[1] && seen[2]);
  /* At this temperature logits that differ are ties once they are scaled. */
  logits[7] = nextafterf(1, 2);
  strata_sampler *hot = make((strata_sampler_options){.temperature = 3e38f, .top_k = 1});
  assert_int_equal(pick(hot, logits, LARGE), 0);
  strata_sampler_free(&greedy);
  strata_sampler_free(&first);
  strata_sampler_free(&third);
  strata_sampler_free(&hot);
  free(logits);
}

static void test_extremes(void **state) {
  (void)state;
  const float wide[] = {-3e38f, 3e38f, -INFINITY, 0};
  const strata_sampler_options cases[] = {
      {.temperature = 1e-30f}, {.temperature = 1e-45f}, {.temperature = 1},
      {.temperature = 1, .top_k = 2}, {.temperature = 1, .top_p = 0.5f},
      {.temperature = 1, .min_p = 0.5f}, {.temperature = 1, .top_k = INT32_MAX}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    strata_sampler *s = make(cases[i]);
    for (int k = 0; k < 50; k++) assert_int_equal(pick(s, wide, 4), 1);
    strata_sampler_free(&s);
  }
}

static void test_bad_logits(void **state) {
  (void)state;
  const float nan_at_2[] = {0, 1, NAN, 3}, infinity_at_1[] = {0, INFINITY};
  const float none[] = {-INFINITY, -INFINITY};
  const float fine[] = {0, 1, 2, 3};
  for (int hot = 0; hot < 2; hot++) {
    strata_sampler_options options = {.temperature = (float)hot, .seed = 9};
    strata_sampler *s = make(options), *untouched = make(options);
    strata_error err;
    int32_t id = 7;
    assert_int_equal(strata_sampler_pick(s, nan_at_2, 4, &id, &err), STRATA_NUMERICS);
    assert_non_null(strstr(err.message, "id 2 is NaN"));
    assert_int_equal(id, 0);
    assert_int_equal(strata_sampler_pick(s, infinity_at_1, 2, &id, &err), STRATA_NUMERICS);
    assert_non_null(strstr(err.message, "id 1"));
    assert_int_equal(strata_sampler_pick(s, none, 2, &id, &err), STRATA_NUMERICS);
    assert_int_equal(strata_sampler_pick(s, fine, 0, &id, &err), STRATA_ARG);
    assert_int_equal(strata_sampler_pick(s, NULL, 4, &id, NULL), STRATA_ARG);
    /* Failures use up no random numbers. */
    for (int i = 0; i < 20; i++) assert_int_equal(pick(s, fine, 4), pick(untouched, fine, 4));
    strata_sampler_free(&s);
    strata_sampler_free(&untouched);
  }
}

static void test_bad_options(void **state) {
  (void)state;
  static const struct {
    strata_sampler_options options;
    const char *named;
  } CASES[] = {
      {{.temperature = -1, .top_p = 1}, "temperature"},
      {{.temperature = NAN, .top_p = 1}, "temperature"},
      {{.temperature = INFINITY, .top_p = 1}, "temperature"},
      {{.top_k = -1, .top_p = 1}, "top_k"},
      {{.top_p = 0}, "top_p"},
      {{.top_p = 1.5f}, "top_p"},
      {{.top_p = NAN}, "top_p"},
      {{.top_p = 1, .min_p = -0.1f}, "min_p"},
      {{.top_p = 1, .min_p = 1.1f}, "min_p"},
      {{.top_p = 1, .min_p = NAN}, "min_p"},
  };
  for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
    strata_sampler *s;
    strata_error err;
    assert_int_equal(strata_sampler_new(&CASES[i].options, NULL, &s, &err), STRATA_ARG);
    assert_null(s);
    assert_non_null(strstr(err.message, CASES[i].named));
  }
}

/* Ids past the tokenizer's are never picked, however high their logits; but a
 * NaN among them is still one. */
static void test_unknown_ids(void **state) {
  (void)state;
  enum { N = 4200 };
  strata_tokenizer *t;
  strata_error err;
  float *logits = many_logits(N);
  assert_int_equal(strata_tokenizer_open("models/strata-tiny", &t, &err), STRATA_OK);
  int32_t limit = strata_tokenizer_id_limit(t);
  for (int32_t i = limit; i < N; i++) logits[i] = 100;
  const strata_sampler_options cases[] = {
      {.top_p = 1}, {.temperature = 5, .top_p = 1}, {.temperature = 1, .top_p = 1, .top_k = 5},
      {.temperature = 1, .top_p = 0.9f}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    strata_sampler *s;
    int32_t id;
    assert_int_equal(strata_sampler_new(&cases[i], t, &s, &err), STRATA_OK);
    for (int k = 0; k < 100; k++) assert_in_range(pick(s, logits, N), 0, limit - 1);
    logits[limit + 1] = NAN;
    assert_int_equal(strata_sampler_pick(s, logits, N, &id, &err), STRATA_NUMERICS);
    logits[limit + 1] = 100;
    strata_sampler_free(&s);
  }
  strata_tokenizer_close(&t);
  free(logits);
}

static void test_failing_memory(void **state) {
  (void)state;
  const float logits[] = {1, 2, 3};
  const strata_sampler_options options = {.temperature = 1, .top_p = 0.5f, .top_k = 2};
  strata_tokenizer *t;
  strata_error err;
  int failures = 0;
  assert_int_equal(strata_tokenizer_open("models/strata-tiny", &t, &err), STRATA_OK);
  for (;; failures++) {
    strata_sampler *s;
    int32_t id;
    st_mem_fail_at(failures);
    strata_status status = strata_sampler_new(&options, t, &s, &err);
    if (status == STRATA_OK) status = strata_sampler_pick(s, logits, 3, &id, &err);
    st_mem_fail_at(-1);
    strata_sampler_free(&s);
    if (status == STRATA_OK) break;
    assert_int_equal(status, STRATA_NOMEM);
  }
  assert_int_equal(failures, 5);
  strata_tokenizer_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_greedy),       cmocka_unit_test(test_exact_ids),
      cmocka_unit_test(test_shares),       cmocka_unit_test(test_invariances),
      cmocka_unit_test(test_ranking),      cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_bad_logits),   cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_unknown_ids),  cmocka_unit_test(test_failing_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
