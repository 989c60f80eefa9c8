/* What the laboratory does for a GPU without one: tables of pointers, each of which moves
 * with the tensor that it leads into, and the buffers of a roof. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "kreg/st_kreg.h"
#include "lab/lab_cuda.h"
#include "lab/lab_cuda_roof.h"
#include "qsa_prep/qsa_prep.h"
#include "qsa_score/qsa_score.h"

/* Where tensor i would lie on a device; nothing is read there. */
static void *place(int32_t i) { return (void *)((uintptr_t)(i + 1) << 32); }

static int32_t index_of(const lab_case *c, const char *name) {
  for (int32_t i = 0; i < c->n; ++i)
    if (strcmp(c->tensors[i].name, name) == 0) return i;
  fail_msg("%s: no such tensor", name);
  return -1;
}

/* The pages of a table lie in block as the host's do. */
static void check_table(const lab_case *c, const char *table_name, const char *block_name, void *const memory[], int32_t n) {
  const int32_t table = index_of(c, table_name), block = index_of(c, block_name);
  uint8_t *const *host = (uint8_t *const *)(void *)c->buffers[table].data;
  void *device[64];
  assert_int_equal(c->buffers[table].n_bytes, (size_t)n * sizeof *host);
  assert_true(n <= 64);
  lab_cuda_table(c, table, memory, device);
  for (int32_t i = 0; i < n; ++i)
    assert_ptr_equal(device[i], (void *)((uintptr_t)place(block) + LAB_GUARD_BYTES + (uintptr_t)(host[i] - c->buffers[block].data)));
}

static void test_pages(void **state) {
  const stk_op *op = st_kreg_op(ST_OP_qsa_prep);
  const lab_fill fill = {.seed = 1, .poison = 0x5a, .guard = 0xa5};
  stk_qsa_prep_args shape = *(const stk_qsa_prep_args *)op->cases;
  void *memory[STK_TENSORS_MAX];
  strata_error err;
  lab_case c;
  (void)state;
  shape.pos0 = 2500;
  assert_int_equal(lab_case_init(&c, op, &shape, fill, &err), STRATA_OK);
  for (int32_t i = 0; i < STK_TENSORS_MAX; ++i) memory[i] = place(i);
  check_table(&c, "kv_pages", "kv_block", memory, 10);
  check_table(&c, "block_pages", "block_block", memory, 3);
  lab_case_release(&c);
}

/* What is past the end of a tensor, or in none. */
static void test_elsewhere(void **state) {
  const stk_op *op = st_kreg_op(ST_OP_qsa_prep);
  void *memory[STK_TENSORS_MAX], *device[4];
  strata_error err;
  lab_case c;
  (void)state;
  assert_int_equal(lab_case_init(&c, op, op->cases, (lab_fill){.seed = 1}, &err), STRATA_OK);
  for (int32_t i = 0; i < STK_TENSORS_MAX; ++i) memory[i] = place(i);
  const int32_t table = index_of(&c, "kv_pages"), block = index_of(&c, "kv_block");
  const st_guarded *b = &c.buffers[block];
  void *const odd[] = {NULL, &c, b->data + b->n_bytes, b->data - 1};
  for (int i = 0; i < 4; ++i) {
    memcpy(c.buffers[table].data, &odd[i], sizeof odd[i]);
    lab_cuda_table(&c, table, memory, device);
    assert_null(device[0]);
  }
  lab_case_release(&c);
}

/* Together twice the cache of 50 MB. */
static void test_sets(void **state) {
  (void)state;
  assert_int_equal(lab_cuda_roof_sets(10e6, 50e6), 10);
  assert_int_equal(lab_cuda_roof_sets(30e6, 50e6), 4);
  assert_int_equal(lab_cuda_roof_sets(200e6, 50e6), 2);
  assert_int_equal(lab_cuda_roof_sets(1e6, 50e6), LAB_CUDA_ROOF_LAUNCHES);
  assert_int_equal(lab_cuda_roof_sets(0, 50e6), LAB_CUDA_ROOF_LAUNCHES);
}

/* T is the row's; what follows from it does; the rest is as released. */
static void test_shape(void **state) {
  const lab_roof_request request = {.op = st_kreg_op(ST_OP_qsa_score)};
  stk_qsa_score_args a;
  lab_args shape;
  strata_error err;
  (void)state;
  assert_int_equal(lab_roof_shape(&request, 2048, &shape, &err), STRATA_OK);
  memcpy(&a, shape.bytes, sizeof a);
  assert_int_equal(a.n_tokens, 2048);
  assert_int_equal(a.pos0, 32256);
  assert_int_equal(a.score_stride, (32256 + 2048) / 4);
}

/* A device has one level of memory, the others no rate. */
static void test_floor(void **state) {
  const stk_work work = {.flops = 1e9, .io_bytes = 5e9};
  lab_rates rates = {.flops_per_s = 1e12};
  (void)state;
  rates.capacity[LAB_DRAM] = INT64_MAX;
  for (int traffic = 0; traffic < ST_TRAFFICS; ++traffic) rates.bytes_per_s[LAB_DRAM][traffic] = 1e9;
  const lab_floor floor = lab_floor_of(&rates, &work, INFINITY);
  assert_true(floor.seconds == 5.0 && floor.memory_s == 5.0 && floor.compute_s == 1e-3);
  assert_int_equal(floor.memory, LAB_DRAM);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages), cmocka_unit_test(test_elsewhere),
                                     cmocka_unit_test(test_sets), cmocka_unit_test(test_shape),
                                     cmocka_unit_test(test_floor)};
  return cmocka_run_group_tests_name("lab on a GPU", tests, NULL, NULL);
}
