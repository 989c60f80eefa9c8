/* What the engine tests share: runs whose bytes are hashed, and running this
 * program once more as a new process.
 *
 * A run is compared by two hashes: all logits in order of position, and the
 * state. Functions fail the running cmocka test when something goes wrong. */
#ifndef ENGINE_TEST_H
#define ENGINE_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/strata.h>

#include "st_test_model.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#else
#define UNDER_SANITIZER 0
#endif

enum { HEX = 65, PATH_BYTES = 2 * ST_TEST_DIR_BYTES, WINDOWS_MAX = 4 };

static const char *const isa_levels[] = {"scalar", "avx2", "avx512", "neon"};
enum { N_ISA_LEVELS = sizeof isa_levels / sizeof *isa_levels };

static inline void must(strata_status status, const strata_error *err) {
  if (status != STRATA_OK) fail_msg("%s", err->message);
}

static inline strata_engine *new_engine(const char *isa, int32_t n_threads) {
  strata_engine *engine;
  strata_error err;
  must(strata_engine_new(&(strata_engine_options){n_threads, isa}, &engine, &err), &err);
  return engine;
}

/* Whether this build and this CPU have the level. */
static inline bool has_isa(const char *isa) {
  strata_engine *engine;
  strata_status status = strata_engine_new(&(strata_engine_options){1, isa}, &engine, NULL);
  strata_engine_free(&engine);
  if (status != STRATA_OK && status != STRATA_ARG && status != STRATA_UNSUPPORTED)
    fail_msg("engine at %s: status %d", isa, status);
  return status == STRATA_OK;
}

static inline strata_model *open_model(strata_engine *engine, const char *path) {
  strata_model *model;
  strata_error err;
  must(strata_model_open(engine, path, &model, &err), &err);
  return model;
}

static inline strata_session *new_session_kv(strata_model *model, int32_t capacity, int32_t window,
                                             strata_kv kv) {
  strata_session *session;
  strata_error err;
  const strata_session_options options = {.capacity = capacity, .window = window, .kv = kv};
  must(strata_session_new(model, &options, &session, &err), &err);
  return session;
}

static inline strata_session *new_session(strata_model *model, int32_t capacity, int32_t window) {
  return new_session_kv(model, capacity, window, STRATA_KV_F32);
}

static inline int32_t vocabulary(const strata_model *model) {
  strata_model_info info;
  strata_model_get_info(model, &info);
  return info.vocab_size;
}

/* ---- windows ------------------------------------------------------------------ */

/* Lengths of windows; the last one is repeated. n = 0: the session's own. */
typedef struct split {
  const char *name;
  int32_t windows[WINDOWS_MAX];
  int32_t n;
} split;

/* ---- feeding and hashing ------------------------------------------------------- */

/* Hashes all logits, and checks that they come in order and without a gap. */
typedef struct logits_hash {
  strata_sha256 *hash;
  int32_t vocab, next;
} logits_hash;

static inline bool hash_logits(void *user, int32_t pos, int32_t n, const float *logits) {
  logits_hash *h = user;
  if (pos != h->next || n < 1 || !logits)
    fail_msg("logits of positions %d .. %d instead of %d ..", pos, pos + n - 1, h->next);
  h->next = pos + n;
  strata_sha256_update(h->hash, logits, (size_t)n * (size_t)h->vocab * sizeof(float));
  return true;
}

static inline void logits_hash_init(logits_hash *h, const strata_model *model, int32_t position) {
  strata_error err;
  *h = (logits_hash){.vocab = vocabulary(model), .next = position};
  must(strata_sha256_new(&h->hash, &err), &err);
}

typedef struct outcome {
  char logits[HEX], state[HEX];
} outcome;

/* Feeds ids with all logits and hashes these and the state. */
static inline outcome feed_all(strata_session *session, const strata_model *model,
                               const int32_t *ids, int32_t n, const split *s) {
  logits_hash h;
  strata_error err;
  outcome o;
  strata_feed_options options = {.all_logits = true, .on_window = hash_logits, .user = &h,
                                 .windows = s && s->n ? s->windows : NULL,
                                 .n_windows = s ? s->n : 0};
  logits_hash_init(&h, model, strata_session_position(session));
  must(strata_session_feed(session, ids, n, &options, &err), &err);
  assert_int_equal(h.next, strata_session_position(session));
  strata_sha256_finish(&h.hash, o.logits);
  strata_session_state_sha256(session, o.state);
  return o;
}

static inline outcome run_all(strata_model *model, const int32_t *ids, int32_t n, const split *s) {
  strata_session *session = new_session(model, n, n);
  outcome o = feed_all(session, model, ids, n, s);
  strata_session_free(&session);
  return o;
}

static inline void feed(strata_session *session, const int32_t *ids, int32_t n) {
  strata_error err;
  must(strata_session_feed(session, ids, n, NULL, &err), &err);
}

static inline void expect_same(const outcome *got, const outcome *want, const char *what) {
  if (strcmp(got->logits, want->logits) != 0) fail_msg("%s: the logits differ", what);
  if (strcmp(got->state, want->state) != 0) fail_msg("%s: the state differs", what);
}

/* The session's state is still the one with this hash. */
static inline void expect_state(const strata_session *session, const char *want, const char *what) {
  char got[HEX];
  strata_session_state_sha256(session, got);
  if (strcmp(got, want) != 0) fail_msg("%s: the state changed", what);
}

/* ---- prompts of the golden file -------------------------------------------------- */

static inline const int32_t *golden_ids(const st_safetensors *golden, const char *name,
                                        int32_t *n) {
  const st_tensor *t = st_safetensors_find(golden, name);
  if (!t) fail_msg("no golden %s", name);
  *n = (int32_t)t->n_elems;
  return (const int32_t *)(const void *)t->data;
}

static inline st_safetensors *open_golden(void) {
  st_safetensors *golden;
  strata_error err;
  must(st_safetensors_open("tests/golden/strata-tiny.safetensors", &golden, &err), &err);
  return golden;
}

/* ---- a new process --------------------------------------------------------------- */

static inline void path_in(char path[PATH_BYTES], const char *dir, const char *name) {
  int n = snprintf(path, PATH_BYTES, "%s/%s", dir, name);
  assert_in_range(n, 1, PATH_BYTES - 1);
}

/* Runs this program with arguments (NULL-terminated, argv[0] included), fills
 * output with what it prints, and fails unless it exits with 0. */
static inline void run_self(const char *const *arguments, char *output, size_t output_bytes) {
  int ends[2], wait_status;
  size_t used = 0;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv("/proc/self/exe", (char *const *)(uintptr_t)arguments);
    _exit(127);
  }
  close(ends[1]);
  for (ssize_t got; used + 1 < output_bytes &&
                    (got = read(ends[0], output + used, output_bytes - 1 - used)) > 0;)
    used += (size_t)got;
  output[used] = 0;
  close(ends[0]);
  assert_int_equal(waitpid(child, &wait_status, 0), child);
  if (wait_status != 0) fail_msg("the new process ended with %d: %s", wait_status, output);
}

#endif
