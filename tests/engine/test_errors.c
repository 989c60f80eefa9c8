/* What the engine does when something is wrong: numbers that are not finite, bad
 * arguments, a cancelled feed, memory that runs out; and whether the memory plan
 * tells the truth. */
#include "engine_test.h"

#include <dirent.h>
#include <math.h>

#include "core/st_mem.h"
#include "model/st_session.h"
#include "os/st_process.h"

enum { N = 40, MINI_VOCAB = 97, MARKED_ID = 7 };

static struct {
  strata_engine *engine;
  strata_model *model; /* an undamaged miniature model */
  int32_t ids[N];      /* without MARKED_ID and EOS */
  char dir[ST_TEST_DIR_BYTES];
} fix;

/* ---- numbers that are not finite -------------------------------------------------- */

/* One element of one tensor of the miniature model is replaced. */
typedef struct poison {
  const char *tensor; /* without "model." */
  int64_t element;
  float value;
  const char *block; /* what the message has to say */
  int32_t position;  /* of the first token that sees it */
} poison;

typedef struct poisoning {
  const poison *poison;
  bool done;
} poisoning;

static void apply_poison(st_test_tensor *t, void *user) {
  poisoning *to_do = user;
  const poison *p = to_do->poison;
  const char *name = strncmp(t->name, "model.", 6) == 0 ? t->name + 6 : t->name;
  if (strcmp(name, p->tensor) != 0) return;
  assert_int_equal(t->dtype, ST_DTYPE_F32);
  assert_true((size_t)p->element < t->n_bytes / sizeof(float));
  memcpy(t->data + p->element * (int64_t)sizeof(float), &p->value, sizeof(float));
  to_do->done = true;
}

/* The miniature model is GDN, n-gram embedding and GDN, QSA, n-gram embedding and
 * GDN. Experts in front of an n-gram embedding cannot be told from it. */
#define GDN(l) "layer " #l " (gated delta net)"
#define QSA(l) "layer " #l " (sparse attention)"
#define EXPERTS(l) "layer " #l " (experts)"
#define NGRAM(l) "layer " #l " (n-gram embedding, or the experts before it)"
#define HEAD "layer 3 (experts) or the head"

static const poison poisons[] = {
    {"layers.0.linear_attn.in_proj_qkv.weight", 5, NAN, GDN(0), 0},
    {"layers.0.linear_attn.in_proj_qkv.weight", 40 * 300, INFINITY, GDN(0), 0},
    {"layers.0.linear_attn.in_proj_a.weight", 41, NAN, GDN(0), 0},
    {"layers.0.linear_attn.in_proj_b.weight", 3, NAN, GDN(0), 0},
    {"layers.1.linear_attn.in_proj_z.weight", 77, NAN, GDN(1), 0},
    {"layers.3.linear_attn.out_proj.weight", 900, -INFINITY, GDN(3), 0},
    {"layers.1.linear_attn.conv1d.weight", 9, NAN, GDN(1), 0},
    {"layers.0.linear_attn.A_log", 1, NAN, GDN(0), 0},
    {"layers.3.linear_attn.dt_bias", 2, NAN, GDN(3), 0},
    {"layers.3.linear_attn.norm.weight", 11, INFINITY, GDN(3), 0},
    {"layers.0.attn_hyper_connection.hc_norm.weight", 60, NAN, GDN(0), 0},
    {"layers.2.attn_hyper_connection.input_mix_weight_down.weight", 60, NAN, QSA(2), 0},
    {"layers.2.attn_hyper_connection.block_inject_weight.weight", 1, NAN, QSA(2), 0},
    {"layers.2.self_attn.q_proj.weight", 4000, NAN, QSA(2), 0},
    {"layers.2.self_attn.k_proj.weight", 33, NAN, QSA(2), 0},
    {"layers.2.self_attn.v_proj.weight", 4001, INFINITY, QSA(2), 0},
    {"layers.2.self_attn.o_proj.weight", 2, NAN, QSA(2), 0},
    {"layers.2.self_attn.q_norm.weight", 50, NAN, QSA(2), 0},
    {"layers.2.self_attn.k_norm.weight", 95, NAN, QSA(2), 0},
    {"layers.1.mlp.shared_expert_gate.weight", 8, NAN, EXPERTS(1), 0},
    {"layers.1.mlp.shared_expert.up_proj.weight", 8, NAN, EXPERTS(1), 0},
    {"layers.1.mlp.shared_expert.down_proj.weight", 8, INFINITY, EXPERTS(1), 0},
    {"layers.0.mlp.shared_expert.gate_proj.weight", 8, NAN, NGRAM(1), 0},
    {"layers.1.ple.key_proj.weight", 100, NAN, NGRAM(1), 0},
    {"layers.1.ple.value_proj.weight", 100, INFINITY, NGRAM(1), 0},
    {"layers.3.ple.norm_query.weight", 100, NAN, NGRAM(3), 0},
    {"layers.3.ple.conv1d.weight", 100, NAN, NGRAM(3), 0},
    /* The last tap; the first one, above, is multiplied with the zeros of the start. */
    {"layers.1.ple.conv1d.weight", 4, NAN, NGRAM(1), 0},
    {"embed_tokens.weight", MARKED_ID * 40 + 39, NAN, "the token embedding", 23},
    {"embed_tokens.weight", MARKED_ID * 40, INFINITY, "the token embedding", 23},
    {"layers.3.mlp.shared_expert.up_proj.weight", 3, NAN, HEAD, 39},
    {"hyper_connection_mixer.hc_norm.weight", 3, NAN, HEAD, 39},
    {"lm_head.weight", 40 * 11, NAN, HEAD, 39},
};

/* Weights that only choose: which experts, which blocks. A number that is not
 * finite there must not pass as another choice. */
static const poison choices[] = {
    {"layers.1.mlp.gate.weight", 77, NAN, EXPERTS(1), 0},
    {"layers.2.self_attn.indexer.index_qk_proj.weight", 9, NAN, QSA(2), 14},
    {"layers.2.self_attn.indexer.k_layernorm.weight", 9, NAN, QSA(2), 14},
};

/* A session that failed refuses everything but a reset, and is then as new. */
static void expect_damaged(strata_session *session, const strata_session *good, const char *file) {
  strata_error err;
  char fresh[HEX];
  st_test_expect_error(strata_session_feed(session, fix.ids, 1, NULL, &err), &err, STRATA_STATE,
                       NULL, NULL);
  st_test_expect_error(strata_session_save(session, file, &err), &err, STRATA_STATE, NULL, NULL);
  assert_null(strata_session_logits(session));
  strata_session_state_sha256(good, fresh);
  strata_session_reset(session);
  assert_int_equal(strata_session_position(session), 0);
  expect_state(session, fresh, "a reset after a failure");
}

/* Writes and opens the miniature model with this poison. */
static strata_model *open_poisoned(const poison *p, char dir[ST_TEST_DIR_BYTES]) {
  poisoning to_do = {.poison = p};
  st_test_dir_new(dir);
  st_test_model_write(dir, &(st_test_model_options){.edit_tensor = apply_poison, .user = &to_do});
  if (!to_do.done) fail_msg("no tensor %s", p->tensor);
  return open_model(fix.engine, dir);
}

static void check_poison(const poison *p, int32_t window) {
  char dir[ST_TEST_DIR_BYTES], file[PATH_BYTES], position[32];
  int32_t ids[N];
  strata_error err;
  memcpy(ids, fix.ids, sizeof ids);
  ids[23] = ids[31] = MARKED_ID;
  strata_model *model = open_poisoned(p, dir);
  path_in(file, dir, "state");
  strata_session *session = new_session(model, N, window), *fresh = new_session(model, N, 1);
  snprintf(position, sizeof position, "position %d", p->position);
  strata_status status = strata_session_feed(session, ids, N, NULL, &err);
  if (status == STRATA_OK) fail_msg("%s: %g was not noticed", p->tensor, (double)p->value);
  if (status != STRATA_NUMERICS || !strstr(err.message, p->block) || !strstr(err.message, position))
    fail_msg("%s: status %d, '%s' instead of '%s' and '%s'", p->tensor, status, err.message,
             p->block, position);
  assert_true(strata_session_position(session) <= p->position);
  expect_damaged(session, fresh, file);
  /* With the same weights the same feed fails in the same way once more. */
  st_test_expect_error(strata_session_feed(session, ids, N, NULL, &err), &err, STRATA_NUMERICS,
                       p->block, position);
  strata_session_free(&session);
  strata_session_free(&fresh);
  strata_model_close(&model);
  st_test_dir_remove(dir);
}

static void test_not_finite(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof poisons / sizeof *poisons; ++i) {
    check_poison(&poisons[i], 0);
    check_poison(&poisons[i], 7);
  }
}

static void test_not_finite_choices(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof choices / sizeof *choices; ++i) check_poison(&choices[i], 0);
}

static bool go_on(void *user, int32_t pos, int32_t n, const float *logits) {
  (void)user, (void)pos, (void)n, (void)logits;
  return true;
}

/* With all logits the head is checked at every position: the first one is named. */
static void test_not_finite_logits(void **state) {
  char dir[ST_TEST_DIR_BYTES];
  poison p = {.tensor = "lm_head.weight", .element = 40 * 11 + 5, .value = NAN};
  strata_error err;
  (void)state;
  strata_model *model = open_poisoned(&p, dir);
  strata_session *session = new_session(model, N, 0);
  st_test_expect_error(
      strata_session_feed(session, fix.ids, N,
                          &(strata_feed_options){.all_logits = true, .on_window = go_on}, &err),
      &err, STRATA_NUMERICS, "position 0", "id 11");
  strata_session_free(&session);
  strata_model_close(&model);
  st_test_dir_remove(dir);
}

/* A good state makes a failed session usable again: restored or copied. */
static void test_heal(void **state) {
  char dir[ST_TEST_DIR_BYTES], file[PATH_BYTES];
  poison p = {.tensor = "embed_tokens.weight", .element = MARKED_ID * 40, .value = NAN};
  strata_error err;
  (void)state;
  strata_model *model = open_poisoned(&p, dir);
  path_in(file, dir, "state");
  strata_session *good = new_session(model, N, 0), *bad = new_session(model, N, 0);
  feed(good, fix.ids, 20);
  must(strata_session_save(good, file, &err), &err);
  outcome want = feed_all(good, model, fix.ids + 20, 10, NULL);
  for (int32_t way = 0; way < 2; ++way) {
    st_test_expect_error(strata_session_feed(bad, &(int32_t){MARKED_ID}, 1, NULL, &err), &err,
                         STRATA_NUMERICS, NULL, NULL);
    st_test_expect_error(strata_session_copy(good, bad, &err), &err, STRATA_STATE, NULL, NULL);
    must(strata_session_restore(good, file, &err), &err);
    if (way == 0) must(strata_session_restore(bad, file, &err), &err);
    else must(strata_session_copy(bad, good, &err), &err);
    outcome got = feed_all(bad, model, fix.ids + 20, 10, NULL);
    expect_same(&got, &want, way == 0 ? "healed by a restore" : "healed by a copy");
  }
  strata_session_free(&good);
  strata_session_free(&bad);
  strata_model_close(&model);
  st_test_dir_remove(dir);
}

/* ---- bad arguments ------------------------------------------------------------------- */

/* A feed that is refused before anything runs. */
static void expect_not_run(strata_session *session, const int32_t *ids, int32_t n,
                           const strata_feed_options *options, strata_status want, const char *a,
                           const char *b) {
  char before[HEX];
  strata_error err;
  const float *logits = strata_session_logits(session);
  const int32_t position = strata_session_position(session);
  strata_session_state_sha256(session, before);
  st_test_expect_error(strata_session_feed(session, ids, n, options, &err), &err, want, a, b);
  assert_int_equal(strata_session_feed(session, ids, n, options, NULL), want);
  expect_state(session, before, "a refused feed");
  assert_int_equal(strata_session_position(session), position);
  assert_ptr_equal(strata_session_logits(session), logits);
}

static void test_bad_feeds(void **state) {
  strata_session *session = new_session(fix.model, 30, 8);
  int32_t ids[N];
  (void)state;
  memcpy(ids, fix.ids, sizeof ids);
  for (int32_t round = 0; round < 2; ++round) { /* before the first feed and after one */
    static const int32_t bad_ids[] = {-1, MINI_VOCAB, INT32_MAX, INT32_MIN};
    static const int32_t bad_windows[] = {0, -1, 9, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad_ids / sizeof *bad_ids; ++i) {
      /* The last of them: the good ones before must not have run. */
      ids[17] = bad_ids[i];
      expect_not_run(session, ids, 18, NULL, STRATA_ARG, "token 17", "96");
      ids[17] = fix.ids[17];
    }
    for (size_t i = 0; i < sizeof bad_windows / sizeof *bad_windows; ++i) {
      const int32_t windows[] = {3, bad_windows[i]};
      expect_not_run(session, ids, 10, &(strata_feed_options){.windows = windows, .n_windows = 2},
                     STRATA_ARG, "window", "8");
    }
    expect_not_run(session, ids, 0, NULL, STRATA_ARG, "0 tokens", NULL);
    expect_not_run(session, ids, -1, NULL, STRATA_ARG, "-1 tokens", NULL);
    expect_not_run(session, ids, 31 - round * 10, NULL, STRATA_LIMIT, "30", NULL);
    if (round == 0) feed(session, ids, 10);
  }
  feed(session, ids + 10, 20); /* to the brim */
  expect_not_run(session, ids, 1, NULL, STRATA_LIMIT, "30", NULL);
  outcome want = run_all(fix.model, fix.ids, 30, NULL);
  expect_state(session, want.state, "after all refusals");
  strata_session_free(&session);
}

static void test_bad_sessions(void **state) {
  static const strata_session_options bad[] = {
      {.capacity = -1}, {.capacity = 257}, {.capacity = INT32_MAX}, {.capacity = INT32_MIN},
      {.window = -1}, {.capacity = 100, .window = INT32_MIN}, {.kv = (strata_kv)3},
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    strata_error err;
    strata_session *session = (strata_session *)&err; /* must become NULL */
    st_test_expect_error(strata_session_new(fix.model, &bad[i], &session, &err), &err, STRATA_ARG,
                         bad[i].window ? "window" : bad[i].kv ? "kv" : "capacity", NULL);
    assert_null(session);
  }
  strata_session *session = new_session(fix.model, 5, 1000); /* a window is cut to the capacity */
  feed(session, fix.ids, 5);
  strata_session_free(&session);
}

static void test_bad_engines(void **state) {
  static const strata_engine_options bad[] = {
      {-1, NULL}, {257, NULL}, {INT32_MIN, NULL}, {1, "sse9"}, {1, ""}, {1, "AVX2"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    strata_error err;
    strata_engine *engine = fix.engine; /* must become NULL */
    st_test_expect_error(strata_engine_new(&bad[i], &engine, &err), &err, STRATA_ARG, NULL, NULL);
    assert_null(engine);
  }
}

/* The environment names the level when the options do not. */
static void test_environment(void **state) {
  char *before = getenv("STRATA_ISA") ? strdup(getenv("STRATA_ISA")) : NULL;
  strata_engine *engine;
  strata_error err;
  (void)state;
  assert_int_equal(setenv("STRATA_ISA", "scalar", 1), 0);
  must(strata_engine_new(NULL, &engine, &err), &err);
  assert_string_equal(strata_engine_isa(engine), "scalar");
  assert_true(strata_engine_threads(engine) >= 1);
  strata_engine_free(&engine);
  assert_int_equal(setenv("STRATA_ISA", "best", 1), 0);
  st_test_expect_error(strata_engine_new(NULL, &engine, &err), &err, STRATA_ARG, "STRATA_ISA",
                       "best");
  assert_null(engine);
  engine = new_engine("scalar", 3); /* options come first */
  assert_int_equal(strata_engine_threads(engine), 3);
  strata_engine_free(&engine);
  if (before) assert_int_equal(setenv("STRATA_ISA", before, 1), 0);
  else assert_int_equal(unsetenv("STRATA_ISA"), 0);
  free(before);
}

static void test_bad_models(void **state) {
  char path[PATH_BYTES];
  (void)state;
  path_in(path, fix.dir, "none");
  const char *const bad[] = {path, "", "/dev/null", "tests/golden"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    strata_error err;
    strata_model *model = fix.model; /* must become NULL */
    strata_status status = strata_model_open(fix.engine, bad[i], &model, &err);
    if (status == STRATA_OK) fail_msg("'%s' was opened", bad[i]);
    assert_int_equal(err.status, status);
    assert_true(strlen(err.message) > 0);
    assert_null(model);
  }
}

static void test_bad_plans(void **state) {
  static const struct {
    strata_session_options options;
    int32_t n_tokens;
    const char *what;
  } bad[] = {
      {{0}, 0, "no tokens"},
      {{0}, -1, "fewer than none"},
      {{0}, 257, "past the context"},
      {{.window = -1}, 10, "a negative window"},
      {{.capacity = -1}, 10, "a negative capacity"},
      {{.capacity = 9}, 10, "more tokens than the capacity"},
      {{.kv = (strata_kv)3}, 10, "no kind of cache"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    strata_error err;
    strata_memory_plan plan;
    strata_status status =
        strata_model_plan(fix.model, &bad[i].options, bad[i].n_tokens, &plan, &err);
    if (status != STRATA_ARG) fail_msg("a plan for %s: status %d", bad[i].what, status);
    assert_int_equal(plan.n_rows, 0);
    assert_int_equal(plan.total_bytes, 0);
  }
}

/* ---- cancelling ----------------------------------------------------------------------- */

typedef struct stopper {
  int32_t calls, stop_at; /* the call that says no */
  int32_t position;       /* last one seen */
} stopper;

static bool stop_after(void *user, int32_t pos, int32_t n, const float *logits) {
  stopper *s = user;
  if (!logits && n != 0) fail_msg("%d positions without logits", n);
  s->position = pos + n;
  return ++s->calls < s->stop_at;
}

/* Stops after the third of five windows: the session is the one that was fed three
 * windows, its state's bytes included, and can go on. */
static void check_cancelled(bool all_logits) {
  enum { WINDOW = 8, DONE = 3 * WINDOW };
  stopper s = {.stop_at = 3};
  strata_error err;
  strata_session *session = new_session(fix.model, N, WINDOW), *want = new_session(fix.model, N, 0);
  feed(want, fix.ids, DONE);
  st_test_expect_error(
      strata_session_feed(session, fix.ids, N,
                          &(strata_feed_options){.all_logits = all_logits, .on_window = stop_after,
                                                 .user = &s},
                          &err),
      &err, STRATA_CANCELLED, "24", "40");
  assert_int_equal(s.calls, 3);
  assert_int_equal(s.position, DONE);
  assert_int_equal(strata_session_position(session), DONE);
  outcome rest = feed_all(session, fix.model, fix.ids + DONE, N - DONE, NULL);
  outcome want_rest = feed_all(want, fix.model, fix.ids + DONE, N - DONE, NULL);
  expect_same(&rest, &want_rest, "going on after a cancelled feed");
  strata_session_free(&session);
  strata_session_free(&want);
}

/* A no after the last window is one too, though nothing was left to do. */
static void check_cancelled_last(bool all_logits) {
  enum { WINDOW = 8 };
  stopper s = {.stop_at = N / WINDOW};
  strata_error err;
  strata_session *session = new_session(fix.model, N, WINDOW);
  outcome want = run_all(fix.model, fix.ids, N, NULL);
  st_test_expect_error(
      strata_session_feed(session, fix.ids, N,
                          &(strata_feed_options){.all_logits = all_logits, .on_window = stop_after,
                                                 .user = &s},
                          &err),
      &err, STRATA_CANCELLED, "40", NULL);
  assert_int_equal(s.calls, N / WINDOW);
  expect_state(session, want.state, "a feed cancelled after its last window");
  assert_non_null(strata_session_logits(session));
  strata_session_free(&session);
}

static void test_cancel(void **state) {
  (void)state;
  check_cancelled(false);
  check_cancelled(true);
  check_cancelled_last(false);
  check_cancelled_last(true);
}

/* The state of a cancelled feed depends on the tokens seen and on nothing else, so
 * it equals that of a feed of just these tokens, also by way of a file. */
static void test_cancelled_state(void **state) {
  enum { WINDOW = 8 };
  stopper s = {.stop_at = 1};
  strata_error err;
  char want[HEX], file[PATH_BYTES];
  strata_session *fed = new_session(fix.model, N, 0);
  strata_session *cancelled = new_session(fix.model, N, WINDOW);
  (void)state;
  path_in(file, fix.dir, "cancelled");
  feed(fed, fix.ids, 5 + WINDOW);
  strata_session_state_sha256(fed, want);
  feed(cancelled, fix.ids, 5);
  st_test_expect_error(
      strata_session_feed(cancelled, fix.ids + 5, N - 5,
                          &(strata_feed_options){.on_window = stop_after, .user = &s}, &err),
      &err, STRATA_CANCELLED, NULL, NULL);
  const bool had_logits = strata_session_logits(cancelled) != NULL;
  must(strata_session_save(cancelled, file, &err), &err);
  must(strata_session_restore(cancelled, file, &err), &err);
  if ((strata_session_logits(cancelled) != NULL) != had_logits)
    fail_msg("a cancelled session has %s logits, and %s after saving and restoring it",
             had_logits ? "its" : "no", had_logits ? "none" : "some");
  expect_state(cancelled, want, "a cancelled feed against a feed of as many tokens");
  strata_session_free(&fed);
  strata_session_free(&cancelled);
}

/* ---- memory that runs out ---------------------------------------------------------------- */

static strata_status run_life(const char *dir, outcome *o, strata_error *err) {
  strata_engine *engine = NULL;
  strata_model *model = NULL;
  strata_session *session = NULL;
  char file[PATH_BYTES];
  path_in(file, fix.dir, "life");
  strata_status status = strata_engine_new(&(strata_engine_options){1, NULL}, &engine, err);
  if (status == STRATA_OK) status = strata_model_open(engine, dir, &model, err);
  if (status == STRATA_OK)
    status = strata_session_new(model, NULL, &session, err); /* as large as it can be */
  if (status == STRATA_OK)
    status = strata_session_feed(session, fix.ids, N,
                                 &(strata_feed_options){.all_logits = true, .on_window = go_on},
                                 err);
  if (status == STRATA_OK) status = strata_session_save(session, file, err);
  if (status == STRATA_OK) status = strata_session_restore(session, file, err);
  if (status == STRATA_OK) strata_session_state_sha256(session, o->state);
  strata_session_free(&session);
  strata_model_close(&model);
  strata_engine_free(&engine);
  return status;
}

static int32_t open_files(void) {
  int32_t n = 0;
  DIR *directory = opendir("/proc/self/fd");
  assert_non_null(directory);
  while (readdir(directory)) ++n;
  closedir(directory);
  return n;
}

/* Mappings whose line in /proc/self/maps contains text. */
static int32_t mappings_of(const char *text) {
  char line[1024];
  int32_t n = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  while (fgets(line, sizeof line, maps)) n += strstr(line, text) != NULL;
  fclose(maps);
  return n;
}

static int64_t virtual_bytes(void) {
  long long pages = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  assert_non_null(statm);
  assert_int_equal(fscanf(statm, "%lld", &pages), 1);
  fclose(statm);
  return pages * sysconf(_SC_PAGESIZE);
}

/* The n-th allocation fails, for every n until none does. Heap that is not freed
 * is found by the leak check of a sanitizer build; files, their mappings and the
 * session's pages are counted here. */
static void check_allocations(const st_test_model_options *options) {
  char dir[ST_TEST_DIR_BYTES];
  outcome want = {.state = ""}, got;
  strata_error err;
  strata_status status = STRATA_NOMEM;
  int64_t n = 0;
  st_test_dir_new(dir);
  st_test_model_write(dir, options);
  must(run_life(dir, &want, &err), &err);
  const int32_t files = open_files();
  const int64_t size = virtual_bytes();
  for (; status != STRATA_OK; ++n) {
    err = (strata_error){0};
    st_mem_fail_at(n);
    status = run_life(dir, &got, &err);
    st_mem_fail_at(-1);
    if (status != STRATA_OK && status != STRATA_NOMEM)
      fail_msg("allocation %d: status %d: %s", (int)n, status, err.message);
    if (status == STRATA_NOMEM && (err.status != STRATA_NOMEM || !err.message[0]))
      fail_msg("allocation %d: NOMEM without an error", (int)n);
    assert_true(n < 100000);
  }
  print_message("    %d allocations\n", (int)n - 1);
  assert_true(n > 20);
  assert_string_equal(got.state, want.state);
  assert_int_equal(open_files(), files);
  assert_int_equal(mappings_of(dir), 0);
  /* One leaked scratch or cache a round would be tens of megabytes in all. */
  if (!UNDER_SANITIZER) assert_in_range(virtual_bytes(), 0, size + (4 << 20));
  st_test_dir_remove(dir);
}

static void test_allocations(void **state) {
  (void)state;
  check_allocations(&(st_test_model_options){.seed = 1});
  check_allocations(&(st_test_model_options){.unaligned = true, .matrix_dtype = ST_DTYPE_BF16,
                                             .n_files = 3, .stacked_experts = true,
                                             .whole_table = true, .nested_config = true});
}

/* A feed whose memory fails leaves the session as it was. */
static void test_feed_without_memory(void **state) {
  char before[HEX];
  strata_error err;
  strata_session *session = new_session(fix.model, N, 0);
  const strata_feed_options options = {.all_logits = true, .on_window = go_on};
  (void)state;
  feed(session, fix.ids, 10);
  strata_session_state_sha256(session, before);
  st_mem_fail_at(0);
  strata_status status = strata_session_feed(session, fix.ids + 10, 5, &options, &err);
  st_mem_fail_at(-1);
  if (status == STRATA_NOMEM) {
    expect_state(session, before, "a feed without memory");
    must(strata_session_feed(session, fix.ids + 10, 5, &options, &err), &err);
  } else {
    must(status, &err);
  }
  outcome want = run_all(fix.model, fix.ids, 15, NULL);
  expect_state(session, want.state, "a feed after one without memory");
  strata_session_free(&session);
}

/* ---- the memory plan ------------------------------------------------------------------------ */

#define TINY "models/strata-tiny"
enum { FED = 600, WINDOW = 512 };

static int64_t plan_bytes(const strata_memory_plan *plan, const char *component) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < plan->n_rows; ++i)
    if (strcmp(plan->rows[i].component, component) == 0) bytes += plan->rows[i].bytes;
  return bytes;
}

static void check_plan_rows(const strata_memory_plan *plan) {
  int64_t sum = 0;
  assert_in_range(plan->n_rows, 1, STRATA_MEMORY_ROWS_MAX);
  for (int32_t i = 0; i < plan->n_rows; ++i) {
    assert_true(plan->rows[i].bytes > 0);
    sum += plan->rows[i].bytes;
    for (int32_t j = 0; j < i; ++j)
      assert_string_not_equal(plan->rows[i].component, plan->rows[j].component);
  }
  assert_int_equal(sum, plan->total_bytes);
}

/* Rows in whole pages. */
static int64_t pages(int64_t rows) { return (rows + 255) / 256 * 256; }

/* Sizes that follow from strata-tiny's dimensions: 6 GDN layers of 6 heads of
 * 128 x 128 with 3 rows of 1280 channels of history, 2 QSA layers of one
 * key-value head of 256 with an indexer key of 128 for every 4 tokens and 4 open
 * ones, 9 rows of 1024 before the n-gram convolution; caches in pages of 256 rows,
 * f16 half as large, q8 with 2 bytes for 64. */
static void test_plan_rows(void **state) {
  static const int32_t lengths[] = {1, 3, 4, 259, 260, 600, 32768};
  strata_error err;
  strata_memory_plan plan;
  strata_model *model = open_model(fix.engine, TINY);
  strata_model_info info;
  int64_t last = 0;
  (void)state;
  strata_model_get_info(model, &info);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    const int64_t n = lengths[i];
    must(strata_model_plan(model, &(strata_session_options){.window = WINDOW}, lengths[i], &plan,
                           &err),
         &err);
    check_plan_rows(&plan);
    assert_int_equal(plan_bytes(&plan, "weights (mapped)"), info.weight_bytes);
    assert_int_equal(plan_bytes(&plan, "gdn state"), 4 * 6 * 6 * 132 * 128);
    assert_int_equal(plan_bytes(&plan, "gdn keys"), 4 * 6 * 2 * 2 * 128);
    assert_int_equal(plan_bytes(&plan, "gdn history"), 4 * 6 * 3 * 1280);
    assert_int_equal(plan_bytes(&plan, "kv cache"), 2 * pages(n) * 2 * 256 * 4);
    assert_int_equal(plan_bytes(&plan, "block keys"), 2 * pages(n / 4) * 128 * 4);
    assert_int_equal(plan_bytes(&plan, "open keys"), 4 * 2 * 4 * 128);
    assert_int_equal(plan_bytes(&plan, "ple history"), 4 * 9 * 1024);
    assert_int_equal(plan_bytes(&plan, "n-gram context"), 4 * 2);
    assert_int_equal(plan_bytes(&plan, "logits"), 4 * 4096);
    assert_true(plan.total_bytes > last);
    last = plan.total_bytes;
    must(strata_model_plan(model, &(strata_session_options){.window = WINDOW, .kv = STRATA_KV_F16},
                           lengths[i], &plan, &err), &err);
    assert_int_equal(plan_bytes(&plan, "kv cache"), 2 * pages(n) * 2 * 256 * 2);
    must(strata_model_plan(model, &(strata_session_options){.window = WINDOW, .kv = STRATA_KV_Q8},
                           lengths[i], &plan, &err), &err);
    /* 31 pages of q8 in 4 MiB, after which slabs of that size follow. */
    const int64_t q8_page = 256 * 2 * (256 + 8), n_pages = pages(n) / 256;
    assert_int_equal(plan_bytes(&plan, "kv cache"),
                     2 * (n_pages <= 31 ? n_pages * q8_page
                                        : 31 * q8_page + ((n_pages - 31 + 30) / 31) * (4 << 20)));
  }
  strata_model_close(&model);
}

/* The new process of test_peak: nothing but a feed; prints its peak and the plan. */
static int measure_peak(void) {
  strata_error err;
  strata_memory_plan plan;
  int32_t n;
  strata_engine *engine = new_engine(NULL, 2);
  strata_model *model = open_model(engine, TINY);
  strata_session *session = new_session(model, 0, WINDOW);
  st_safetensors *golden = open_golden();
  const int32_t *ids = golden_ids(golden, "recall.ids", &n);
  must(strata_model_plan(model, &(strata_session_options){.window = WINDOW}, FED, &plan, &err),
       &err);
  must(strata_session_feed(session, ids, FED, NULL, &err), &err);
  printf("%lld %lld", (long long)st_process_peak_bytes(), (long long)plan.total_bytes);
  st_safetensors_close(&golden);
  strata_session_free(&session);
  strata_model_close(&model);
  strata_engine_free(&engine);
  return 0;
}

static void test_peak(void **state) {
  char output[128];
  long long peak, planned;
  (void)state;
  if (UNDER_SANITIZER) {
    print_message("a sanitizer's shadow memory would be counted too\n");
    skip();
  }
  run_self((const char *const[]){"test_errors", "--peak", NULL}, output, sizeof output);
  assert_int_equal(sscanf(output, "%lld %lld", &peak, &planned), 2);
  double ratio = (double)peak / (double)planned;
  print_message("    peak %.2f MB, plan %.2f MB: %.1f %%\n", (double)peak / 1e6,
                (double)planned / 1e6, 100 * ratio);
  if (!(fabs(ratio - 1) <= 0.05)) fail_msg("the peak is %.1f %% of the plan", 100 * ratio);
}

/* ---- fixture --------------------------------------------------------------------------------- */

static int set_up(void **state) {
  (void)state;
  for (int32_t i = 0; i < N; ++i) fix.ids[i] = 8 + i * 37 % 88; /* 8 .. 95 */
  fix.engine = new_engine(NULL, 2);
  st_test_dir_new(fix.dir);
  st_test_model_write(fix.dir, &(st_test_model_options){.seed = 0});
  fix.model = open_model(fix.engine, fix.dir);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  strata_model_close(&fix.model);
  strata_engine_free(&fix.engine);
  st_test_dir_remove(fix.dir);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_not_finite),      cmocka_unit_test(test_not_finite_choices),
      cmocka_unit_test(test_not_finite_logits),
      cmocka_unit_test(test_heal),            cmocka_unit_test(test_bad_feeds),
      cmocka_unit_test(test_bad_sessions),    cmocka_unit_test(test_bad_engines),
      cmocka_unit_test(test_environment),     cmocka_unit_test(test_bad_models),
      cmocka_unit_test(test_bad_plans),       cmocka_unit_test(test_cancel),
      cmocka_unit_test(test_cancelled_state), cmocka_unit_test(test_allocations),
      cmocka_unit_test(test_feed_without_memory), cmocka_unit_test(test_plan_rows),
      cmocka_unit_test(test_peak),
  };
  if (argc == 2 && strcmp(argv[1], "--peak") == 0) return measure_peak();
  return cmocka_run_group_tests_name("errors", tests, set_up, tear_down);
}
