/* Numbers of a test case as halves and back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "lab/lab_case.h"

static uint16_t half_of(double x) {
  uint16_t half;
  lab_number_put(&half, STK_F16, 0, x);
  return half;
}

/* Each half is itself, and a number between two goes to the nearer one, from the middle to
 * the even one. */
static void test_halves(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits)
    for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
      const uint16_t half = (uint16_t)(sign | bits), next = (uint16_t)(half + 1);
      const double x = lab_number_get(&half, STK_F16, 0);
      const double y = bits < 0x7bff ? lab_number_get(&next, STK_F16, 0) : x + copysign(32, x);
      assert_int_equal(half_of(x), half);
      assert_int_equal(half_of(x + 0.49 * (y - x)), half);
      assert_int_equal(half_of(x + 0.51 * (y - x)), next);
      assert_int_equal(half_of(x + 0.5 * (y - x)), bits % 2 ? next : half);
    }
  assert_int_equal(half_of(INFINITY), 0x7c00);
  assert_int_equal(half_of(-1e9), 0xfc00);
  assert_int_equal(half_of(1e-9), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_halves)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
