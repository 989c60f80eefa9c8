/* Caches of every kind, and taking tokens back: f16 and q8 keep the promise that f32
 * keeps (the same bytes for all windows, threads and CPU levels, saved, restored and
 * copied); the kinds do not mix; a rollback leaves the bytes of a session that never
 * saw the tokens. On strata-tiny with the recall prompt, whose 665 tokens pass the
 * indexer's budget (259) and two ends of a page (256, 512). */
#include "engine_test.h"

#define MODEL "models/strata-tiny"

enum { N = 665, KINDS = 3 };

static const char *const kind_names[KINDS] = {"f32", "f16", "q8"};

static struct {
  st_safetensors *golden;
  strata_engine *engine;
  strata_model *model;
  const int32_t *ids;
  outcome want[KINDS]; /* of all tokens in one window */
  char dir[ST_TEST_DIR_BYTES], file[PATH_BYTES];
} fix;

static outcome run_kind(strata_model *model, strata_kv kv, int32_t n, const split *s) {
  strata_session *session = new_session_kv(model, n, n, kv);
  outcome o = feed_all(session, model, fix.ids, n, s);
  strata_session_free(&session);
  return o;
}

/* ---- kinds -------------------------------------------------------------------------- */

static void test_kinds_differ(void **state) {
  (void)state;
  for (int a = 0; a < KINDS; ++a)
    for (int b = 0; b < a; ++b) {
      assert_string_not_equal(fix.want[a].logits, fix.want[b].logits);
      assert_string_not_equal(fix.want[a].state, fix.want[b].state);
    }
}

static void check_kind(strata_kv kv) {
  static const split splits[] = {{"256 256 153", {256, 256, 153}, 3}, {"37 ...", {37}, 1},
                                 {"664 1", {664, 1}, 2}, {"600 1 ...", {600, 1}, 2}};
  static const int32_t threads[] = {1, 2, 7, 3};
  for (int i = 0; i < 4; ++i) {
    char what[96];
    strata_engine *engine = new_engine(NULL, threads[i]);
    strata_model *model = open_model(engine, MODEL);
    outcome got = run_kind(model, kv, N, &splits[i]);
    snprintf(what, sizeof what, "%s, %d threads, as %s", kind_names[kv], threads[i], splits[i].name);
    expect_same(&got, &fix.want[kv], what);
    strata_model_close(&model);
    strata_engine_free(&engine);
  }
}

static void test_f16(void **state) {
  (void)state;
  check_kind(STRATA_KV_F16);
}

static void test_q8(void **state) {
  (void)state;
  check_kind(STRATA_KV_Q8);
}

/* The scalar level is slow and gets few tokens; 300 are sparse at the end. */
static void test_levels(void **state) {
  (void)state;
  for (int32_t i = 0; i < N_ISA_LEVELS; ++i) {
    const int32_t n = i == 0 ? 12 : 300;
    if (!has_isa(isa_levels[i])) continue;
    strata_engine *engine = new_engine(isa_levels[i], 2);
    strata_model *model = open_model(engine, MODEL);
    for (int kv = STRATA_KV_F16; kv <= STRATA_KV_Q8; ++kv) {
      char what[64];
      outcome want = run_kind(fix.model, (strata_kv)kv, n, NULL);
      outcome got = run_kind(model, (strata_kv)kv, n, &(split){"5 7 ...", {5, 7}, 2});
      snprintf(what, sizeof what, "%s at %s", kind_names[kv], isa_levels[i]);
      expect_same(&got, &want, what);
    }
    strata_model_close(&model);
    strata_engine_free(&engine);
  }
}

static void test_save_and_copy(void **state) {
  enum { AT = 514 };
  strata_error err;
  (void)state;
  for (int kv = 0; kv < KINDS; ++kv) {
    strata_session *session = new_session_kv(fix.model, N, 512, (strata_kv)kv);
    strata_session *restored = new_session_kv(fix.model, N, 100, (strata_kv)kv);
    strata_session *copy = new_session_kv(fix.model, N, 512, (strata_kv)kv);
    feed(session, fix.ids, AT);
    must(strata_session_save(session, fix.file, &err), &err);
    must(strata_session_restore(restored, fix.file, &err), &err);
    must(strata_session_copy(copy, session, &err), &err);
    outcome want = feed_all(session, fix.model, fix.ids + AT, N - AT, NULL);
    outcome got = feed_all(restored, fix.model, fix.ids + AT, N - AT, NULL);
    expect_same(&got, &want, "restored");
    got = feed_all(copy, fix.model, fix.ids + AT, N - AT, NULL);
    expect_same(&got, &want, "copied");
    assert_string_equal(want.state, fix.want[kv].state);
    strata_session_free(&session);
    strata_session_free(&restored);
    strata_session_free(&copy);
  }
}

/* A state of one kind does not go into a session of another. */
static void test_kinds_do_not_mix(void **state) {
  strata_session *q8 = new_session_kv(fix.model, 50, 0, STRATA_KV_Q8);
  strata_session *f16 = new_session_kv(fix.model, 50, 0, STRATA_KV_F16);
  char before[HEX];
  strata_error err;
  (void)state;
  feed(q8, fix.ids, 40);
  feed(f16, fix.ids, 30);
  strata_session_state_sha256(f16, before);
  must(strata_session_save(q8, fix.file, &err), &err);
  st_test_expect_error(strata_session_restore(f16, fix.file, &err), &err, STRATA_STATE, fix.file, "q8");
  st_test_expect_error(strata_session_copy(f16, q8, &err), &err, STRATA_STATE, "q8", "f16");
  expect_state(f16, before, "two refused states of another kind");
  strata_session_free(&q8);
  strata_session_free(&f16);
}

/* Long enough that pages come in slabs (behind 4 MiB, 2048 tokens of f32). */
static void test_slabs(void **state) {
  enum { LONG = 2400, AT = 2300 };
  static int32_t ids[LONG];
  strata_session *whole = new_session(fix.model, LONG, 512), *cut = new_session(fix.model, 3000, 100);
  char want[HEX];
  strata_error err;
  (void)state;
  for (int32_t i = 0; i < LONG; ++i) ids[i] = fix.ids[i * 7 % N];
  feed(whole, ids, LONG);
  strata_session_state_sha256(whole, want);
  feed(cut, ids, AT);
  must(strata_session_save(cut, fix.file, &err), &err);
  strata_session_free(&cut);
  cut = new_session(fix.model, LONG, 37);
  must(strata_session_restore(cut, fix.file, &err), &err);
  feed(cut, ids + AT, LONG - AT);
  expect_state(cut, want, "a long sequence, saved and cut otherwise");
  strata_session_reset(whole);
  feed(whole, ids, 10);
  strata_session_reset(cut);
  feed(cut, ids, 10);
  strata_session_state_sha256(whole, want);
  expect_state(cut, want, "a short one in its place");
  strata_session_free(&whole);
  strata_session_free(&cut);
}

/* ---- rollback ------------------------------------------------------------------------ */

enum { DRAFTS = 9 };

/* Feeds AT tokens, marks, feeds drafts (wrong ids) after `kept` right ones, takes the
 * wrong ones back, and goes on. Everything must be as if they had never been. */
static void check_rollback(strata_kv kv, int32_t at, int32_t kept, const split *s) {
  const size_t row_bytes = (size_t)vocabulary(fix.model) * sizeof(float);
  const int32_t go_on = 30;
  int32_t drafted[DRAFTS];
  strata_session *session = new_session_kv(fix.model, N, 64, kv);
  strata_session *never = new_session_kv(fix.model, N, 512, kv);
  char want[HEX], what[96];
  strata_error err;
  snprintf(what, sizeof what, "%s at %d, %d of %d kept, %s", kind_names[kv], at, kept, DRAFTS, s->name);
  for (int32_t i = 0; i < DRAFTS; ++i) drafted[i] = i < kept ? fix.ids[at + i] : 17 * i + 5;
  if (at) feed(session, fix.ids, at);
  if (at + kept) feed(never, fix.ids, at + kept);
  must(strata_session_checkpoint(session, &err), &err);
  must(strata_session_feed(session, drafted, DRAFTS,
                           &(strata_feed_options){.windows = s->windows, .n_windows = s->n}, &err), &err);
  must(strata_session_rollback(session, DRAFTS - kept, &err), &err);
  assert_int_equal(strata_session_position(session), at + kept);
  strata_session_state_sha256(never, want);
  expect_state(session, want, what);
  if (at + kept)
    assert_memory_equal(strata_session_logits(session), strata_session_logits(never), row_bytes);
  else
    assert_null(strata_session_logits(session));
  outcome expected = feed_all(never, fix.model, fix.ids + at + kept, go_on, NULL);
  outcome got = feed_all(session, fix.model, fix.ids + at + kept, go_on, &(split){"7 ...", {7}, 1});
  expect_same(&got, &expected, what);
  strata_session_free(&session);
  strata_session_free(&never);
}

/* Across the start, the budget, ends of blocks and of pages, at odd and even places
 * (the gated delta rule works in pairs). */
static void test_rollback(void **state) {
  static const int32_t places[] = {0, 5, 252, 257, 508};
  static const split splits[] = {{"one by one", {1}, 1}, {"at once", {DRAFTS}, 1}, {"2 5 2", {2, 5, 2}, 3}};
  (void)state;
  for (size_t i = 0; i < sizeof places / sizeof *places; ++i)
    for (int32_t kept = 0; kept < DRAFTS; kept += i < 1 ? 1 : 3)
      check_rollback((strata_kv)((i + (size_t)kept) % KINDS), places[i], kept, &splits[(i + (size_t)kept) % 3]);
}

/* One checkpoint serves many rollbacks, and a later one replaces it. */
static void test_rollback_again(void **state) {
  strata_session *session = new_session(fix.model, 400, 50);
  char at_300[HEX], at_310[HEX];
  strata_error err;
  (void)state;
  feed(session, fix.ids, 300);
  strata_session_state_sha256(session, at_300);
  must(strata_session_checkpoint(session, &err), &err);
  for (int32_t round = 0; round < 3; ++round) {
    feed(session, fix.ids + 300, 10);
    strata_session_state_sha256(session, at_310);
    feed(session, fix.ids + round, 5 * round + 1);
    must(strata_session_rollback(session, 5 * round + 1, &err), &err);
    expect_state(session, at_310, "back by a few");
    must(strata_session_rollback(session, 0, &err), &err);
    expect_state(session, at_310, "back by none");
    must(strata_session_rollback(session, 10, &err), &err);
    expect_state(session, at_300, "back by all");
  }
  feed(session, fix.ids + 300, 10);
  must(strata_session_checkpoint(session, &err), &err);
  feed(session, fix.ids, 20);
  must(strata_session_rollback(session, 20, &err), &err);
  expect_state(session, at_310, "back to a later checkpoint");
  strata_session_free(&session);
}

static void test_rollback_refused(void **state) {
  strata_session *session = new_session(fix.model, 100, 0), *other = new_session(fix.model, 100, 0);
  char before[HEX];
  strata_error err;
  (void)state;
  feed(session, fix.ids, 20);
  feed(other, fix.ids, 10);
  st_test_expect_error(strata_session_rollback(session, 1, &err), &err, STRATA_STATE, "checkpoint", NULL);
  must(strata_session_checkpoint(session, &err), &err);
  feed(session, fix.ids, 5);
  strata_session_state_sha256(session, before);
  st_test_expect_error(strata_session_rollback(session, 6, &err), &err, STRATA_ARG, "6", "5");
  st_test_expect_error(strata_session_rollback(session, -1, &err), &err, STRATA_ARG, "-1", "5");
  expect_state(session, before, "two refused rollbacks");
  must(strata_session_copy(session, other, &err), &err);
  st_test_expect_error(strata_session_rollback(session, 0, &err), &err, STRATA_STATE, "checkpoint", NULL);
  must(strata_session_checkpoint(session, &err), &err);
  strata_session_reset(session);
  st_test_expect_error(strata_session_rollback(session, 0, &err), &err, STRATA_STATE, "checkpoint", NULL);
  strata_session_free(&session);
  strata_session_free(&other);
}

static bool stop_after_first(void *user, int32_t pos, int32_t n, const float *logits) {
  (void)user, (void)pos, (void)n, (void)logits;
  return false;
}

/* What a stopped feed left can be taken back too. */
static void test_rollback_of_a_stopped_feed(void **state) {
  strata_session *session = new_session(fix.model, 100, 8);
  char before[HEX];
  strata_error err;
  (void)state;
  feed(session, fix.ids, 21);
  strata_session_state_sha256(session, before);
  must(strata_session_checkpoint(session, &err), &err);
  assert_int_equal(strata_session_feed(session, fix.ids, 30,
                                       &(strata_feed_options){.on_window = stop_after_first}, &err),
                   STRATA_CANCELLED);
  assert_int_equal(strata_session_position(session), 29);
  must(strata_session_rollback(session, 8, &err), &err);
  expect_state(session, before, "back to before a stopped feed");
  strata_session_free(&session);
}

/* ---- fixture -------------------------------------------------------------------------- */

static int set_up(void **state) {
  int32_t n;
  (void)state;
  fix.golden = open_golden();
  fix.ids = golden_ids(fix.golden, "recall.ids", &n);
  assert_int_equal(n, N);
  fix.engine = new_engine(NULL, 2);
  fix.model = open_model(fix.engine, MODEL);
  for (int kv = 0; kv < KINDS; ++kv) fix.want[kv] = run_kind(fix.model, (strata_kv)kv, N, NULL);
  st_test_dir_new(fix.dir);
  path_in(fix.file, fix.dir, "state");
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  st_test_dir_remove(fix.dir);
  strata_model_close(&fix.model);
  strata_engine_free(&fix.engine);
  st_safetensors_close(&fix.golden);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kinds_differ),    cmocka_unit_test(test_f16),
      cmocka_unit_test(test_q8),              cmocka_unit_test(test_levels),
      cmocka_unit_test(test_save_and_copy),   cmocka_unit_test(test_kinds_do_not_mix),
      cmocka_unit_test(test_slabs),
      cmocka_unit_test(test_rollback),        cmocka_unit_test(test_rollback_again),
      cmocka_unit_test(test_rollback_refused), cmocka_unit_test(test_rollback_of_a_stopped_feed),
  };
  return cmocka_run_group_tests_name("cache", tests, set_up, tear_down);
}
