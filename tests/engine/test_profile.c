/* The profile of a model: its sums hold together, it counts what the session's own
 * profile counts, and almost all of a forward pass is in its rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab_profile.h"

enum { PROMPT = 1200, WINDOW = 512, DECODE = 5 };

static strata_error err;
static strata_engine *engine;
static strata_model *model;
static int32_t ids[PROMPT];

static void must(strata_status status) {
  if (status != STRATA_OK) fail_msg("%s", err.message);
}

/* Any rates do: no speed is looked at. */
static lab_ceilings some_ceilings(void) {
  lab_ceilings c = {.level = st_cpu_best(), .n_threads = 2, .all.flops_per_s = 1e11};
  for (int m = 0; m < LAB_MEMORIES; ++m) {
    c.all.capacity[m] = m == LAB_DRAM ? INT64_MAX : (int64_t)1 << (16 + 4 * m);
    for (int i = 0; i < ST_TRAFFICS; ++i) c.all.bytes_per_s[m][i] = 1e11 / (1 << m);
  }
  return c;
}

static void check_sums(const lab_profile_phase *p) {
  double seconds = 0, floor_s = 0;
  for (int32_t i = 0; i < p->n_rows; ++i) {
    seconds += p->rows[i].seconds;
    floor_s += p->rows[i].floor_s;
    assert_true(p->rows[i].calls > 0 && p->rows[i].seconds > 0);
    for (int32_t k = 0; k < i; ++k) assert_ptr_not_equal(p->rows[k].kernel, p->rows[i].kernel);
  }
  assert_true(fabs(seconds - p->kernels_s) <= 1e-9 * seconds);
  assert_true(fabs(floor_s - p->floor_s) <= 1e-9 * floor_s);
  assert_true(0 < p->kernels_s && p->kernels_s <= p->lists_s);
  assert_true(p->lists_s <= p->passes_s && p->passes_s <= p->phase_s);
  assert_true(p->working_set_bytes > 1e6 && p->read_bytes_per_s > 0 && p->update_bytes_per_s > 0);
}

/* The row of an op; a phase of this model runs one kernel for each. */
static const lab_profile_row *row_of(const lab_profile_phase *p, const char *op) {
  for (int32_t i = 0; i < p->n_rows; ++i)
    if (strcmp(p->rows[i].kernel->op, op) == 0) return &p->rows[i];
  fail_msg("%s is not in the profile", op);
  return NULL;
}

static void check_counts(const lab_profile_phase *p, const strata_profile *counted) {
  assert_int_equal(p->n_rows, counted->n_rows);
  for (int32_t i = 0; i < counted->n_rows; ++i) {
    const strata_profile_row *want = &counted->rows[i];
    const lab_profile_row *row = row_of(p, want->op);
    assert_string_equal(row->kernel->variant, want->variant);
    assert_int_equal(row->calls, want->calls);
    assert_true(row->work.flops == want->flops);
    assert_true(row->work.weight_bytes + row->work.state_bytes == want->bytes);
  }
}

static void test_profile(void **state) {
  const lab_ceilings ceilings = some_ceilings();
  const lab_profile_request request = {.ids = ids, .n_ids = PROMPT, .n_decode = DECODE, .window = WINDOW};
  const strata_session_options options = {.window = WINDOW};
  lab_profile *p = malloc(sizeof *p);
  strata_session *session;
  strata_profile counted;
  (void)state;
  assert_non_null(p);
  must(lab_profile_run(model, &ceilings, &request, p, &err));
  assert_int_equal(p->prefill.n_tokens, PROMPT);
  assert_int_equal(p->prefill.n_passes, 3);
  assert_int_equal(p->decode.n_tokens, DECODE);
  assert_int_equal(p->decode.n_passes, DECODE);
  check_sums(&p->prefill);
  check_sums(&p->decode);
  /* Long kernels: what is in no row is small beside them on any machine. */
  if (p->prefill.kernels_s < 0.97 * p->prefill.passes_s)
    fail_msg("the kernels are %.3f of the forward passes", p->prefill.kernels_s / p->prefill.passes_s);

  must(strata_session_new(model, &options, &session, &err));
  strata_session_profile(session, true);
  must(strata_session_feed(session, ids, PROMPT, NULL, &err));
  strata_session_get_profile(session, &counted);
  check_counts(&p->prefill, &counted);
  strata_session_free(&session);
  free(p);
}

static bool stop(void *user) { return ++*(int *)user < 2; }

static void test_stopping(void **state) {
  int n = 0;
  const lab_ceilings ceilings = some_ceilings();
  const lab_profile_request request = {.ids = ids, .n_ids = PROMPT, .n_decode = DECODE, .window = WINDOW,
                                       .go_on = stop, .user = &n};
  lab_profile *p = malloc(sizeof *p);
  (void)state;
  assert_non_null(p);
  assert_int_equal(lab_profile_run(model, &ceilings, &request, p, &err), STRATA_CANCELLED);
  free(p);
}

static void test_bad_ids(void **state) {
  const int32_t bad = -1;
  const lab_ceilings ceilings = some_ceilings();
  lab_profile *p = malloc(sizeof *p);
  (void)state;
  assert_non_null(p);
  assert_int_equal(lab_profile_run(model, &ceilings, &(lab_profile_request){.ids = &bad, .n_ids = 1, .window = 4},
                                   p, &err), STRATA_ARG);
  assert_int_equal(lab_profile_run(model, &ceilings, &(lab_profile_request){.ids = &bad, .window = 4}, p, &err),
                   STRATA_ARG);
  free(p);
}

static int open_model(void **state) {
  strata_model_info info;
  (void)state;
  if (strata_engine_new(&(strata_engine_options){.n_threads = 2}, &engine, &err) != STRATA_OK ||
      strata_model_open(engine, "models/strata-tiny", &model, &err) != STRATA_OK)
    return 1;
  strata_model_get_info(model, &info);
  for (int32_t i = 0; i < PROMPT; ++i) ids[i] = (i * 37 + 5) % info.vocab_size;
  return 0;
}

static int close_model(void **state) {
  (void)state;
  strata_model_close(&model);
  strata_engine_free(&engine);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_profile),
      cmocka_unit_test(test_stopping),
      cmocka_unit_test(test_bad_ids),
  };
  return cmocka_run_group_tests_name("profile", tests, open_model, close_model);
}
