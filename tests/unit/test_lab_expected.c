/* What timed batches must leave: whose bytes, in which sets, and that a single wrong one
 * is noticed. The sets are cases in this process's memory, with nothing run on them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "gdn_post/gdn_post.h"
#include "lab/lab_expected.h"

enum { SETS = 5, STAGES = 2, CALLS = 36, LAST = (CALLS - 1) % SETS };

static lab_case cases[SETS][STAGES];
static int32_t n_asked[SETS][STAGES];
static bool fails;

static strata_status case_at(void *self, int32_t set, int32_t stage, const lab_case **out, strata_error *err) {
  assert_ptr_equal(self, cases);
  if (fails) ST_FAIL(err, DEVICE, "cases: none");
  ++n_asked[set][stage];
  *out = &cases[set][stage];
  return STRATA_OK;
}

static lab_expected expected_of(bool fast_first, bool fast_second) {
  return (lab_expected){.sets = {cases, case_at}, .n_sets = SETS, .n_stages = STAGES, .n_calls = CALLS, .fast = {fast_first, fast_second}};
}

static int set_up(void **state) {
  static const stk_gdn_post_args shape = {.n_tokens = 2, .v_heads = 3, .v_dim = 32, .eps = 1e-6f, .outputs = STK_POST_F32};
  (void)state;
  for (int32_t set = 0; set < SETS; ++set)
    for (int32_t s = 0; s < STAGES; ++s) {
      const lab_fill fill = {.seed = (uint64_t)(10 * set + s), .poison = 0x5a, .guard = 0x5e};
      if (lab_case_init(&cases[set][s], &stk_gdn_post_op, &shape, fill, NULL) != STRATA_OK) return -1;
    }
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  for (int32_t set = 0; set < SETS; ++set)
    for (int32_t s = 0; s < STAGES; ++s) lab_case_release(&cases[set][s]);
  return 0;
}

static bool check(lab_expected *e, int32_t stage, lab_arm arm) {
  bool same;
  assert_int_equal(lab_expected_check(e, stage, arm, &same, NULL), STRATA_OK);
  return same;
}

static void keep(lab_expected *e, int32_t stage, lab_author who) {
  assert_int_equal(lab_expected_keep(e, stage, who, NULL), STRATA_OK);
}

/* As many checks in a row as there are sets: how many saw something wrong. */
static int32_t n_wrong(lab_expected *e, int32_t stage, lab_arm arm) {
  int32_t n = 0;
  for (int32_t i = 0; i < SETS; ++i) n += !check(e, stage, arm);
  return n;
}

static void flip(int32_t set, int32_t stage, int32_t tensor, ptrdiff_t at) {
  cases[set][stage].buffers[tensor].data[at] ^= 1;
}

/* The last set is looked at each time, every other one in its turn. */
static void test_sets(void **state) {
  (void)state;
  for (int32_t set = 0; set < SETS; ++set) {
    lab_expected e = expected_of(false, false);
    keep(&e, 0, LAB_BY_BASE);
    assert_int_equal(n_wrong(&e, 0, LAB_CAND), 0);
    flip(set, 0, 3, 7);
    assert_int_equal(n_wrong(&e, 0, LAB_CAND), set == LAST ? SETS : 1);
    flip(set, 0, 3, 7);
    assert_int_equal(n_wrong(&e, 0, LAB_NULL), 0);
  }
}

/* Inputs count, and the bytes before and behind a tensor. */
static void test_places(void **state) {
  (void)state;
  lab_expected e = expected_of(false, false);
  keep(&e, -1, LAB_BY_BASE);
  for (int32_t i = 0; i < cases[LAST][1].n; ++i) {
    const ptrdiff_t n_bytes = (ptrdiff_t)cases[LAST][1].buffers[i].n_bytes, places[] = {-1, 0, n_bytes - 1, n_bytes};
    for (size_t k = 0; k < sizeof places / sizeof *places; ++k) {
      if (n_bytes == 0) continue;
      flip(LAST, 1, i, places[k]);
      assert_false(check(&e, -1, LAB_BASE));
      assert_false(check(&e, 1, LAB_BASE));
      assert_true(check(&e, 0, LAB_BASE)); /* another stage */
      flip(LAST, 1, i, places[k]);
    }
  }
  assert_true(check(&e, -1, LAB_BASE));
}

/* Only the timed stage is fetched. */
static void test_one_stage(void **state) {
  (void)state;
  lab_expected e = expected_of(false, false);
  memset(n_asked, 0, sizeof n_asked);
  keep(&e, 1, LAB_BY_BASE);
  assert_true(check(&e, 1, LAB_CAND));
  for (int32_t set = 0; set < SETS; ++set) {
    assert_int_equal(n_asked[set][0], 0);
    assert_int_equal(n_asked[set][1], set == LAST || set == 0 ? 2 : 1);
  }
}

/* A fast candidate owes its own bytes, and so do the stages behind it, in a chain. */
static void test_fast(void **state) {
  (void)state;
  lab_expected e = expected_of(true, false);
  keep(&e, -1, LAB_BY_BASE);
  for (int32_t set = 0; set < SETS; ++set)
    for (int32_t s = 0; s < STAGES; ++s) flip(set, s, 3, 1);
  keep(&e, -1, LAB_BY_FAST_CAND);
  assert_int_equal(n_wrong(&e, -1, LAB_CAND), 0);
  assert_int_equal(n_wrong(&e, -1, LAB_BASE), SETS);
  assert_int_equal(n_wrong(&e, -1, LAB_NULL), SETS);
  /* By itself the second stage is exact: base's bytes. */
  assert_int_equal(n_wrong(&e, 0, LAB_CAND), 0);
  assert_int_equal(n_wrong(&e, 1, LAB_CAND), SETS);
  flip(LAST, 0, 3, 0); /* not repeatable */
  assert_int_equal(n_wrong(&e, -1, LAB_CAND), SETS);
  flip(LAST, 0, 3, 0);
  for (int32_t set = 0; set < SETS; ++set)
    for (int32_t s = 0; s < STAGES; ++s) flip(set, s, 3, 1);
  assert_int_equal(n_wrong(&e, -1, LAB_BASE), 0);

  /* A fast second stage does not excuse the first one. */
  e = expected_of(false, true);
  keep(&e, -1, LAB_BY_BASE);
  keep(&e, -1, LAB_BY_FAST_CAND);
  flip(LAST, 0, 3, 1);
  keep(&e, -1, LAB_BY_FAST_CAND);
  assert_int_equal(n_wrong(&e, -1, LAB_CAND), SETS);
  flip(LAST, 0, 3, 1);
}

static void test_failure(void **state) {
  (void)state;
  lab_expected e = expected_of(false, false);
  bool same;
  fails = true;
  assert_int_equal(lab_expected_keep(&e, -1, LAB_BY_BASE, NULL), STRATA_DEVICE);
  assert_int_equal(lab_expected_check(&e, -1, LAB_CAND, &same, NULL), STRATA_DEVICE);
  fails = false;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sets), cmocka_unit_test(test_places), cmocka_unit_test(test_one_stage),
      cmocka_unit_test(test_fast), cmocka_unit_test(test_failure),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
