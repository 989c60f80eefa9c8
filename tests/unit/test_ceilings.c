/* Ceilings: floors by arithmetic, what is kept, and parameters by name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/st_mem.h"
#include "lab/lab_ceilings.h"
#include "lab/lab_shape.h"
#include "linear/linear.h"
#include "os/st_dir.h"
#include "os/st_file.h"

static char directory[64];
static strata_error err;

/* ---- floors ------------------------------------------------------------------- */

/* 1 GFLOP/s; caches of 1, 10 and 100 KB at 64, 32 and 16 GB/s, memory at 8; copying
 * is half as fast, updating twice. */
static lab_rates some_rates(void) {
  lab_rates r = {.flops_per_s = 1e9, .capacity = {1000, 10000, 100000, INT64_MAX}};
  for (int m = 0; m < LAB_MEMORIES; ++m) {
    double read = 64e9 / (1 << m);
    r.bytes_per_s[m][ST_TRAFFIC_READ] = read;
    r.bytes_per_s[m][ST_TRAFFIC_COPY] = read / 2;
    r.bytes_per_s[m][ST_TRAFFIC_UPDATE] = read * 2;
  }
  return r;
}

static void assert_near(double got, double want) {
  if (!(fabs(got - want) <= 1e-12 * want)) fail_msg("%g, not %g", got, want);
}

static void test_floor(void **state) {
  const lab_rates r = some_rates();
  (void)state;
  lab_floor f = lab_floor_of(&r, &(stk_work){.flops = 5e9}, 1000);
  assert_int_equal(f.memory, LAB_L1);
  assert_near(f.seconds, 5);
  f = lab_floor_of(&r, &(stk_work){.flops = 1, .weight_bytes = 32e9}, 1001);
  assert_int_equal(f.memory, LAB_L2);
  assert_near(f.seconds, 1);
  assert_near(f.compute_s, 1e-9);
  /* Each kind of byte at the best rate that its traffic can have. */
  f = lab_floor_of(&r, &(stk_work){.weight_bytes = 8e9, .state_bytes = 8e9, .io_bytes = 8e9}, INFINITY);
  assert_int_equal(f.memory, LAB_DRAM);
  assert_near(f.seconds, 1 + 0.5 + 0.5);
  assert_int_equal(lab_memory_of(&r, 100000), LAB_L3);
  assert_int_equal(lab_memory_of(&r, 100001), LAB_DRAM);
}

/* Weights from memory, inputs from the first level, which the weights pass too. */
static void test_split_floor(void **state) {
  const lab_rates r = some_rates();
  const stk_work weights = {.weight_bytes = 8e9};
  (void)state;
  lab_floor f = lab_floor_split(&r, &(stk_work){.io_bytes = 1e9}, 1000, &weights, INFINITY);
  assert_int_equal(f.memory, LAB_DRAM);
  assert_near(f.seconds, 1);
  f = lab_floor_split(&r, &(stk_work){.io_bytes = 128e9}, 1000, &weights, INFINITY);
  assert_int_equal(f.memory, LAB_L1);
  assert_near(f.seconds, 1.125);
  f = lab_floor_split(&r, &(stk_work){.flops = 3e9}, 1000, &weights, INFINITY);
  assert_near(f.seconds, 3);
}

/* A machine without a third level. */
static void test_missing_level(void **state) {
  lab_rates r = some_rates();
  (void)state;
  r.capacity[LAB_L3] = 0;
  assert_int_equal(lab_memory_of(&r, 10001), LAB_DRAM);
}

static void test_doubtful(void **state) {
  lab_ceilings c = {.n_threads = 2, .machine.n_cpus = 2, .one.flops_per_s = 10, .all.flops_per_s = 19};
  (void)state;
  assert_false(lab_ceilings_doubtful(&c));
  c.all.flops_per_s = 11;
  assert_true(lab_ceilings_doubtful(&c));
  c.n_threads = 1;
  assert_false(lab_ceilings_doubtful(&c));
}

/* ---- keeping ------------------------------------------------------------------- */

static void get(st_pool *pool, st_cpu_level level, const char *where, lab_ceilings *out) {
  if (lab_ceilings_get(pool, level, where, false, out, &err) != STRATA_OK) fail_msg("%s", err.message);
}

static char *kept_file(const lab_ceilings *c) {
  char name[64], *path;
  snprintf(name, sizeof name, "ceilings-%.16s.json", c->id);
  assert_int_equal(st_path_join(&path, directory, name, &err), STRATA_OK);
  return path;
}

static void test_keeping(void **state) {
  st_pool *pool;
  lab_ceilings first, second, other;
  (void)state;
  assert_int_equal(st_pool_new(1, &pool, &err), STRATA_OK);
  get(pool, ST_CPU_scalar, directory, &first);
  assert_true(first.kept);
  for (int m = 0; m < LAB_MEMORIES; ++m)
    for (int i = 0; i < ST_TRAFFICS && first.all.capacity[m]; ++i)
      assert_true(first.all.bytes_per_s[m][i] > 0);
  get(pool, ST_CPU_scalar, directory, &second);
  assert_memory_equal(&first.all, &second.all, sizeof first.all);
  assert_int_equal(first.measured_at, second.measured_at);

  /* A damaged file is measured anew, and written anew. */
  char *path = kept_file(&first);
  FILE *file = fopen(path, "r+");
  assert_non_null(file);
  fputs("{\"id\": 1}", file);
  fclose(file);
  get(pool, ST_CPU_scalar, directory, &second);
  assert_memory_not_equal(&first.all, &second.all, sizeof first.all);
  get(pool, ST_CPU_scalar, directory, &other);
  assert_memory_equal(&second.all, &other.all, sizeof other.all);
  unlink(path);
  st_free(path);
  st_pool_free(&pool);
}

static void test_dir_make_private(void **state) {
  char *inner, *open;
  (void)state;
  assert_int_equal(st_path_join(&inner, directory, "a/b", &err), STRATA_OK);
  assert_int_equal(st_path_join(&open, directory, "a", &err), STRATA_OK);
  assert_int_equal(st_dir_make_private(inner, &err), STRATA_OK);
  assert_int_equal(st_dir_make_private(inner, &err), STRATA_OK);
  assert_int_equal(chmod(open, 0777), 0);
  assert_int_equal(st_dir_make_private(open, &err), STRATA_STATE);
  assert_int_equal(st_dir_make_private("/proc/none/such", &err), STRATA_IO);
  rmdir(inner);
  rmdir(open);
  st_free(inner);
  st_free(open);
}

/* ---- parameters ---------------------------------------------------------------- */

static void test_settings(void **state) {
  lab_settings settings = {0};
  lab_args args;
  (void)state;
  assert_int_equal(lab_settings_parse(&settings, "T=3,K=64,N1=7", &err), STRATA_OK);
  assert_int_equal(lab_settings_check(&settings, &stk_linear_op, &err), STRATA_OK);
  assert_int_equal(lab_args_make(&stk_linear_op, &settings, &args, &err), STRATA_OK);
  const stk_linear_args *made = (const void *)args.bytes;
  assert_int_equal(made->n_tokens, 3);
  assert_int_equal(made->x_stride, 64);
  assert_int_equal(made->out[3].w.n_cols, 64);
  assert_int_equal(made->out[1].y_stride, 7);
  assert_int_equal(lab_settings_put(&settings, "N4", 1, &err), STRATA_OK);
  assert_int_equal(lab_settings_check(&settings, &stk_linear_op, &err), STRATA_ARG);
  assert_non_null(strstr(err.message, "N0, N1, N2, N3"));
  static const char *const wrong[] = {"", "N", "N0", "N0=", "N0=x", "=3", "K=1 ", ",", "K=1,", "K=99999999999", "K=1,,T=2"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
    if (lab_settings_parse(&settings, wrong[i], &err) != STRATA_ARG) fail_msg("'%s' was taken", wrong[i]);
}

static int make_directory(void **state) {
  (void)state;
  snprintf(directory, sizeof directory, "/tmp/strata-ceilings-XXXXXX");
  return mkdtemp(directory) ? 0 : 1;
}

static int remove_directory(void **state) {
  (void)state;
  return rmdir(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_floor),           cmocka_unit_test(test_split_floor),
               cmocka_unit_test(test_missing_level),
      cmocka_unit_test(test_doubtful),        cmocka_unit_test(test_keeping),
      cmocka_unit_test(test_dir_make_private),
      cmocka_unit_test(test_settings),
  };
  return cmocka_run_group_tests_name("ceilings", tests, make_directory, remove_directory);
}
