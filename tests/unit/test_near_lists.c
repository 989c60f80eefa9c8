/* Lists of cells as a trained model's tokens select them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "lab/lab_near_lists.h"

enum { T = 16, CELLS_MAX = 32768, IDS_MAX = 2051 };

static int32_t ids[T][IDS_MAX], n_ids[T];
static uint8_t in_any[CELLS_MAX];

static stk_qsa_attn_args window(int32_t pos0, int32_t budget, int32_t ratio) {
  memset(ids, 0xff, sizeof ids);
  return (stk_qsa_attn_args){.ids = ids[0], .n_ids = n_ids, .ids_stride = IDS_MAX, .n_tokens = T, .pos0 = pos0,
                             .q_heads = 1, .kv_heads = 1, .head_dim = 32, .budget = budget, .ratio = ratio};
}

static int shared(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b) {
  int n = 0;
  for (int32_t i = 0, j = 0; i < n_a && j < n_b;) {
    if (a[i] == b[j]) ++n, ++i, ++j;
    else if (a[i] < b[j]) ++i;
    else ++j;
  }
  return n;
}

/* Every list is one that a selection could have given. */
static void check_lists(const stk_qsa_attn_args *a) {
  for (int32_t t = 0; t < T; ++t) {
    const int32_t n = a->pos0 + t + 1;
    assert_int_equal(n_ids[t], a->budget + n % a->ratio);
    for (int32_t i = 0; i < n_ids[t]; ++i) {
      assert_in_range(ids[t][i], 0, n - 1);
      assert_true(i == 0 || ids[t][i] > ids[t][i - 1]);
      assert_int_equal(ids[t][i] % a->ratio, i % a->ratio);
    }
  }
}

static void test_released_shape(void **state) {
  strata_error err;
  stk_qsa_attn_args a = window(CELLS_MAX - T, 2048, 4);
  int distinct = 0;
  (void)state;
  assert_int_equal(lab_near_lists(&a, 1, &err), STRATA_OK);
  check_lists(&a);
  for (int32_t t = 1; t < T; ++t)
    assert_in_range(shared(ids[t - 1], 2048, ids[t], 2048), 1225, 1236); /* 60 % */
  memset(in_any, 0, sizeof in_any);
  for (int32_t t = 0; t < T; ++t)
    for (int32_t i = 0; i < 2048; ++i) in_any[ids[t][i]] = 1;
  for (int32_t cell = 0; cell < CELLS_MAX; ++cell) distinct += in_any[cell];
  assert_in_range(distinct, 2 * 2048, 3 * 2048);
}

static void test_barely_sparse(void **state) {
  strata_error err;
  stk_qsa_attn_args a = window(2052, 2048, 4);
  (void)state;
  assert_int_equal(lab_near_lists(&a, 2, &err), STRATA_OK);
  check_lists(&a);
}

static void test_another_ratio(void **state) {
  strata_error err;
  stk_qsa_attn_args a = window(100, 15, 3);
  (void)state;
  assert_int_equal(lab_near_lists(&a, 3, &err), STRATA_OK);
  check_lists(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_released_shape), cmocka_unit_test(test_barely_sparse),
      cmocka_unit_test(test_another_ratio)};
  return cmocka_run_group_tests_name("near_lists", tests, NULL, NULL);
}
