/* The engine on models of other shapes than the released one: the miniature model
 * of st_test_model.h, of which no two dimensions are equal. All ways to store one
 * function give the same bytes; windows, threads and CPU levels change none; and
 * a double-precision implementation written apart agrees. */
#include "engine_test.h"

#include <math.h>

#include "reference.h"

/* The build links only the helpers of tests/unit into a test; this one is used
 * here alone. */
#include "reference.c"

/* Measured: at most 1.5e-6 over all positions and 4.3e-6 at the worst one; 1.4e-6
 * from the recordings, which are of f32 runs. */
static const double BOUND = 5e-6, WORST_BOUND = 2e-5, GOLDEN_BOUND = 1e-5;
enum { N = 60, EOS_ID = 96, MINI_VOCAB = 97, CONTEXT_MAX = 256 };

static struct {
  strata_engine *engine;
  int32_t ids[N];
} fix;

/* ---- models ----------------------------------------------------------------------- */

/* A model of its own function. changes: JSON whose keys replace the config's. */
typedef struct function {
  const char *name, *changes;
  st_test_model_options options;
} function;

static const function functions[] = {
    {"seed 0", NULL, {.seed = 0}},
    {"seed 1", NULL, {.seed = 1}},
    {"seed 2", NULL, {.seed = 2}},
    {"seed 3, two eos ids", NULL, {.seed = 3, .eos = ST_TEST_EOS_LIST}},
    {"tied", NULL, {.seed = 4, .tied = true}},
    {"without n-gram embedding", NULL, {.seed = 5, .without_ple = true}},
    {"without eos, tied", NULL,
     {.seed = 6, .without_ple = true, .tied = true, .eos = ST_TEST_EOS_NULL}},
    {"all experts used", "{\"num_experts_per_tok\": 5}", {.seed = 7}},
    {"one expert used", "{\"num_experts_per_tok\": 1}", {.seed = 8}},
    {"experts not renormalised", "{\"norm_topk_prob\": false}", {.seed = 9}},
    {"blocks of one token", "{\"indexer_compress_ratio\": 1, \"indexer_budget\": 5}", {.seed = 10}},
    {"blocks of seven tokens", "{\"indexer_compress_ratio\": 7, \"indexer_budget\": 14}",
     {.seed = 11}},
    {"one block attended", "{\"indexer_budget\": 3}", {.seed = 12}},
    {"never sparse", "{\"indexer_budget\": 240}", {.seed = 13}},
    {"more rotary dimensions",
     "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 500.0,"
     " \"partial_rotary_factor\": 0.5}}",
     {.seed = 14}},
    {"a larger epsilon", "{\"rms_norm_eps\": 0.01}", {.seed = 15}},
    {"another hash", "{\"seed\": 77}", {.seed = 16, .without_hash_tensors = true}},
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static void apply_changes(json_t *config, void *user) {
  json_error_t error;
  json_t *changes = json_loads(user, 0, &error);
  if (!changes) fail_msg("%s", error.text);
  assert_int_equal(json_object_update(config, changes), 0);
  json_decref(changes);
}

static void write_model(char dir[ST_TEST_DIR_BYTES], const function *f) {
  st_test_model_options options = f->options;
  if (f->changes) {
    options.edit_config = apply_changes;
    options.user = (void *)(uintptr_t)f->changes;
  }
  st_test_dir_new(dir);
  st_test_model_write(dir, &options);
}

/* The logits of an own run of a model directory. */
static outcome run_directory(strata_engine *engine, const char *dir, const split *s) {
  strata_model *model = open_model(engine, dir);
  outcome o = run_all(model, fix.ids, N, s);
  strata_model_close(&model);
  return o;
}

/* ---- storage ------------------------------------------------------------------------ */

static const struct {
  const char *name;
  st_test_model_options options;
} storages[] = {
    {"bf16", {.matrix_dtype = ST_DTYPE_BF16, .vector_dtype = ST_DTYPE_BF16}},
    {"f16", {.matrix_dtype = ST_DTYPE_F16, .vector_dtype = ST_DTYPE_F16}},
    {"bf16 matrices", {.matrix_dtype = ST_DTYPE_BF16}},
    {"f16 matrices, bf16 vectors", {.matrix_dtype = ST_DTYPE_F16, .vector_dtype = ST_DTYPE_BF16}},
    {"f32 matrices, f16 vectors", {.vector_dtype = ST_DTYPE_F16}},
    {"experts stacked", {.stacked_experts = true}},
    {"experts stacked, bf16", {.stacked_experts = true, .matrix_dtype = ST_DTYPE_BF16}},
    {"experts stacked in odd layers, f16",
     {.stacked_odd_layers = true, .matrix_dtype = ST_DTYPE_F16}},
    {"table whole", {.whole_table = true}},
    {"table whole, f16", {.whole_table = true, .matrix_dtype = ST_DTYPE_F16}},
    {"no hash tensors", {.without_hash_tensors = true}},
    {"nested config", {.nested_config = true, .prefix = "model.language_model."}},
    {"prefix language_model.", {.prefix = "language_model."}},
    {"no prefix", {.prefix = ""}},
    {"two files", {.n_files = 2}},
    {"five files, bf16", {.n_files = 5, .matrix_dtype = ST_DTYPE_BF16}},
    {"unaligned", {.unaligned = true}},
    {"unaligned, bf16", {.unaligned = true, .matrix_dtype = ST_DTYPE_BF16}},
    {"unaligned, f16, three files, stacked, whole, nested",
     {.unaligned = true, .matrix_dtype = ST_DTYPE_F16, .vector_dtype = ST_DTYPE_BF16, .n_files = 3,
      .stacked_experts = true, .whole_table = true, .nested_config = true,
      .prefix = "model.language_model.", .without_hash_tensors = true}},
};
enum { N_STORAGES = sizeof storages / sizeof *storages };

/* All storages of one function: which is told by seed, tied and without_ple. */
static void check_storages(uint64_t seed, bool tied, bool without_ple) {
  char dir[ST_TEST_DIR_BYTES], what[128];
  function f = {.options = {.seed = seed, .tied = tied, .without_ple = without_ple}};
  write_model(dir, &f);
  outcome want = run_directory(fix.engine, dir, NULL);
  st_test_dir_remove(dir);
  for (int32_t i = 0; i < N_STORAGES; ++i) {
    f.options = storages[i].options;
    f.options.seed = seed;
    f.options.tied = tied;
    f.options.without_ple = without_ple;
    snprintf(what, sizeof what, "seed %d: %s", (int)seed, storages[i].name);
    write_model(dir, &f);
    outcome got = run_directory(fix.engine, dir, NULL);
    expect_same(&got, &want, what);
    st_test_dir_remove(dir);
  }
}

static void test_storage(void **state) {
  (void)state;
  check_storages(21, false, false);
  check_storages(22, true, false);
  check_storages(23, false, true);
}

/* The kernels of every level read the three types. */
static void test_storage_at_levels(void **state) {
  static const st_tensor_dtype types[] = {ST_DTYPE_F32, ST_DTYPE_F16, ST_DTYPE_BF16};
  char dir[ST_TEST_DIR_BYTES], what[64];
  outcome want = {.state = ""};
  (void)state;
  for (int32_t i = 0; i < 3 * N_ISA_LEVELS; ++i) {
    const char *isa = isa_levels[i / 3];
    function f = {.options = {.seed = 24, .matrix_dtype = types[i % 3]}};
    if (!has_isa(isa)) continue;
    strata_engine *engine = new_engine(isa, 2);
    write_model(dir, &f);
    outcome got = run_directory(engine, dir, &(split){"7 ...", {7}, 1});
    if (i == 0) want = got;
    snprintf(what, sizeof what, "%s of %s", st_tensor_dtype_name(types[i % 3]), isa);
    expect_same(&got, &want, what);
    st_test_dir_remove(dir);
    strata_engine_free(&engine);
  }
}

/* Different functions give different logits: the comparisons above can fail. */
static void test_functions_differ(void **state) {
  outcome seen[N_FUNCTIONS];
  (void)state;
  for (int32_t i = 0; i < N_FUNCTIONS; ++i) {
    char dir[ST_TEST_DIR_BYTES];
    function f = functions[i];
    f.options.seed = 0; /* so that only the other options make the difference */
    write_model(dir, &f);
    seen[i] = run_directory(fix.engine, dir, NULL);
    st_test_dir_remove(dir);
    for (int32_t j = 3; j < i; ++j)
      if (strcmp(seen[i].logits, seen[j].logits) == 0)
        fail_msg("'%s' and '%s' give the same logits", functions[i].name, functions[j].name);
  }
}

/* ---- windows, threads, CPU levels ----------------------------------------------------- */

/* The scalar level is slow: it gets the first two splits. */
static void check_all_ways(const function *f) {
  static const split splits[] = {
      {"37 ...", {37}, 1},  {"3 8 2 ...", {3, 8, 2}, 3}, {"whole", {N}, 1},
      {"one by one", {1}, 1}, {"59 1", {59, 1}, 2},
  };
  enum { N_SPLITS = sizeof splits / sizeof *splits };
  static const int32_t threads[] = {1, 2, 7};
  char dir[ST_TEST_DIR_BYTES], what[128];
  write_model(dir, f);
  outcome want = run_directory(fix.engine, dir, NULL);
  for (int32_t i = 0; i < 3 * N_ISA_LEVELS; ++i) {
    if (!has_isa(isa_levels[i / 3])) continue;
    strata_engine *engine = new_engine(isa_levels[i / 3], threads[i % 3]);
    for (int32_t k = 0; k < (i < 3 ? 2 : N_SPLITS); ++k) {
      snprintf(what, sizeof what, "%s: %s, %d threads, %s", f->name, isa_levels[i / 3],
               threads[i % 3], splits[k].name);
      outcome got = run_directory(engine, dir, &splits[k]);
      expect_same(&got, &want, what);
    }
    strata_engine_free(&engine);
  }
  st_test_dir_remove(dir);
}

/* One function with everything, and those whose windows or blocks are odd. */
static void test_all_ways(void **state) {
  static const int32_t chosen[] = {0, 6, 11};
  (void)state;
  for (size_t i = 0; i < sizeof chosen / sizeof *chosen; ++i) check_all_ways(&functions[chosen[i]]);
}

/* The last position of the model's context can be used, the next one cannot. */
static void test_full_context(void **state) {
  char dir[ST_TEST_DIR_BYTES], before[HEX];
  int32_t ids[CONTEXT_MAX];
  strata_error err;
  (void)state;
  for (int32_t i = 0; i < CONTEXT_MAX; ++i) ids[i] = (i * i + 3 * i) % MINI_VOCAB;
  write_model(dir, &functions[0]);
  strata_model *model = open_model(fix.engine, dir);
  outcome want = run_all(model, ids, CONTEXT_MAX, NULL);
  strata_session *session = new_session(model, 0, 100);
  outcome got = feed_all(session, model, ids, CONTEXT_MAX, &(split){"1 99 ...", {1, 99}, 2});
  expect_same(&got, &want, "the whole context");
  strata_session_state_sha256(session, before);
  st_test_expect_error(strata_session_feed(session, ids, 1, NULL, &err), &err, STRATA_LIMIT, "256",
                       NULL);
  expect_state(session, before, "a token past the context");
  strata_session_free(&session);
  strata_model_close(&model);
  st_test_dir_remove(dir);
}

/* ---- the double-precision implementation ----------------------------------------------- */

static double distance(const float *got, const double *want, int64_t n) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < n; ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return sqrt(difference / size);
}

typedef struct collected {
  float *logits;
  int32_t vocab;
} collected;

static bool collect(void *user, int32_t pos, int32_t n, const float *logits) {
  collected *c = user;
  memcpy(c->logits + (int64_t)pos * c->vocab, logits,
         (size_t)n * (size_t)c->vocab * sizeof *logits);
  return true;
}

/* gives the engine's logits of all positions. */
static float *engine_logits(const char *dir, const int32_t *ids, int32_t n) {
  strata_error err;
  strata_model *model = open_model(fix.engine, dir);
  strata_session *session = new_session(model, n, n);
  collected c = {.vocab = vocabulary(model)};
  c.logits = calloc((size_t)n * (size_t)c.vocab, sizeof *c.logits);
  assert_non_null(c.logits);
  must(strata_session_feed(
           session, ids, n,
           &(strata_feed_options){.all_logits = true, .on_window = collect, .user = &c}, &err),
       &err);
  strata_session_free(&session);
  strata_model_close(&model);
  return c.logits;
}

/* The worst position: a mean over all of them could hide one. */
static double worst_row(const float *got, const double *want, int32_t n, int32_t vocab) {
  double worst = 0;
  for (int32_t t = 0; t < n; ++t)
    worst = fmax(worst, distance(got + (int64_t)t * vocab, want + (int64_t)t * vocab, vocab));
  return worst;
}

static void check_reference(const char *name, const char *dir, const int32_t *ids, int32_t n,
                            const st_tensor *golden_tail) {
  reference *r = reference_open(dir);
  const int32_t vocab = reference_vocabulary(r);
  double *want = zeros((int64_t)n * vocab);
  float *got = engine_logits(dir, ids, n);
  reference_run(r, ids, n, want);
  double d = distance(got, want, (int64_t)n * vocab), worst = worst_row(got, want, n, vocab);
  print_message("    %-26s %.2e, worst position %.2e, %d sparse queries\n", name, d, worst,
                reference_sparse_queries(r));
  if (!(d <= BOUND) || !(worst <= WORST_BOUND))
    fail_msg("%s: relative L2 distance %.3e (worst position %.3e), at most %.0e expected", name, d,
             worst, BOUND);
  if (golden_tail) {
    double g = distance((const float *)(const void *)golden_tail->data,
                        want + (n - golden_tail->shape[0]) * vocab, golden_tail->n_elems);
    print_message("    %-26s %.2e against the recording\n", name, g);
    if (!(g <= GOLDEN_BOUND)) fail_msg("%s: the recording is %.3e away", name, g);
  }
  free(want);
  free(got);
  reference_close(&r);
}

static void test_reference(void **state) {
  (void)state;
  for (int32_t i = 0; i < N_FUNCTIONS; ++i) {
    char dir[ST_TEST_DIR_BYTES];
    write_model(dir, &functions[i]);
    check_reference(functions[i].name, dir, fix.ids, N, NULL);
    st_test_dir_remove(dir);
  }
}

/* On the trained model: short, and two documents with an end of text between. */
static void test_reference_tiny(void **state) {
  st_safetensors *golden = open_golden();
  int32_t n;
  (void)state;
  const int32_t *ids = golden_ids(golden, "short.ids", &n);
  check_reference("strata-tiny, short", "models/strata-tiny", ids, n,
                  st_safetensors_find(golden, "short.logits_tail"));
  ids = golden_ids(golden, "two_docs.ids", &n);
  check_reference("strata-tiny, two documents", "models/strata-tiny", ids, n,
                  st_safetensors_find(golden, "two_docs.logits_tail"));
  st_safetensors_close(&golden);
}

/* ---- fixture ---------------------------------------------------------------------------- */

/* Ends of text at the start, alone, in a row, one apart, and last. */
static int set_up(void **state) {
  static const int32_t ends[] = {0, 9, 20, 21, 33, 35, 59};
  uint32_t random = 12345;
  (void)state;
  for (int32_t i = 0; i < N; ++i) {
    random = random * 1664525u + 1013904223u;
    fix.ids[i] = (int32_t)((random >> 16) % MINI_VOCAB);
  }
  for (size_t i = 0; i < sizeof ends / sizeof *ends; ++i) fix.ids[ends[i]] = EOS_ID;
  fix.engine = new_engine(NULL, 2);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  strata_engine_free(&fix.engine);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_storage),          cmocka_unit_test(test_storage_at_levels),
      cmocka_unit_test(test_functions_differ), cmocka_unit_test(test_all_ways),
      cmocka_unit_test(test_full_context),     cmocka_unit_test(test_reference),
      cmocka_unit_test(test_reference_tiny),
  };
  return cmocka_run_group_tests_name("shapes", tests, set_up, tear_down);
}
