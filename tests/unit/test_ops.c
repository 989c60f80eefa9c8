/* What ops say about themselves: parameters, the shapes that timings take, and
 * the counts of their work beside the sizes of their tensors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "gdn_post/gdn_post.h"
#include "kreg/st_kreg.h"
#include "lab/lab_case.h"

enum { ARGS_BYTES_MAX = 1024 };
typedef union args_copy {
  uint8_t bytes[ARGS_BYTES_MAX];
  void *align;
} args_copy;

static args_copy released_of(const stk_op *op) {
  args_copy copy = {{0}};
  assert_true(op->args_bytes <= sizeof copy);
  memcpy(copy.bytes, op->released, op->args_bytes);
  return copy;
}

static const stk_param *find(const stk_param *params, int32_t n, const char *name) {
  for (int32_t i = 0; i < n; ++i)
    if (strcmp(params[i].name, name) == 0) return &params[i];
  return NULL;
}

static void set(const stk_op *op, args_copy *args, const stk_param *param, int32_t value) {
  stk_param_set(param, value);
  if (op->derive) op->derive(args->bytes);
}

static size_t tensor_bytes(const stk_op *op, args_copy *args) {
  stk_tensor tensors[STK_TENSORS_MAX];
  size_t sum = 0;
  int32_t n = op->tensors(args->bytes, tensors);
  assert_in_range(n, 1, STK_TENSORS_MAX);
  for (int32_t i = 0; i < n; ++i) sum += tensors[i].n * stk_dtype_bytes(tensors[i].dtype);
  return sum;
}

static void test_params(void **state) {
  int32_t n_seen = 0;
  (void)state;
  for (int o = 0; o < ST_OPS; ++o) {
    const stk_op *op = st_kreg_op((st_op)o);
    if (!op->released) continue;
    ++n_seen;
    stk_param params[STK_PARAMS_MAX];
    args_copy args = released_of(op);
    const args_copy before = args;
    assert_null(op->check(args.bytes));
    int32_t n = op->params(args.bytes, params);
    assert_in_range(n, 1, STK_PARAMS_MAX);
    for (int32_t i = 0; i < n; ++i) {
      assert_ptr_equal(find(params, n, params[i].name), &params[i]);
      int32_t value = stk_param_get(&params[i]);
      if (params[i].bit) assert_in_range(value, 0, 1);
      set(op, &args, &params[i], params[i].bit ? !value : value + 1);
      assert_memory_not_equal(&args, &before, sizeof args);
      set(op, &args, &params[i], value);
      assert_memory_equal(&args, &before, sizeof args);
    }
  }
  assert_true(n_seen >= 15);
}

static void test_tokens_change_sizes(void **state) {
  (void)state;
  for (int o = 0; o < ST_OPS; ++o) {
    const stk_op *op = st_kreg_op((st_op)o);
    if (!op->released) continue;
    stk_param params[STK_PARAMS_MAX];
    args_copy args = released_of(op);
    const stk_param *tokens = find(params, op->params(args.bytes, params), "T");
    if (strcmp(op->name, "gdn_step") == 0) { /* one token is its contract */
      assert_null(tokens);
      continue;
    }
    assert_non_null(tokens);
    const int32_t usual = stk_param_get(tokens);
    if (usual != 1) assert_int_equal(usual, 512); /* 1: a kernel for decoding */
    const size_t bytes = tensor_bytes(op, &args);
    size_t fewer = 0;
    for (int32_t T = 1; T <= 2048; T *= 8) {
      set(op, &args, tokens, T);
      assert_null(op->check(args.bytes));
      assert_true(tensor_bytes(op, &args) > fewer);
      fewer = tensor_bytes(op, &args);
    }
    set(op, &args, tokens, usual);
    assert_int_equal(tensor_bytes(op, &args), bytes);
  }
}

/* Whether all outputs are written: not where a call may leave some out
 * (STK_POST_F32 and the like), nor where rows of a cache are. */
static bool writes_all(const stk_op *op, const stk_tensor *tensor) {
  if (strcmp(op->name, "moe_route") == 0) return strcmp(tensor->name, "all") != 0;
  return strncmp(op->name, "qsa_", 4) != 0 && strcmp(op->name, "gdn_post") != 0 &&
         strcmp(op->name, "gdn_pre") != 0;
}

/* At least the outputs are written; at most all is read and written. */
static void check_work(const stk_op *op, void *args, const stk_tensor *tensors, int32_t n,
                       const char *what) {
  double written = 0, all = 0;
  stk_work work = {0};
  op->work(args, &work);
  for (int32_t i = 0; i < n; ++i) {
    double bytes = (double)tensors[i].n * (double)stk_dtype_bytes(tensors[i].dtype);
    if (tensors[i].role == STK_OUT && writes_all(op, &tensors[i])) written += bytes;
    all += tensors[i].role == STK_INOUT ? 2 * bytes : bytes;
  }
  double counted = work.weight_bytes + work.state_bytes + work.io_bytes;
  if (work.flops < 0 || counted < written || counted > 2 * all)
    fail_msg("%s %s: %.0f bytes counted, %.0f written, %.0f in all", op->name, what, counted,
             written, all);
}

static void test_work_is_plausible(void **state) {
  (void)state;
  for (int o = 0; o < ST_OPS; ++o) {
    const stk_op *op = st_kreg_op((st_op)o);
    if (!op->released) continue;
    for (int32_t i = 0; i < op->n_cases; ++i) {
      lab_case c;
      strata_error err;
      assert_int_equal(lab_case_init(&c, op, (const uint8_t *)op->cases + (size_t)i * op->args_bytes,
                                     (lab_fill){.seed = 1}, &err), STRATA_OK);
      check_work(op, c.args, c.tensors, c.n, "case");
      lab_case_release(&c);
    }
    stk_param params[STK_PARAMS_MAX];
    stk_tensor tensors[STK_TENSORS_MAX];
    args_copy args = released_of(op);
    const stk_param *tokens = find(params, op->params(args.bytes, params), "T");
    if (tokens) set(op, &args, tokens, 1);
    check_work(op, args.bytes, tensors, op->tensors(args.bytes, tensors), "released");
  }
}

static void test_switch(void **state) {
  stk_param params[STK_PARAMS_MAX];
  stk_gdn_post_args args = *(const stk_gdn_post_args *)stk_gdn_post_op.released;
  const stk_param *f32 = find(params, stk_gdn_post_op.params(&args, params), "f32");
  (void)state;
  assert_non_null(f32);
  assert_int_equal(args.outputs, STK_POST_F16);
  stk_param_set(f32, 1);
  assert_int_equal(args.outputs, STK_POST_F16 | STK_POST_F32);
  assert_int_equal(stk_param_get(f32), 1);
  stk_param_set(f32, 0);
  assert_int_equal(args.outputs, STK_POST_F16);
}

/* A trace may have any numbers in its args: whatever check accepts, counting tensors is
 * defined (run with UBSan). One and two words of each test shape become extreme. */
static const int32_t extremes[] = {INT32_MAX, INT32_MIN, -1, 0, 0x7fffffe0, 0x40000000, 65536};
enum { EXTREMES = sizeof extremes / sizeof *extremes };

static int32_t count_with(const stk_op *op, args_copy args, size_t first, int32_t a, size_t second, int32_t b) {
  stk_tensor tensors[STK_TENSORS_MAX];
  memcpy(args.bytes + first, &extremes[a], sizeof *extremes);
  memcpy(args.bytes + second, &extremes[b], sizeof *extremes);
  if (op->check(args.bytes)) return 0;
  const int32_t n = op->tensors(args.bytes, tensors);
  assert_in_range(n, 1, STK_TENSORS_MAX);
  return 1;
}

static void test_counts_of_any_args(void **state) {
  (void)state;
  for (int o = 0; o < ST_OPS; ++o) {
    const stk_op *op = st_kreg_op((st_op)o);
    int32_t n_accepted = 0;
    args_copy args = {{0}};
    assert_true(op->args_bytes <= sizeof args);
    memcpy(args.bytes, op->cases, op->args_bytes);
    for (size_t first = 0; first < op->args_bytes; first += sizeof *extremes)
      for (size_t second = first; second < op->args_bytes; second += sizeof *extremes)
        for (int32_t a = 0; a < EXTREMES; ++a)
          for (int32_t b = 0; b < EXTREMES; ++b) n_accepted += count_with(op, args, first, a, second, b);
    assert_true(n_accepted > 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_params),
      cmocka_unit_test(test_tokens_change_sizes),
      cmocka_unit_test(test_work_is_plausible),
      cmocka_unit_test(test_switch),
      cmocka_unit_test(test_counts_of_any_args),
  };
  return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
