/* Every variant of every op against its oracle, on this CPU: each case of the
 * op, several seeds, 1, 2, 3 and 7 parts, outputs poisoned with two patterns,
 * guard bytes around every buffer. Equal means memcmp. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kreg/st_kreg.h"

enum { GUARD = 256 };

/* One buffer: [guard][n_bytes][guard]. */
typedef struct buffer {
  uint8_t *memory, *data;
  size_t n_bytes;
} buffer;

static uint64_t next_random(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static void put_value(uint8_t *data, size_t i, stk_dtype dtype, double value) {
  float f = (float)value;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  switch (dtype) {
    case STK_F32: memcpy(data + 4 * i, &f, 4); break;
    case STK_BF16: memcpy(data + 2 * i, &(uint16_t){(uint16_t)(bits >> 16)}, 2); break;
    case STK_F16: {
      /* Any finite half will do: sign, a small exponent, random fraction. */
      uint16_t half = (uint16_t)((bits >> 16 & 0x8000) | (0x2c00 + (bits >> 8 & 0x13ff)));
      memcpy(data + 2 * i, &half, 2);
      break;
    }
    case STK_I32: memcpy(data + 4 * i, &(int32_t){(int32_t)value}, 4); break;
    case STK_I64: memcpy(data + 8 * i, &(int64_t){(int64_t)value}, 8); break;
    case STK_U8: data[i] = (uint8_t)value; break;
  }
}

static buffer buffer_new(const stk_tensor *tensor, uint64_t *random, int poison) {
  buffer b = {0};
  b.n_bytes = tensor->n * stk_dtype_bytes(tensor->dtype);
  b.memory = malloc(b.n_bytes + 2 * GUARD);
  assert_non_null(b.memory);
  memset(b.memory, 0x5e, b.n_bytes + 2 * GUARD);
  b.data = b.memory + GUARD;
  if (tensor->role == STK_OUT) memset(b.data, poison, b.n_bytes);
  for (size_t i = 0; i < tensor->n && tensor->fill != STK_FILL_NONE; ++i) {
    double unit = (double)(next_random(random) >> 11) / 9007199254740992.0;
    double value = tensor->low + unit * (tensor->high - tensor->low);
    put_value(b.data, i, tensor->dtype, tensor->fill == STK_FILL_INDEX ? floor(value) : value);
  }
  return b;
}

static void check_guards(const buffer *b, const char *what, const char *name) {
  for (size_t i = 0; i < GUARD; ++i)
    if (b->memory[i] != 0x5e || b->data[b->n_bytes + i] != 0x5e)
      fail_msg("%s wrote outside %s", what, name);
}

/* Fresh buffers for one run; the same seed gives the same inputs. */
static int32_t set_up(const stk_op *op, const void *shape, void *args, uint64_t seed, int poison,
                      stk_tensor *tensors, buffer *buffers) {
  uint64_t random = seed;
  memcpy(args, shape, op->args_bytes);
  int32_t n = op->tensors(args, tensors);
  assert_in_range(n, 1, STK_TENSORS_MAX);
  for (int32_t i = 0; i < n; ++i) {
    buffers[i] = buffer_new(&tensors[i], &random, poison);
    *tensors[i].slot = buffers[i].data;
  }
  if (op->prepare) op->prepare(args, seed);
  return n;
}

static void compare(const stk_tensor *tensor, const buffer *want, const buffer *got,
                    const char *what) {
  if (memcmp(want->data, got->data, want->n_bytes) == 0) return;
  size_t elem = stk_dtype_bytes(tensor->dtype), first = 0, count = 0;
  for (size_t i = tensor->n; i-- > 0;)
    if (memcmp(want->data + i * elem, got->data + i * elem, elem) != 0) {
      first = i;
      ++count;
    }
  fail_msg("%s: %s differs: first at %zu, %zu of %zu elements", what, tensor->name, first, count,
           tensor->n);
}

static void run_case(const stk_op *op, const stk_kernel *kernel, int32_t index, int32_t n_parts,
                     uint64_t seed, int poison) {
  const void *shape = (const char *)op->cases + (size_t)index * op->args_bytes;
  void *want_args = malloc(op->args_bytes), *got_args = malloc(op->args_bytes);
  stk_tensor tensors[STK_TENSORS_MAX], got_tensors[STK_TENSORS_MAX];
  buffer want[STK_TENSORS_MAX], got[STK_TENSORS_MAX];
  char what[128];
  snprintf(what, sizeof what, "%s.%s case %d parts %d seed %d", op->name, kernel->variant, index,
           n_parts, (int)seed);
  int32_t n = set_up(op, shape, want_args, seed, poison, tensors, want);
  set_up(op, shape, got_args, seed, poison, got_tensors, got);
  if (op->check(want_args)) fail_msg("%s: %s", what, op->check(want_args));
  for (int32_t part = 0; part < 2; ++part) op->oracle->run(want_args, part, 2);
  for (int32_t part = n_parts; part-- > 0;) kernel->run(got_args, part, n_parts);
  for (int32_t i = 0; i < n; ++i) {
    check_guards(&want[i], "the oracle", tensors[i].name);
    check_guards(&got[i], what, tensors[i].name);
    /* Tables of pointers differ between the two arms; everything else not. */
    if (tensors[i].dtype != STK_U8) compare(&tensors[i], &want[i], &got[i], what);
    free(want[i].memory);
    free(got[i].memory);
  }
  free(want_args);
  free(got_args);
}

static void test_op(void **state) {
  const stk_op *op = *state;
  st_op id = (st_op)st_kreg_op_by_name(op->name);
  static const int32_t parts[] = {1, 2, 3, 7};
  assert_true(op->n_cases > 0);
  for (int32_t v = 0; st_kreg_variant(id, v); ++v) {
    const stk_kernel *kernel = st_kreg_variant(id, v);
    if (!st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa))) continue;
    assert_int_equal(kernel->contract, op->contract);
    assert_int_equal(kernel->args_bytes, op->args_bytes);
    for (int32_t c = 0; c < op->n_cases; ++c)
      for (size_t p = 0; p < sizeof parts / sizeof *parts; ++p)
        run_case(op, kernel, c, parts[p], 1 + (uint64_t)p, p % 2 ? 0xa5 : 0x5a);
  }
}

int main(void) {
  struct CMUnitTest tests[ST_OPS];
  for (int op = 0; op < ST_OPS; ++op)
    tests[op] = (struct CMUnitTest){st_kreg_op((st_op)op)->name, test_op, NULL, NULL,
                                    (void *)(uintptr_t)st_kreg_op((st_op)op)};
  return cmocka_run_group_tests_name("parity", tests, NULL, NULL);
}
