/* The laboratory's part for GPUs, without one: the device is the emulator, behind a
 * driver that is none (fake_driver.h). Cases go there and back, tables of pages lead into
 * its memory, wrong kernels are noticed, graphs are timed, nothing stays behind. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "device/cuda/st_cuda_kernels.h"
#include "gdn_scan/gdn_scan.h"
#include "kreg/st_kreg.h"
#include "kreg/st_source.h"
#include "lab/lab_cuda.h"
#include "lab/lab_cuda_bench.h"
#include "lab/lab_cuda_roof.h"
#include "qsa_prep/qsa_prep.h"
#include "tests/cuda/cuda_emulator.h"
#include "tests/cuda/fake_driver.h"

#define STK_CUDA(op, entry) extern const stk_cuda_kernel stk_cuda_##entry; cuda_entry entry;
#include "cuda.inc"
#undef STK_CUDA

/* What a launch does: runs the kernel, nothing, writes where it must not, does so and runs
 * the kernel. And one of gdn_scan_cuda_c4: it leaves the output alone, or makes it wrong in
 * one set, always in the same way, or each time in another. */
typedef enum deed {
  HONEST, IDLE, BEFORE_AN_INPUT, BEHIND_A_TABLE, KEEPS_OUTPUT, SPOILS_A_SET, IS_OFF, VARIES
} deed;

fake_counts fake_open;
static deed todo;
static int n_launches;
/* The output of the set that the fifth launch had: a set whose turn it is when the second
 * round looks at what the candidate left. */
static const float *spoiled;
enum { SPOILED = 5, SCAN_FLOATS = 64 };

const fake_kernel *fake_driver_find(const char *name) {
  static fake_kernel kernels[] = {
#define STK_CUDA(op, entry) {#entry, entry, 0},
#include "cuda.inc"
#undef STK_CUDA
  };
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; ++i)
    if (strcmp(name, kernels[i].name) == 0) {
      kernels[i].args_bytes = st_cuda_kernel_at((int32_t)i)->args_bytes;
      return &kernels[i];
    }
  /* qsa_prep's kernel, and no other, says that it waits for those before it. */
  static const fake_kernel waits = {"qsa_prep_cuda_waits", NULL, 0};
  return strcmp(name, waits.name) == 0 ? &waits : NULL;
}

static const char *run_scan(const fake_kernel *kernel, const stk_gdn_scan_args *args, const stk_cuda_launch *launch) {
  static float elsewhere[SCAN_FLOATS];
  const bool culprit = strcmp(kernel->name, "gdn_scan_cuda_c4") == 0;
  stk_gdn_scan_args a = *args;
  if (n_launches == SPOILED) spoiled = a.o;
  if (culprit && todo == KEEPS_OUTPUT) a.o = elsewhere;
  const char *wrong = cuda_emulate(kernel->entry, &a, launch, CUDA_SHUFFLED);
  float *o = a.o;
  if (culprit && (todo == IS_OFF || (todo == SPOILS_A_SET && o == spoiled))) o[0] += 1;
  if (culprit && todo == VARIES) o[0] += (float)n_launches;
  return wrong;
}

/* The other deeds are for qsa_prep. */
const char *fake_driver_run(const fake_kernel *kernel, void *args, const stk_cuda_launch *launch) {
  const stk_qsa_prep_args *a = args;
  ++n_launches;
  if (strncmp(kernel->name, "gdn_scan", 8) == 0) return run_scan(kernel, args, launch);
  if (todo == BEFORE_AN_INPUT) ((uint8_t *)(uintptr_t)a->k_raw)[-1] ^= 1;
  if (todo == BEHIND_A_TABLE)
    *(uint8_t *)(uintptr_t)(a->block_pages + stk_cache_pages((a->pos0 + a->n_tokens) / a->ratio)) ^= 1;
  return todo == HONEST || todo == BEHIND_A_TABLE ? cuda_emulate(kernel->entry, args, launch, CUDA_SHUFFLED) : NULL;
}

/* ---- the device ------------------------------------------------------------------ */

static char folder[64];
static st_cuda *cuda;

static int open_device(void **state) {
  strata_error err;
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/strata-device-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  if (st_cuda_open(0, folder, &cuda, &err) == STRATA_OK) return 0;
  print_error("%s\n", err.message);
  return -1;
}

static int close_device(void **state) {
  char command[96];
  (void)state;
  st_cuda_close(&cuda);
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command);
}

/* All that was opened is closed. */
static void assert_nothing_open(void) {
  assert_int_equal(fake_open.memories, 0);
  assert_int_equal(fake_open.modules, 0);
  assert_int_equal(fake_open.graphs, 0);
}

static void test_info(void **state) {
  const st_cuda_info *info = st_cuda_info_of(cuda);
  (void)state;
  assert_string_equal(info->name, "an emulated device");
  assert_string_equal(info->arch, "sm_90a");
  assert_int_equal(info->l2_bytes, 1 << 20);
}

/* ---- parity ---------------------------------------------------------------------- */

static void keep_detail(void *user, const char *name, const char *detail) {
  char *kept = user;
  (void)name;
  if (detail && !kept[0]) snprintf(kept, 256, "%s", detail);
}

static void check(deed what, int32_t want_passed, int32_t want_failed, char detail[256]) {
  int32_t n_passed, n_failed;
  strata_error err;
  detail[0] = 0;
  todo = what;
  strata_status status = lab_cuda_check(cuda, "qsa_prep", 1, keep_detail, detail, &n_passed, &n_failed, &err);
  todo = HONEST;
  if (status != STRATA_OK) fail_msg("%s", err.message);
  if (detail[0]) print_message("%s\n", detail);
  assert_int_equal(n_passed, want_passed);
  assert_int_equal(n_failed, want_failed);
  assert_nothing_open();
}

static void test_parity(void **state) {
  char detail[256];
  (void)state;
  n_launches = fake_open.overlapped = 0;
  check(HONEST, 2, 0, detail);
  assert_true(n_launches > 0);
  assert_int_equal(fake_open.overlapped, n_launches);
}

static void test_notices(void **state) {
  char detail[256];
  (void)state;
  check(IDLE, 0, 2, detail);
  assert_non_null(strstr(detail, "q is unwritten"));
  check(BEFORE_AN_INPUT, 0, 2, detail);
  assert_non_null(strstr(detail, "wrote outside k_raw, 1 bytes before its start"));
  check(BEHIND_A_TABLE, 0, 2, detail);
  assert_non_null(strstr(detail, "wrote outside block_pages, 0 bytes past its end"));
}

static void test_no_such_op(void **state) {
  int32_t n_passed, n_failed;
  strata_error err;
  (void)state;
  assert_int_equal(lab_cuda_check(cuda, "linear", 1, keep_detail, NULL, &n_passed, &n_failed, &err), STRATA_ARG);
}

/* ---- times ----------------------------------------------------------------------- */

/* A shape of qsa_score that is cheap to emulate. */
#define SMALL "pos0=300,Hi=1,Di=32,B=64"

static void test_roof(void **state) {
  enum { ROUNDS = 2, WARM = 2 };
  const int32_t tokens[] = {1, 2};
  lab_roof_request request = {.op = st_kreg_op(ST_OP_qsa_score), .tokens = tokens, .n_tokens = 2};
  lab_roof_row rows[LAB_ROOF_ROWS_MAX];
  lab_ceilings ceilings = {0};
  strata_error err;
  int32_t n;
  (void)state;
  ceilings.all.flops_per_s = 1e12;
  ceilings.all.capacity[LAB_DRAM] = INT64_MAX;
  for (int traffic = 0; traffic < ST_TRAFFICS; ++traffic) ceilings.all.bytes_per_s[LAB_DRAM][traffic] = 1e9;
  assert_int_equal(lab_settings_parse(&request.settings, SMALL, &err), STRATA_OK);
  n_launches = fake_open.overlapped = 0;
  if (lab_cuda_roof_op(cuda, &ceilings, st_cuda_kernel_of("qsa_score", 0), &request, ROUNDS, rows, &n, &err) != STRATA_OK)
    fail_msg("%s", err.message);
  assert_int_equal(n, 2);
  assert_int_equal(n_launches, 2 * (1 + (WARM + ROUNDS) * LAB_CUDA_ROOF_LAUNCHES));
  assert_int_equal(fake_open.overlapped, 0);
  for (int32_t i = 0; i < n; ++i) {
    assert_int_equal(rows[i].n_tokens, tokens[i]);
    assert_true(rows[i].best > 0 && rows[i].best <= rows[i].median);
    assert_true(rows[i].floor.seconds > 0 && rows[i].floor.memory == LAB_DRAM);
  }
  assert_nothing_open();
}

/* A null run of one stage: rounds are measured, and every batch leaves the same. */
static void test_bench(void **state) {
  const stk_op *op = st_kreg_op(ST_OP_qsa_score);
  const stk_cuda_kernel *kernel = st_cuda_kernel_of("qsa_score", 0);
  lab_settings settings = {0};
  lab_args args;
  lab_rule rule;
  st_source text;
  strata_error err;
  lab_cuda_bench *bench;
  (void)state;
  assert_true(st_source_find(kernel->source, &text));
  assert_int_equal(lab_settings_parse(&settings, "T=1," SMALL, &err), STRATA_OK);
  assert_int_equal(lab_args_make(op, &settings, &args, &err), STRATA_OK);
  assert_int_equal(lab_rule_parse("{\"min_rounds\": 4, \"max_rounds\": 4}", "rule", &rule, &err), STRATA_OK);
  const lab_cuda_kernel same = {cuda, kernel, kernel->source, (char *)(uintptr_t)text.text};
  const lab_cuda_stage stage = {.op = op, .args = &args, .kernel = {[LAB_BASE] = same, [LAB_NULL] = same}};
  lab_samples *samples = calloc(1, lab_samples_bytes(&rule));
  assert_non_null(samples);
  if (lab_cuda_bench_new(cuda, &stage, 1, LAB_CALLS_MAX, 1, &bench, &err) != STRATA_OK) fail_msg("%s", err.message);
  if (lab_cuda_bench_measure(bench, 0, &rule, 5.0, samples, &err) != STRATA_OK) fail_msg("%s", err.message);
  assert_int_equal(samples->n, 8); /* of two arms */
  assert_false(samples->changed);
  lab_cuda_bench_free(&bench);
  free(samples);
  assert_nothing_open();
}

/* Rounds of gdn_scan beside a candidate that does this; whether a batch was seen to leave
 * something else. */
static bool is_seen(deed what, double bound) {
  static const stk_gdn_scan_args shape = {.n_tokens = 2, .k_heads = 1, .v_heads = 1, .k_dim = 32, .v_dim = 32};
  const stk_cuda_kernel *kernel = st_cuda_kernel_of("gdn_scan", 0), *other = kernel;
  lab_args args;
  lab_rule rule;
  strata_error err;
  lab_cuda_bench *bench;
  for (int32_t i = 0; strcmp(other->entry, "gdn_scan_cuda_c4") != 0; ++i) other = st_cuda_kernel_of("gdn_scan", i);
  memcpy(args.bytes, &shape, sizeof shape);
  assert_int_equal(lab_rule_parse("{\"min_rounds\": 4, \"max_rounds\": 4}", "rule", &rule, &err), STRATA_OK);
  const lab_cuda_kernel base = {cuda, kernel, kernel->source, (char *)(uintptr_t)"base"};
  const lab_cuda_kernel cand = {cuda, other, other->source, (char *)(uintptr_t)"candidate"};
  const lab_cuda_stage stage = {.op = st_kreg_op(ST_OP_gdn_scan), .args = &args, .bound = bound,
                                .kernel = {[LAB_BASE] = base, [LAB_CAND] = cand, [LAB_NULL] = base}};
  lab_samples *samples = calloc(1, lab_samples_bytes(&rule));
  assert_non_null(samples);
  n_launches = 0;
  todo = what;
  if (lab_cuda_bench_new(cuda, &stage, 1, LAB_CALLS_MAX, 1, &bench, &err) != STRATA_OK) fail_msg("%s", err.message);
  assert_true(lab_cuda_bench_sets(bench) > SPOILED);
  if (lab_cuda_bench_measure(bench, 0, &rule, 30.0, samples, &err) != STRATA_OK) fail_msg("%s", err.message);
  todo = HONEST;
  const bool seen = samples->changed;
  assert_int_equal(samples->n, seen ? 0 : 16);
  lab_cuda_bench_free(&bench);
  free(samples);
  assert_nothing_open();
  return seen;
}

/* Outputs are poisoned before a batch; not only the last set is looked at; a fast
 * candidate owes its own bytes. */
static void test_bench_notices(void **state) {
  (void)state;
  assert_false(is_seen(HONEST, 0));
  assert_true(is_seen(KEEPS_OUTPUT, 0));
  assert_true(is_seen(SPOILS_A_SET, 0));
  assert_true(is_seen(IS_OFF, 0));
  assert_false(is_seen(IS_OFF, STK_GDN_SCAN_FAST_BOUND));
  assert_true(is_seen(VARIES, STK_GDN_SCAN_FAST_BOUND));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_info),       cmocka_unit_test(test_parity),
                                     cmocka_unit_test(test_notices),    cmocka_unit_test(test_no_such_op),
                                     cmocka_unit_test(test_roof),       cmocka_unit_test(test_bench),
                                     cmocka_unit_test(test_bench_notices)};
  return cmocka_run_group_tests_name("the laboratory on a device", tests, open_device, close_device);
}
