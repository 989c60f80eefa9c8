/* The comparison for kernels of class fast can fail: kernels made to break each of its
 * rules, and such that stay just within. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_check.h"

/* An op that doubles x; its state is worth scale[0] * kept, and becomes x. */
typedef struct twice_args {
  const float *x;
  float *y, *kept, *scale;
  uint16_t *half;
  int32_t n;
} twice_args;

#define BOUND 1e-4
enum { DETAIL_BYTES = 256 };

static const char *check(const void *args) {
  (void)args;
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  twice_args *a = args;
  tensors[0] = STK_TENSOR("x", a->x, a->n, STK_F32, STK_IN, STK_FILL_UNIFORM, -1, 1);
  tensors[1] = STK_TENSOR("y", a->y, a->n, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[2] = STK_TENSOR("kept", a->kept, a->n, STK_F32, STK_INOUT, STK_FILL_UNIFORM, -1, 1);
  tensors[3] = STK_TENSOR("scale", a->scale, 1, STK_F32, STK_INOUT, STK_FILL_UNIFORM, 1, 2);
  tensors[4] = STK_TENSOR("half", a->half, a->n, STK_F16, STK_OUT, STK_FILL_NONE, 0, 0);
  return 5;
}

static void prepare(void *args, uint64_t seed) {
  twice_args *a = args;
  float *x = (float *)(uintptr_t)a->x;
  (void)seed;
  x[1] = NAN;
  x[2] = INFINITY;
}

static void settle(void *args) {
  twice_args *a = args;
  for (int32_t i = 0; i < a->n; ++i) a->kept[i] *= a->scale[0];
  a->scale[0] = 1;
}

static void work(const void *args, stk_work *w) {
  (void)args;
  (void)w;
}

static const twice_args cases[] = {{.n = 5}, {.n = 1000}};

/* y is off by a factor of y_factor, half is 1 but for its last element; the state is
 * stored by another scale. */
static void run_off(const void *args, int32_t part, int32_t n_parts, float y_factor,
                    float kept_factor, float scale, uint16_t last_half) {
  const twice_args *a = args;
  int64_t begin, end;
  stk_slice(a->n, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    a->y[i] = 2 * a->x[i] * y_factor;
    a->kept[i] = a->x[i] / scale * kept_factor;
    a->half[i] = i + 1 < a->n ? 0x3c00 : last_half;
  }
  if (part == 0) a->scale[0] = scale;
}

#define OFF(name_, y_factor_, kept_factor_, scale_, last_half_)                \
  static void name_(const void *args, int32_t part, int32_t n_parts) {         \
    run_off(args, part, n_parts, y_factor_, kept_factor_, scale_, last_half_); \
  }
OFF(oracle, 1, 1, 0.5f, 0x3c00)
OFF(below, 1 + 0.99f * (float)BOUND, 1, 1, 0x3c00)
OFF(above, 1 + 1.01f * (float)BOUND, 1, 1, 0x3c00)
OFF(other_form, 1, 1, 0.125f, 0x3c00)
OFF(other_state, 1, 1.01f, 0.125f, 0x3c00)
OFF(off_half, 1, 1, 1, 0x3d00)
OFF(infinite_half, 1, 1, 1, 0x7c00)

static void made_infinite(const void *args, int32_t part, int32_t n_parts) {
  oracle(args, part, n_parts);
  if (part == 0) ((const twice_args *)args)->y[0] = INFINITY;
}

static void made_finite(const void *args, int32_t part, int32_t n_parts) {
  const twice_args *a = args;
  oracle(args, part, n_parts);
  if (part == 0) a->y[1] = a->y[2] = 0;
}

static void restless(const void *args, int32_t part, int32_t n_parts) {
  static int n_calls;
  oracle(args, part, n_parts);
  if (part == 0) ((const twice_args *)args)->y[0] *= 1 + 1e-7f * (float)(++n_calls % 2);
}

static void by_parts(const void *args, int32_t part, int32_t n_parts) {
  oracle(args, part, n_parts);
  if (part == 0 && n_parts > 2) ((const twice_args *)args)->y[0] *= 1 + 2e-7f;
}

static void unwritten(const void *args, int32_t part, int32_t n_parts) {
  const twice_args *a = args;
  float before = a->y[0];
  oracle(args, part, n_parts);
  if (part == 0) a->y[0] = before;
}

static void outside(const void *args, int32_t part, int32_t n_parts) {
  const twice_args *a = args;
  oracle(args, part, n_parts);
  if (part == 0) a->y[a->n] = 0;
}

static void input(const void *args, int32_t part, int32_t n_parts) {
  const twice_args *a = args;
  oracle(args, part, n_parts);
  if (part == 0) ((float *)(uintptr_t)a->x)[0] *= 1 + 1e-6f;
}

extern const stk_kernel stk_twice__oracle;
const stk_kernel stk_twice__oracle =
    STK_KERNEL_FIELDS(twice, oracle, "scalar", 1, twice_args, STK_EXACT, oracle);
STK_OP(twice, 1, twice_args, prepare, .fast_bound = BOUND, .settle = settle);

static void keep(void *user, const char *name, const char *detail) {
  (void)name;
  snprintf(user, DETAIL_BYTES, "%s", detail ? detail : "");
}

/* What the laboratory says of a kernel: "" for a pass. */
static const char *verdict(const stk_op *op, stk_class numerics,
                           void (*run)(const void *, int32_t, int32_t)) {
  static char detail[DETAIL_BYTES];
  strata_error err;
  lab_tally tally = {.report = keep, .user = detail};
  stk_kernel kernel = STK_KERNEL_FIELDS(twice, made, "scalar", 1, twice_args, numerics, run);
  assert_int_equal(lab_check_kernel(op, &kernel, &tally, &err), STRATA_OK);
  return detail;
}

static void expect(const char *text, void (*run)(const void *, int32_t, int32_t)) {
  const char *said = verdict(&stk_twice_op, STK_FAST, run);
  if (text ? !strstr(said, text) : said[0])
    fail_msg("'%s' where '%s' was expected", said, text ? text : "");
}

static void test_bound(void **state) {
  (void)state;
  expect(NULL, oracle);
  expect(NULL, below);
  expect("y differs by relative L2 0.000101, at most 0.0001 expected", above);
  expect("half differs by relative L2", off_half);
}

static void test_settle(void **state) {
  (void)state;
  expect(NULL, other_form);
  expect("kept differs by relative L2", other_state);
  assert_non_null(strstr(verdict(&stk_twice_op, STK_EXACT, other_form), "kept differs"));
}

static void test_not_finite(void **state) {
  (void)state;
  expect("y is not finite where it should be, or the reverse, first at 0, 1 of 5", made_infinite);
  expect("y is not finite where it should be, or the reverse, first at 1, 2 of 5", made_finite);
  expect("half is not finite where it should be, or the reverse, first at 4, 1 of 5", infinite_half);
}

static void test_repeats(void **state) {
  (void)state;
  expect("run after run: y differs", restless);
  expect("3 parts, seed 3, run after run: y differs", by_parts);
  expect("run after run: y is unwritten", unwritten);
}

static void test_bytes(void **state) {
  (void)state;
  expect("wrote outside y", outside);
  expect("x differs", input);
  assert_non_null(strstr(verdict(&stk_twice_op, STK_EXACT, below), "y differs, first at 0"));
}

static void test_no_bound(void **state) {
  (void)state;
  stk_op boundless = stk_twice_op;
  boundless.fast_bound = 0;
  assert_string_equal(verdict(&boundless, STK_FAST, oracle),
                      "class fast, but the contract has no bound");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bound),      cmocka_unit_test(test_settle),
      cmocka_unit_test(test_not_finite), cmocka_unit_test(test_repeats),
      cmocka_unit_test(test_bytes),      cmocka_unit_test(test_no_bound)};
  return cmocka_run_group_tests_name("fast", tests, NULL, NULL);
}
