/* One sequence, many ways: the bytes of all logits and of the state do not depend
 * on windows, threads, the CPU level, on decoding or prefilling, nor on where
 * the state was saved, copied or reset. On strata-tiny, with the recall prompt:
 * its 665 tokens pass the indexer's budget (259), so most queries are sparse. */
#include "engine_test.h"

#include <stdint.h>
#include <stdlib.h>

#include "model/st_session.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MODEL "models/strata-tiny"

enum { RECALL = 665, GREEDY = 48, TOTAL = RECALL + GREEDY, SHORT_MAX = 33 };

static const split recall_splits[] = {
    {"whole", {RECALL}, 1}, {"512 153", {512, 153}, 2}, {"one by one", {1}, 1},
    {"664 1", {664, 1}, 2}, {"37 ...", {37}, 1},
};
static const split short_splits[] = {
    {"whole", {0}, 0}, {"one by one", {1}, 1}, {"8 1 ...", {8, 1}, 2},
    {"5 9 2 ...", {5, 9, 2}, 3},
};

/* All splits once; a sanitizer, for which token by token takes minutes, learns nothing from
 * them with other numbers of threads. */
enum {
  N_RECALL_SPLITS = sizeof recall_splits / sizeof *recall_splits,
  N_OTHER_THREADS_SPLITS = UNDER_SANITIZER ? 2 : N_RECALL_SPLITS,
  N_SHORT_SPLITS = sizeof short_splits / sizeof *short_splits
};

static struct {
  st_safetensors *golden;
  strata_engine *engine; /* the best level, 2 threads */
  strata_model *model;
  int32_t ids[TOTAL]; /* the prompt and the reference's greedy continuation */
  outcome recall;     /* of the prompt in one window */
  char dir[ST_TEST_DIR_BYTES], file[PATH_BYTES];
} fix;

/* ---- windows, threads, CPU levels ------------------------------------------------ */

/* Runs the splits with an engine of its own and compares each with want. */
static void check_splits(const char *isa, int32_t n_threads, const int32_t *ids, int32_t n,
                         const split *splits, int32_t n_splits, const outcome *want) {
  strata_engine *engine = new_engine(isa, n_threads);
  strata_model *model = open_model(engine, MODEL);
  for (int32_t i = 0; i < n_splits; ++i) {
    char what[96];
    snprintf(what, sizeof what, "%s, %d threads, %d tokens as %s", strata_engine_isa(engine),
             n_threads, n, splits[i].name);
    outcome got = run_all(model, ids, n, &splits[i]);
    expect_same(&got, want, what);
  }
  strata_model_close(&model);
  strata_engine_free(&engine);
}

static void test_one_thread(void **state) {
  (void)state;
  check_splits(NULL, 1, fix.ids, RECALL, recall_splits, N_OTHER_THREADS_SPLITS, &fix.recall);
}

static void test_two_threads(void **state) {
  (void)state;
  check_splits(NULL, 2, fix.ids, RECALL, recall_splits, N_RECALL_SPLITS, &fix.recall);
}

static void test_seven_threads(void **state) {
  (void)state;
  check_splits(NULL, 7, fix.ids, RECALL, recall_splits, N_OTHER_THREADS_SPLITS, &fix.recall);
}

/* The whole prompt once at every level (in two windows, so that the second one
 * continues from state), and a short one in all ways; shorter still at the scalar
 * level, which is slow: there the whole prompt only with LONG_TESTS in the environment. */
static void test_levels(void **state) {
  int32_t n_chat;
  const int32_t *chat = golden_ids(fix.golden, "chat.ids", &n_chat);
  (void)state;
  assert_int_equal(n_chat, SHORT_MAX);
  for (int32_t i = 0; i < N_ISA_LEVELS; ++i) {
    const int32_t n = i == 0 ? 9 : n_chat;
    if (!has_isa(isa_levels[i])) continue;
    outcome want = run_all(fix.model, chat, n, &short_splits[0]);
    print_message("    %s\n", isa_levels[i]);
    if (i > 0 || getenv("LONG_TESTS"))
      check_splits(isa_levels[i], 2, fix.ids, RECALL, &recall_splits[1], 1, &fix.recall);
    for (int32_t threads = 1; threads <= 7; threads += threads == 1 ? 1 : 5)
      check_splits(isa_levels[i], threads, chat, n, short_splits, N_SHORT_SPLITS, &want);
  }
}

/* Without all_logits only the last row is computed: it is the same one. */
static void test_last_logits(void **state) {
  const size_t row_bytes = (size_t)vocabulary(fix.model) * sizeof(float);
  strata_session *all = new_session(fix.model, RECALL, RECALL);
  strata_session *last = new_session(fix.model, RECALL, 100);
  (void)state;
  assert_null(strata_session_logits(last));
  feed_all(all, fix.model, fix.ids, RECALL, NULL);
  feed(last, fix.ids, RECALL);
  expect_state(last, fix.recall.state, "feeding without all logits");
  assert_memory_equal(strata_session_logits(last), strata_session_logits(all), row_bytes);
  strata_session_free(&all);
  strata_session_free(&last);
}

/* ---- decoding -------------------------------------------------------------------- */

static void test_decode_equals_prefill(void **state) {
  const int32_t *greedy = fix.ids + RECALL;
  strata_session *at_once = new_session(fix.model, TOTAL, 512);
  strata_session *one_by_one = new_session(fix.model, TOTAL, 512);
  outcome want, got;
  logits_hash h;
  (void)state;
  feed(at_once, fix.ids, RECALL);
  feed(one_by_one, fix.ids, RECALL);
  want = feed_all(at_once, fix.model, greedy, GREEDY, NULL);
  logits_hash_init(&h, fix.model, RECALL);
  for (int32_t i = 0; i < GREEDY; ++i) {
    feed(one_by_one, greedy + i, 1);
    hash_logits(&h, RECALL + i, 1, strata_session_logits(one_by_one));
  }
  strata_sha256_finish(&h.hash, got.logits);
  strata_session_state_sha256(one_by_one, got.state);
  expect_same(&got, &want, "one by one against at once");
  outcome whole = run_all(fix.model, fix.ids, TOTAL, NULL);
  assert_string_equal(whole.state, want.state);
  strata_session_free(&at_once);
  strata_session_free(&one_by_one);
}

/* Two sequences of one model, fed in turns, do not touch each other. */
static void test_interleaved_sessions(void **state) {
  enum { N = 280, STEP = 20 };
  strata_session *a = new_session(fix.model, N, 64), *b = new_session(fix.model, 2 * N, 7);
  const int32_t *other = fix.ids + 100;
  (void)state;
  outcome want_a = run_all(fix.model, fix.ids, N, NULL);
  outcome want_b = run_all(fix.model, other, N, NULL);
  for (int32_t i = 0; i < N; i += STEP) {
    feed(a, fix.ids + i, STEP);
    feed(b, other + i, STEP);
  }
  expect_state(a, want_a.state, "the first of two sequences");
  expect_state(b, want_b.state, "the second of two sequences");
  strata_session_free(&a);
  strata_session_free(&b);
}

/* Being observed changes no byte; every call of a layer is counted. */
static void test_profile(void **state) {
  enum { N = 300, FEED_WINDOW = 100 };
  strata_session *session = new_session(fix.model, N, FEED_WINDOW);
  strata_profile profile;
  int64_t scans = 0;
  (void)state;
  outcome want = run_all(fix.model, fix.ids, N, NULL);
  strata_session_profile(session, true);
  outcome got = feed_all(session, fix.model, fix.ids, N, NULL);
  expect_same(&got, &want, "with the profile on");
  strata_session_get_profile(session, &profile);
  for (int32_t i = 0; i < profile.n_rows; ++i)
    if (strcmp(profile.rows[i].op, "gdn_scan") == 0) scans += profile.rows[i].calls;
  assert_int_equal(scans, 6 * N / FEED_WINDOW); /* 6 layers */
  strata_session_profile(session, false);
  strata_session_get_profile(session, &profile);
  assert_int_equal(profile.n_rows, 0);
  strata_session_free(&session);
}

/* ---- saving, copying, resetting --------------------------------------------------- */

enum { SAVED_TOTAL = 345 };

/* The new process of test_save: restores and goes on, with another thread count,
 * capacity and window than the process that saved; prints the two hashes. */
static int continue_saved(const char *file, const char *isa, const char *n_threads) {
  strata_engine *engine = new_engine(isa[0] ? isa : NULL, (int32_t)strtol(n_threads, NULL, 10));
  strata_model *model = open_model(engine, MODEL);
  strata_session *session = new_session(model, 400, 50);
  strata_error err;
  int32_t n;
  st_safetensors *golden = open_golden();
  const int32_t *ids = golden_ids(golden, "recall.ids", &n);
  must(strata_session_restore(session, file, &err), &err);
  int32_t position = strata_session_position(session);
  outcome o = feed_all(session, model, ids + position, SAVED_TOTAL - position, NULL);
  printf("%s %s", o.logits, o.state);
  st_safetensors_close(&golden);
  strata_session_free(&session);
  strata_model_close(&model);
  strata_engine_free(&engine);
  return 0;
}

static void check_new_process(const char *isa, const char *n_threads, const outcome *want) {
  char output[4 * HEX];
  outcome got;
  run_self((const char *const[]){"test_windows", "--continue", fix.file, isa, n_threads, NULL},
           output, sizeof output);
  assert_int_equal(strlen(output), 2 * (HEX - 1) + 1);
  memcpy(got.logits, output, HEX - 1);
  memcpy(got.state, output + HEX, HEX);
  got.logits[HEX - 1] = 0;
  expect_same(&got, want, "a restored state continued in a new process");
}

/* 259 is the last dense position, 260 begins with a whole block, at 300 the
 * queries are sparse. */
static void test_save(void **state) {
  static const int32_t positions[] = {259, 260, 300, 1};
  strata_error err;
  (void)state;
  for (size_t i = 0; i < sizeof positions / sizeof *positions; ++i) {
    const int32_t at = positions[i];
    strata_session *session = new_session(fix.model, SAVED_TOTAL, 512);
    strata_session *restored = new_session(fix.model, SAVED_TOTAL, 512);
    char saved[HEX];
    feed(restored, fix.ids + 20, 310); /* a longer sequence, to be forgotten */
    feed(session, fix.ids, at);
    strata_session_state_sha256(session, saved);
    must(strata_session_save(session, fix.file, &err), &err);
    expect_state(session, saved, "saving");
    must(strata_session_restore(restored, fix.file, &err), &err);
    expect_state(restored, saved, "restoring");
    assert_int_equal(strata_session_position(restored), at);
    assert_memory_equal(strata_session_logits(restored), strata_session_logits(session),
                        (size_t)vocabulary(fix.model) * sizeof(float));
    outcome want = feed_all(session, fix.model, fix.ids + at, SAVED_TOTAL - at, NULL);
    outcome here = feed_all(restored, fix.model, fix.ids + at, SAVED_TOTAL - at, NULL);
    expect_same(&here, &want, "a restored state continued in this process");
    check_new_process("", "1", &want);
    if (i == 0 && has_isa("avx2")) check_new_process("avx2", "3", &want);
    strata_session_free(&session);
    strata_session_free(&restored);
  }
}

/* An empty sequence can be saved too; it has no logits afterwards either. */
static void test_save_empty(void **state) {
  strata_session *session = new_session(fix.model, 100, 0);
  char empty[HEX];
  strata_error err;
  (void)state;
  strata_session_state_sha256(session, empty);
  must(strata_session_save(session, fix.file, &err), &err);
  feed(session, fix.ids, 50);
  must(strata_session_restore(session, fix.file, &err), &err);
  expect_state(session, empty, "restoring an empty sequence");
  assert_int_equal(strata_session_position(session), 0);
  assert_null(strata_session_logits(session));
  strata_session_free(&session);
}

static void test_copy(void **state) {
  enum { AT = 262, N = 320 };
  strata_session *source = new_session(fix.model, N, 512);
  strata_session *copy = new_session(fix.model, N, 64), *small = new_session(fix.model, AT - 1, 0);
  char before[HEX];
  strata_error err;
  (void)state;
  feed(source, fix.ids, AT);
  feed(copy, fix.ids + 7, 300); /* a longer sequence, to be forgotten */
  must(strata_session_copy(copy, source, &err), &err);
  assert_memory_equal(strata_session_logits(copy), strata_session_logits(source),
                      (size_t)vocabulary(fix.model) * sizeof(float));
  strata_session_state_sha256(source, before);
  must(strata_session_copy(source, source, &err), &err);
  expect_state(source, before, "a copy onto itself");
  outcome want = feed_all(source, fix.model, fix.ids + AT, N - AT, NULL);
  outcome got = feed_all(copy, fix.model, fix.ids + AT, N - AT, NULL);
  expect_same(&got, &want, "a copy continued");
  feed(small, fix.ids + 3, 100);
  strata_session_state_sha256(small, before);
  st_test_expect_error(strata_session_copy(small, source, &err), &err, STRATA_LIMIT, "320", "261");
  expect_state(small, before, "a refused copy");
  strata_session_free(&source);
  strata_session_free(&copy);
  strata_session_free(&small);
}

static void test_reset(void **state) {
  strata_session *session = new_session(fix.model, 400, 128);
  (void)state;
  outcome want = run_all(fix.model, fix.ids, 300, NULL);
  feed(session, fix.ids + 50, 400);
  strata_session_reset(session);
  assert_int_equal(strata_session_position(session), 0);
  assert_null(strata_session_logits(session));
  outcome got = feed_all(session, fix.model, fix.ids, 300, NULL);
  expect_same(&got, &want, "after a reset");
  strata_session_free(&session);
}

static void test_restore_too_small(void **state) {
  strata_session *session = new_session(fix.model, 300, 0);
  strata_session *small = new_session(fix.model, 299, 0);
  char before[HEX];
  strata_error err;
  (void)state;
  feed(session, fix.ids, 300);
  must(strata_session_save(session, fix.file, &err), &err);
  feed(small, fix.ids + 1, 40);
  strata_session_state_sha256(small, before);
  st_test_expect_error(strata_session_restore(small, fix.file, &err), &err, STRATA_LIMIT, fix.file,
                       "299");
  expect_state(small, before, "a refused restore");
  assert_int_equal(strata_session_position(small), 40);
  assert_non_null(strata_session_logits(small));
  strata_session_free(&session);
  strata_session_free(&small);
}

/* ---- damaged files, on the miniature model: its state is small ------------------- */

typedef struct damage {
  strata_session *session; /* what must not change */
  char before[HEX];
  uint8_t *image; /* of a good file */
  size_t n_bytes;
} damage;

/* Writes n_bytes of data as the state file and expects restore to refuse it. */
static void expect_refused(const damage *d, const void *data, size_t n_bytes, strata_status want,
                           const char *what) {
  strata_error err;
  st_test_file_write(fix.dir, "state", data, n_bytes);
  strata_status status = strata_session_restore(d->session, fix.file, &err);
  if (status != want)
    fail_msg("%s: status %d instead of %d: %s", what, status, want,
             status == STRATA_OK ? "restored" : err.message);
  if (!strstr(err.message, fix.file)) fail_msg("%s: '%s' lacks the path", what, err.message);
  expect_state(d->session, d->before, what);
}

/* Puts a checksum over changed bytes, so that the checks behind it are reached. */
static void seal(uint8_t *image, size_t n_bytes) {
  uint64_t checksum = XXH3_64bits(image, n_bytes - sizeof checksum);
  memcpy(image + n_bytes - sizeof checksum, &checksum, sizeof checksum);
}

static void check_truncated(const damage *d) {
  char what[64];
  for (size_t n = 0; n < d->n_bytes; n += n < 100 ? 1 : n + 100 > d->n_bytes ? 1 : 1499) {
    snprintf(what, sizeof what, "cut to %zu bytes", n);
    expect_refused(d, d->image, n, STRATA_FORMAT, what);
  }
}

static void check_flipped(const damage *d) {
  uint8_t *image = malloc(d->n_bytes);
  char what[64];
  memcpy(image, d->image, d->n_bytes);
  for (size_t at = 0; at < d->n_bytes; at += at < 48 || at + 16 >= d->n_bytes ? 1 : 997) {
    snprintf(what, sizeof what, "bit %zu of byte %zu flipped", at % 8, at);
    image[at] ^= (uint8_t)(1u << at % 8);
    expect_refused(d, image, d->n_bytes, STRATA_FORMAT, what);
    image[at] = d->image[at];
  }
  free(image);
}

static void check_sealed(const damage *d, size_t at, const void *value, size_t value_bytes,
                         strata_status want, const char *what) {
  uint8_t *image = malloc(d->n_bytes);
  memcpy(image, d->image, d->n_bytes);
  memcpy(image + at, value, value_bytes);
  seal(image, d->n_bytes);
  expect_refused(d, image, d->n_bytes, want, what);
  free(image);
}

/* Extra bytes behind the checksum, and before it with a checksum that fits. */
static void check_trailing(const damage *d) {
  uint8_t *image = calloc(d->n_bytes + 8, 1);
  memcpy(image, d->image, d->n_bytes);
  expect_refused(d, image, d->n_bytes + 1, STRATA_FORMAT, "a byte too many");
  expect_refused(d, image, d->n_bytes + 8, STRATA_FORMAT, "8 bytes too many");
  seal(image, d->n_bytes + 8);
  expect_refused(d, image, d->n_bytes + 8, STRATA_FORMAT, "8 sealed bytes too many");
  free(image);
}

/* A header is: magic [8], version u32, position i32, fingerprint u64, parts u32,
 * kind of cache u32; then the first part's size, u64. */
static void check_headers(const damage *d) {
  uint32_t parts;
  uint64_t first;
  memcpy(&parts, d->image + 24, sizeof parts);
  memcpy(&first, d->image + 32, sizeof first);
  check_sealed(d, 0, "STRATAXX", 8, STRATA_FORMAT, "another magic");
  check_sealed(d, 8, &(uint32_t){2}, 4, STRATA_FORMAT, "the version before");
  check_sealed(d, 12, &(int32_t){-1}, 4, STRATA_FORMAT, "a negative position");
  check_sealed(d, 12, &(int32_t){41}, 4, STRATA_FORMAT, "one token more than the parts hold");
  check_sealed(d, 12, &(int32_t){39}, 4, STRATA_FORMAT, "one token less than the parts hold");
  check_sealed(d, 12, &(int32_t){INT32_MAX}, 4, STRATA_LIMIT, "the largest position");
  check_sealed(d, 16, &(uint64_t){1}, 8, STRATA_STATE, "other weights");
  check_sealed(d, 24, &(uint32_t){parts + 1}, 4, STRATA_FORMAT, "one part more");
  check_sealed(d, 24, &(uint32_t){0}, 4, STRATA_FORMAT, "no parts");
  check_sealed(d, 28, &(uint32_t){2}, 4, STRATA_STATE, "another kind of cache");
  check_sealed(d, 28, &(uint32_t){3}, 4, STRATA_FORMAT, "no kind of cache");
  check_sealed(d, 32, &(uint64_t){first + 4}, 8, STRATA_FORMAT, "a longer part");
  check_sealed(d, 32, &(uint64_t){UINT64_MAX}, 8, STRATA_FORMAT, "an absurd part");
}

static void check_missing(const damage *d) {
  strata_error err;
  assert_int_equal(unlink(fix.file), 0);
  st_test_expect_error(strata_session_restore(d->session, fix.file, &err), &err, STRATA_IO,
                       fix.file, NULL);
  st_test_expect_error(strata_session_restore(d->session, fix.dir, &err), &err, STRATA_IO, fix.dir,
                       NULL);
  expect_state(d->session, d->before, "a missing file");
}

/* A file of a model that differs in nothing but the values of its weights. */
static void check_other_weights(const damage *d) {
  char dir[ST_TEST_DIR_BYTES];
  strata_error err;
  st_test_dir_new(dir);
  st_test_model_write(dir, &(st_test_model_options){.seed = 2});
  strata_model *model = open_model(fix.engine, dir);
  strata_session *session = new_session(model, 0, 0);
  feed(session, (const int32_t[]){1, 2, 3}, 3);
  must(strata_session_save(session, fix.file, &err), &err);
  st_test_expect_error(strata_session_restore(d->session, fix.file, &err), &err, STRATA_STATE,
                       fix.file, "weights");
  expect_state(d->session, d->before, "a state of other weights");
  st_test_expect_error(strata_session_copy(d->session, session, &err), &err, STRATA_STATE, NULL,
                       NULL);
  expect_state(d->session, d->before, "a copy of another model's session");
  strata_session_free(&session);
  strata_model_close(&model);
  st_test_dir_remove(dir);
}

static void read_image(damage *d) {
  FILE *file = fopen(fix.file, "rb");
  assert_non_null(file);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  d->n_bytes = (size_t)ftell(file);
  rewind(file);
  d->image = malloc(d->n_bytes);
  assert_int_equal(fread(d->image, 1, d->n_bytes, file), d->n_bytes);
  fclose(file);
}

static void test_damaged(void **state) {
  enum { SAVED_AT = 40, HELD_AT = 23 };
  char dir[ST_TEST_DIR_BYTES];
  int32_t ids[SAVED_AT];
  strata_error err;
  damage d;
  (void)state;
  for (int32_t i = 0; i < SAVED_AT; ++i) ids[i] = i * 31 % 97;
  st_test_dir_new(dir);
  st_test_model_write(dir, &(st_test_model_options){.seed = 1});
  strata_model *model = open_model(fix.engine, dir);
  strata_session *saved = new_session(model, 0, 0);
  feed(saved, ids, SAVED_AT);
  must(strata_session_save(saved, fix.file, &err), &err);
  read_image(&d);
  d.session = new_session(model, 200, 0);
  feed(d.session, ids + 5, HELD_AT);
  strata_session_state_sha256(d.session, d.before);

  check_truncated(&d);
  check_flipped(&d);
  check_trailing(&d);
  check_headers(&d);
  check_missing(&d);
  check_other_weights(&d);

  /* After all refusals the session goes on as if nothing had been tried, and the
   * undamaged file is still accepted. */
  strata_session *fresh = new_session(model, 0, 0);
  feed(fresh, ids + 5, HELD_AT);
  outcome want = feed_all(fresh, model, ids, 10, NULL);
  outcome got = feed_all(d.session, model, ids, 10, NULL);
  expect_same(&got, &want, "feeding after refused files");
  st_test_file_write(fix.dir, "state", d.image, d.n_bytes);
  must(strata_session_restore(d.session, fix.file, &err), &err);
  strata_session_state_sha256(saved, d.before);
  expect_state(d.session, d.before, "restoring the good file");

  free(d.image);
  strata_session_free(&fresh);
  strata_session_free(&d.session);
  strata_session_free(&saved);
  strata_model_close(&model);
  st_test_dir_remove(dir);
}

/* A save that cannot be finished names the path. */
static void test_save_fails(void **state) {
  strata_session *session = new_session(fix.model, 20, 0);
  char path[PATH_BYTES];
  strata_error err;
  (void)state;
  feed(session, fix.ids, 20);
  path_in(path, fix.dir, "none/state");
  st_test_expect_error(strata_session_save(session, path, &err), &err, STRATA_IO, path, NULL);
  strata_session_free(&session);
}

/* ---- fixture ---------------------------------------------------------------------- */

static int set_up(void **state) {
  int32_t n_prompt, n_greedy;
  (void)state;
  fix.golden = open_golden();
  const int32_t *prompt = golden_ids(fix.golden, "recall.ids", &n_prompt);
  const int32_t *greedy = golden_ids(fix.golden, "recall.greedy", &n_greedy);
  assert_int_equal(n_prompt, RECALL);
  assert_int_equal(n_greedy, GREEDY);
  memcpy(fix.ids, prompt, sizeof(int32_t) * RECALL);
  memcpy(fix.ids + RECALL, greedy, sizeof(int32_t) * GREEDY);
  fix.engine = new_engine(NULL, 2);
  fix.model = open_model(fix.engine, MODEL);
  fix.recall = run_all(fix.model, fix.ids, RECALL, &recall_splits[0]);
  st_test_dir_new(fix.dir);
  path_in(fix.file, fix.dir, "state");
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  st_test_dir_remove(fix.dir);
  st_safetensors_close(&fix.golden);
  strata_model_close(&fix.model);
  strata_engine_free(&fix.engine);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_thread),        cmocka_unit_test(test_two_threads),
      cmocka_unit_test(test_seven_threads),     cmocka_unit_test(test_levels),
      cmocka_unit_test(test_last_logits),       cmocka_unit_test(test_decode_equals_prefill),
      cmocka_unit_test(test_interleaved_sessions), cmocka_unit_test(test_profile),
      cmocka_unit_test(test_save),              cmocka_unit_test(test_save_empty),
      cmocka_unit_test(test_copy),              cmocka_unit_test(test_reset),
      cmocka_unit_test(test_restore_too_small), cmocka_unit_test(test_damaged),
      cmocka_unit_test(test_save_fails),
  };
  if (argc == 5 && strcmp(argv[1], "--continue") == 0)
    return continue_saved(argv[2], argv[3], argv[4]);
  return cmocka_run_group_tests_name("windows", tests, set_up, tear_down);
}
