/* Captured calls: what a session writes when it captures, that it changes nothing, that
 * every kernel leaves on captured inputs what the model's own kernel left, and that a
 * trace which is not what was written is refused or fails. On strata-tiny with the
 * recall prompt, from position 262 on, where attention is sparse (budget 259) and the
 * caches have a second page (256). */
#include "engine_test.h"

#include "core/st_mem.h"
#include "kreg/st_kreg.h"
#include "lab/lab_parity.h"
#include "os/st_cpu.h"

#define MODEL "models/strata-tiny"

enum { BEFORE = 262, T = 20, KINDS = 3, GDN_LAYER = 0, QSA_LAYER = 3, HASH_BYTES = 64, FILE_MAX = 1 << 24 };

static struct {
  st_safetensors *golden;
  strata_engine *engine;
  strata_model *model;
  const int32_t *ids;
  strata_session *started[KINDS]; /* BEFORE tokens were fed */
  char dir[ST_TEST_DIR_BYTES];
} fix;

/* ---- captures ---------------------------------------------------------------------- */

static strata_session *continue_session(strata_kv kv) {
  strata_error err;
  strata_session *s = new_session_kv(fix.model, 400, 64, kv);
  must(strata_session_copy(s, fix.started[kv], &err), &err);
  return s;
}

static void start_capture(strata_session *s, const char *op, int32_t layer, int32_t calls) {
  const strata_capture_options options = {op, layer, calls, fix.dir};
  strata_error err;
  must(strata_session_capture(s, &options, &err), &err);
}

/* One window of T tokens and one of one token. */
static void go_on(strata_session *s) {
  feed(s, fix.ids + BEFORE, T);
  feed(s, fix.ids + BEFORE + T, 1);
}

static int32_t capture(const char *op, int32_t layer, int32_t calls, strata_kv kv) {
  strata_session *s = continue_session(kv);
  start_capture(s, op, layer, calls);
  go_on(s);
  const int32_t n = strata_session_captured(s);
  strata_session_free(&s);
  return n;
}

static void path_of(char path[PATH_BYTES], const char *op, const char *layer, int32_t call) {
  char name[96];
  snprintf(name, sizeof name, "%s-%s-%d.trace", op, layer, call);
  path_in(path, fix.dir, name);
}

static void clear(void) {
  st_test_dir_remove(fix.dir);
  st_test_dir_new(fix.dir);
}

/* ---- replaying --------------------------------------------------------------------- */

static void expect_pass(const lab_trial *trial, const char *path, const char *variant, bool once) {
  lab_parity parity = {0};
  strata_error err;
  must(once ? lab_parity_once(trial, &parity, &err) : lab_parity_check(trial, &parity, &err), &err);
  if (parity.word != LAB_PASS)
    fail_msg("%s: %s, %s: %s: %s", path, variant, once ? "captured" : "oracle",
             lab_word_name(parity.word), parity.detail);
  if (parity.n_buffers == 0) fail_msg("%s: no output was compared", path);
}

/* Every variant that this CPU has; returns how many. */
static int32_t replay(const char *path) {
  lab_trace trace;
  strata_error err;
  const stk_kernel *kernel;
  int32_t n = 0;
  must(lab_trace_open(path, &trace, &err), &err);
  const st_op op = (st_op)st_kreg_op_by_name(trace.op->name);
  for (int32_t i = 0; (kernel = st_kreg_variant(op, i)); ++i) {
    if (!st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa))) continue;
    lab_trial trial = {.op = trace.op, .shape = trace.shape, .trace = &trace, .base = lab_runner_of(trace.op->oracle),
                       .cand = lab_runner_of(kernel), .bound = kernel->numerics == STK_FAST ? trace.op->fast_bound : 0};
    expect_pass(&trial, path, kernel->variant, false);
    trial.captured = true;
    expect_pass(&trial, path, kernel->variant, true);
    ++n;
  }
  lab_trace_close(&trace);
  return n;
}

static void capture_and_replay(const char *op, int32_t layer, strata_kv kv, int32_t expected) {
  char name[16] = "outside", path[PATH_BYTES];
  if (layer >= 0) snprintf(name, sizeof name, "%d", layer);
  const int32_t n = capture(op, layer, 1, kv);
  if (layer >= 0 && n != expected) fail_msg("%s: %d calls captured, not %d", op, n, expected);
  for (int32_t call = 0; call < expected; ++call) {
    path_of(path, op, name, call);
    assert_in_range(replay(path), 1, 100);
  }
  clear();
}

/* In a window and token by token. */
static void test_layers(void **state) {
  static const char *const both[] = {"gdn_pre", "gdn_post", "linear", "hc_norm", "hc_mix",
                                     "moe_route", "moe_up", "moe_down"};
  (void)state;
  for (size_t i = 0; i < sizeof both / sizeof *both; ++i)
    capture_and_replay(both[i], GDN_LAYER, STRATA_KV_F32, 2);
  capture_and_replay("gdn_scan", GDN_LAYER, STRATA_KV_F32, 1);
  capture_and_replay("gdn_step", GDN_LAYER, STRATA_KV_F32, 1);
  capture_and_replay("linear", QSA_LAYER, STRATA_KV_F32, 2);
}

static void test_attention(void **state) {
  static const char *const ops[] = {"qsa_prep", "qsa_score", "qsa_topk", "qsa_flash", "qsa_decode", "qsa_merge"};
  (void)state;
  for (int kv = 0; kv < KINDS; ++kv)
    for (size_t i = 0; i < sizeof ops / sizeof *ops; ++i)
      capture_and_replay(ops[i], QSA_LAYER, (strata_kv)kv, i < 3 ? 2 : 1);
}

static void test_outside_layers(void **state) {
  (void)state;
  capture_and_replay("embed", -1, STRATA_KV_F32, 2);
  capture_and_replay("rope_table", -1, STRATA_KV_F32, 2);
  capture_and_replay("linear", -1, STRATA_KV_F32, 1); /* the head sees one token */
}

/* The layers of the n-gram embedding are not known here: all are taken. */
static void test_ngrams(void **state) {
  static const char *const ops[] = {"ple_embed", "ple_mix", "ple_conv"};
  strata_model_info info;
  (void)state;
  strata_model_get_info(fix.model, &info);
  for (size_t i = 0; i < 3; ++i) {
    int32_t n = capture(ops[i], -1, 1, STRATA_KV_F32), found = 0;
    for (int32_t layer = 0; layer < info.n_layers; ++layer)
      for (int32_t call = 0; call < 2; ++call) {
        char name[16], path[PATH_BYTES];
        snprintf(name, sizeof name, "%d", layer);
        path_of(path, ops[i], name, call);
        if (access(path, F_OK) != 0) continue;
        ++found;
        replay(path);
      }
    assert_int_equal(found, n);
    assert_in_range(n, 2, 100);
    clear();
  }
}

/* ---- what capturing does ------------------------------------------------------------- */

static void test_nothing_changes(void **state) {
  static const char *const ops[] = {"gdn_pre", "qsa_prep", "hc_norm", "ple_conv"};
  char want[HEX];
  (void)state;
  strata_session *plain = continue_session(STRATA_KV_Q8);
  go_on(plain);
  strata_session_state_sha256(plain, want);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; ++i) {
    strata_session *s = continue_session(STRATA_KV_Q8);
    start_capture(s, ops[i], -1, 9);
    go_on(s);
    expect_state(s, want, ops[i]);
    strata_session_free(&s);
    clear();
  }
  strata_session_free(&plain);
}

/* At most so many calls of each kind and layer; none once it is stopped. */
static void test_counts(void **state) {
  strata_error err;
  char path[PATH_BYTES];
  (void)state;
  strata_session *s = continue_session(STRATA_KV_F32);
  start_capture(s, "hc_mix", 1, 3); /* two reads of the streams a layer and window */
  go_on(s);
  assert_int_equal(strata_session_captured(s), 4);
  go_on(s);
  assert_int_equal(strata_session_captured(s), 6);
  path_of(path, "hc_mix", "1", 5);
  assert_int_equal(access(path, F_OK), 0);
  path_of(path, "hc_mix", "1", 6);
  assert_int_not_equal(access(path, F_OK), 0);
  must(strata_session_capture(s, NULL, &err), &err);
  go_on(s);
  assert_int_equal(strata_session_captured(s), 0);
  strata_session_free(&s);
  clear();
}

static void test_refused(void **state) {
  strata_session *s = continue_session(STRATA_KV_F32);
  strata_error err;
  (void)state;
  const strata_capture_options bad[] = {{"nosuch", -1, 1, fix.dir}, {NULL, -1, 1, fix.dir},
                                        {"hc_mix", 99, 1, fix.dir}, {"hc_mix", -2, 1, fix.dir},
                                        {"hc_mix", 0, 0, fix.dir},  {"hc_mix", 0, 1, ""}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i)
    st_test_expect_error(strata_session_capture(s, &bad[i], &err), &err, STRATA_ARG, "capture", NULL);
  go_on(s);
  strata_session_free(&s);
}

/* A file that is there stays, and the feed fails. */
static void test_no_overwriting(void **state) {
  strata_error err;
  (void)state;
  st_test_file_write(fix.dir, "hc_mix-0-0.trace", "mine", 4);
  strata_session *s = continue_session(STRATA_KV_F32);
  start_capture(s, "hc_mix", 0, 1);
  st_test_expect_error(strata_session_feed(s, fix.ids, 3, NULL, &err), &err, STRATA_ARG, "hc_mix-0-0.trace", "there already");
  st_test_expect_error(strata_session_feed(s, fix.ids, 3, NULL, &err), &err, STRATA_STATE, NULL, NULL);
  strata_session_free(&s);
  clear();
}

/* Memory that runs out anywhere leaves an error and no file. */
static void test_out_of_memory(void **state) {
  strata_error err;
  strata_status status = STRATA_NOMEM;
  char path[PATH_BYTES];
  (void)state;
  path_of(path, "qsa_prep", "3", 0);
  strata_session *s = continue_session(STRATA_KV_F32);
  int64_t n = 0;
  for (; status != STRATA_OK; ++n) {
    assert_in_range(n, 0, 500);
    must(strata_session_copy(s, fix.started[STRATA_KV_F32], &err), &err);
    start_capture(s, "qsa_prep", QSA_LAYER, 1);
    st_mem_fail_at(n);
    status = strata_session_feed(s, fix.ids, 2, NULL, &err);
    st_mem_fail_at(-1);
    if (status != STRATA_OK && status != STRATA_NOMEM) fail_msg("allocation %d: %s", (int)n, err.message);
    assert_int_equal(access(path, F_OK) == 0, status == STRATA_OK);
  }
  assert_in_range(n, 20, 500);
  strata_session_free(&s);
  clear();
}

/* ---- traces that are not what was written --------------------------------------------- */

typedef struct bytes {
  uint8_t *data; /* aligned */
  size_t n;
} bytes;

static bytes read_bytes(const char *path) {
  char *text;
  bytes b;
  void *memory;
  strata_error err;
  must(st_file_read(path, FILE_MAX, &text, &b.n, &err), &err);
  must(st_calloc_aligned(&memory, b.n, 1, "a trace", &err), &err);
  b.data = memory;
  memcpy(b.data, text, b.n);
  st_free(text);
  return b;
}

static void fix_hash(bytes *b) {
  char hex[HEX];
  strata_sha256 *hash;
  strata_error err;
  must(strata_sha256_new(&hash, &err), &err);
  strata_sha256_update(hash, b->data, b->n - HASH_BYTES);
  strata_sha256_finish(&hash, hex);
  memcpy(b->data + b->n - HASH_BYTES, hex, HASH_BYTES);
}

static bytes captured_bytes(const char *op, int32_t layer) {
  char path[PATH_BYTES], name[16];
  capture(op, layer, 1, STRATA_KV_F32);
  snprintf(name, sizeof name, "%d", layer);
  path_of(path, op, name, 0);
  bytes b = read_bytes(path);
  clear();
  return b;
}

static void expect_refused(const bytes *b, strata_status want, const char *what) {
  lab_trace trace;
  strata_error err;
  st_test_expect_error(lab_trace_read("t", b->data, b->n, &trace, &err), &err, want, "t: ", what);
}

static void test_changed_bytes(void **state) {
  bytes b = captured_bytes("gdn_step", GDN_LAYER);
  strata_error err;
  (void)state;
  for (size_t at = 0; at < b.n; at += at < 2048 ? 1 : b.n / 97) {
    lab_trace trace;
    b.data[at] ^= 1;
    assert_int_not_equal(lab_trace_read("t", b.data, b.n, &trace, &err), STRATA_OK);
    b.data[at] ^= 1;
  }
  b.data[b.n - HASH_BYTES - 200] ^= 4;
  expect_refused(&b, STRATA_FORMAT, "unchanged");
  b.data[b.n - HASH_BYTES - 200] ^= 4;
  const bytes cuts[] = {{b.data, 0}, {b.data, 64}, {b.data, 200}, {b.data, b.n / 2}, {b.data, b.n - 1}};
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; ++i) expect_refused(&cuts[i], STRATA_FORMAT, "expected");
  st_free(b.data);
}

static void test_other_contract(void **state) {
  bytes b = captured_bytes("hc_mix", GDN_LAYER);
  st_trace_head *head = (st_trace_head *)(void *)b.data, original = *head;
  (void)state;
  ++head->contract;
  fix_hash(&b);
  expect_refused(&b, STRATA_UNSUPPORTED, "contract");
  *head = original;
  snprintf(head->op, sizeof head->op, "nosuch");
  fix_hash(&b);
  expect_refused(&b, STRATA_UNSUPPORTED, "nosuch");
  snprintf(head->op, sizeof head->op, "hc_norm"); /* the same contract number, other args */
  fix_hash(&b);
  expect_refused(&b, STRATA_UNSUPPORTED, "hc_norm");
  *head = original;
  ++head->version;
  fix_hash(&b);
  expect_refused(&b, STRATA_FORMAT, "version");
  *head = original;
  fix_hash(&b);
  lab_trace trace;
  strata_error err;
  must(lab_trace_read("t", b.data, b.n, &trace, &err), &err);
  lab_trace_close(&trace);
  st_free(b.data);
}

/* The plain run beside the captured outputs: only the buffer called name differs. */
static void expect_failing_buffer(const bytes *b, const char *name) {
  lab_trace trace;
  lab_parity parity = {0};
  strata_error err;
  must(lab_trace_read("t", b->data, b->n, &trace, &err), &err);
  lab_trial trial = {.op = trace.op, .shape = trace.shape, .trace = &trace, .base = lab_runner_of(trace.op->oracle),
                     .cand = lab_runner_of(st_kreg_variant((st_op)st_kreg_op_by_name(trace.op->name), 0)), .captured = true};
  must(lab_parity_once(&trial, &parity, &err), &err);
  assert_int_equal(parity.word, LAB_WRONG_RESULT);
  for (int32_t i = 0; i < parity.n_buffers; ++i)
    if ((parity.buffers[i].word != LAB_EQUAL) != (strcmp(parity.buffers[i].tensor, name) == 0))
      fail_msg("%s: word %d, with %s edited", parity.buffers[i].tensor, parity.buffers[i].word, name);
  trial.captured = false;
  must(lab_parity_once(&trial, &parity, &err), &err);
  assert_int_equal(parity.word, LAB_PASS);
  lab_trace_close(&trace);
}

/* One byte of each output in turn, under a hash that fits. */
static void test_edited_outputs(void **state) {
  static const char *const ops[] = {"gdn_pre", "moe_up", "gdn_step"};
  (void)state;
  for (size_t i = 0; i < sizeof ops / sizeof *ops; ++i) {
    bytes b = captured_bytes(ops[i], GDN_LAYER);
    st_trace trace;
    strata_error err;
    int32_t n = 0;
    must(st_trace_parse("t", b.data, b.n, &trace, &err), &err);
    for (uint32_t t = 0; t < trace.head->n_tensors; ++t) {
      const st_trace_row *row = &trace.rows[t];
      if (!row->after) continue;
      uint8_t *byte = b.data + row->after + st_trace_row_bytes(row) / 2;
      *byte ^= 1;
      fix_hash(&b);
      expect_failing_buffer(&b, row->name);
      *byte ^= 1;
      ++n;
    }
    assert_in_range(n, 2, 24);
    st_free(b.data);
  }
}

/* ---- fixture -------------------------------------------------------------------------- */

static int set_up(void **state) {
  int32_t n;
  (void)state;
  fix.golden = open_golden();
  fix.ids = golden_ids(fix.golden, "recall.ids", &n);
  assert_in_range(n, BEFORE + 2 * T, 10000);
  fix.engine = new_engine(NULL, 2);
  fix.model = open_model(fix.engine, MODEL);
  for (int kv = 0; kv < KINDS; ++kv) {
    fix.started[kv] = new_session_kv(fix.model, 400, 300, (strata_kv)kv);
    feed(fix.started[kv], fix.ids, BEFORE);
  }
  st_test_dir_new(fix.dir);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  st_test_dir_remove(fix.dir);
  for (int kv = 0; kv < KINDS; ++kv) strata_session_free(&fix.started[kv]);
  strata_model_close(&fix.model);
  strata_engine_free(&fix.engine);
  st_safetensors_close(&fix.golden);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layers),         cmocka_unit_test(test_attention),
      cmocka_unit_test(test_outside_layers), cmocka_unit_test(test_ngrams),
      cmocka_unit_test(test_nothing_changes), cmocka_unit_test(test_counts),
      cmocka_unit_test(test_refused),        cmocka_unit_test(test_no_overwriting),
      cmocka_unit_test(test_out_of_memory),  cmocka_unit_test(test_changed_bytes),
      cmocka_unit_test(test_other_contract), cmocka_unit_test(test_edited_outputs),
  };
  return cmocka_run_group_tests_name("capture", tests, set_up, tear_down);
}
