/* Every GPU kernel of the exact class, run thread by thread on the CPU over the
 * cases of its op: the oracle's bytes, whatever order the threads run in. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "common/k_cuda_math.h"
#include "gdn_step/gdn_step_batch.h"
#include "kreg/st_kreg.h"
#include "lab/lab_case.h"
#include "lab/lab_topk.h"
#include "qsa_decode/qsa_decode.h"
#include "qsa_score/qsa_score.h"
#include "tests/cuda/cuda_emulator.h"
#include "tests/cuda/decode_case.h"
#include "tests/cuda/emulated_kernels.h"

/* A window that goes round the stages of shared memory several times. */
static const stk_gdn_scan_args long_scan = {.n_tokens = 131, .pos0 = 1, .k_heads = 1, .v_heads = 3, .k_dim = 32, .v_dim = 32};
/* Several tiles of tokens and of blocks; one token whose blocks of threads go from tile to tile. */
static const stk_qsa_score_args wide_score = {.n_tokens = 40, .pos0 = 250, .idx_heads = 2, .idx_dim = 128, .ratio = 2,
                                              .budget = 256, .score_stride = 150};
static const stk_qsa_score_args long_score = {.n_tokens = 1, .pos0 = 220000, .idx_heads = 2, .idx_dim = 32, .ratio = 1,
                                              .budget = 8, .score_stride = 220001};
/* Blocks of 256 threads. */
static const stk_qsa_topk_args many_topk = {.n_tokens = 270, .pos0 = 600, .ratio = 2, .budget = 8, .score_stride = 450,
                                            .ids_stride = 9};

/* More values than have a slot, and slots for no more than a tile. */
static const stk_qsa_decode_args full_decode = STK_QSA_CASE(1, 293, 5, 1, 256, 512, 4, STK_KV_F32, STK_ATTN_F32);
static const stk_qsa_decode_args wide_decode = STK_QSA_CASE(1, 293, 5, 1, 512, 512, 4, STK_KV_F32, STK_ATTN_F32);

/* Shapes that are dear to the emulator, and bring a kernel where its op's cases do not. */
static const struct {
  st_op op;
  const void *shape;
} further[] = {{ST_OP_gdn_scan, &long_scan}, {ST_OP_qsa_score, &wide_score}, {ST_OP_qsa_score, &long_score},
               {ST_OP_qsa_topk, &many_topk},
               {ST_OP_qsa_decode, &full_decode}, {ST_OP_qsa_decode, &wide_decode}};

static void run_case(const emulated *e, const stk_op *op, int32_t index, const void *shape, cuda_order order) {
  stk_cuda_launch launch;
  char text[EMULATED_TEXT];
  if (e->kernel->plan(shape, order == CUDA_SHUFFLED ? &small_chip : &big_chip, &launch)) return;
  emulated_compare(e, op, shape, &launch, order, 1 + (uint64_t)order, text);
  if (text[0]) fail_msg("case %d: %s", index, text);
}

static void test_kernel(void **state) {
  const emulated *e = *state;
  const stk_op *op = st_kreg_op((st_op)st_kreg_op_by_name(e->kernel->op));
  assert_int_equal(e->kernel->contract, op->contract);
  assert_int_equal(e->kernel->args_bytes, op->args_bytes);
  for (int32_t c = 0; c < op->n_cases; ++c)
    for (int order = CUDA_ASCENDING; order <= CUDA_SHUFFLED; ++order)
      run_case(e, op, c, (const char *)op->cases + (size_t)c * op->args_bytes, (cuda_order)order);
  for (size_t i = 0; i < sizeof further / sizeof *further; ++i)
    if (op == st_kreg_op(further[i].op)) run_case(e, op, -1 - (int32_t)i, further[i].shape, CUDA_SHUFFLED);
}

static void fail_if(const char *what, const lab_difference *d) {
  char text[256];
  if (!d->tensor) return;
  lab_difference_describe(d, 0, text, sizeof text);
  fail_msg("%s: %s", what, text);
}

/* Ties, NaNs, and more blocks than shared memory holds: as the CPU's best kernel, which
 * the laboratory compares with a sort. */
static void test_selection(void **state) {
  const stk_op *op = st_kreg_op(ST_OP_qsa_topk);
  const lab_fill fill = {.seed = 1, .poison = 0x5a, .guard = 0x5e};
  st_kernel_set best;
  stk_cuda_launch launch;
  strata_error err;
  (void)state;
  st_kernel_set_choose(&best, st_cpu_best());
  for (int32_t s = 0; s < LAB_TOPK_FILLS; ++s)
    for (int32_t i = 0; i < LAB_TOPK_SHAPES - 1; ++i) {
      const stk_qsa_topk_args shape = lab_topk_shape(i);
      lab_case want, got;
      assert_int_equal(lab_case_init(&want, op, &shape, fill, &err), STRATA_OK);
      assert_int_equal(lab_case_init(&got, op, &shape, fill, &err), STRATA_OK);
      lab_topk_put(&want, s);
      lab_topk_put(&got, s);
      lab_case_run(&want, best.kernel[ST_OP_qsa_topk], 1);
      assert_null(stk_cuda_qsa_topk_cuda.plan(got.args, &big_chip, &launch));
      const char *wrong = cuda_emulate(qsa_topk_cuda, got.args, &launch, CUDA_SHUFFLED);
      if (wrong) fail_msg("%s: %s", lab_topk_fill_name(s), wrong);
      lab_difference d = lab_case_compare(&want, &got);
      fail_if(lab_topk_fill_name(s), &d);
      lab_case_release(&want);
      lab_case_release(&got);
    }
}

/* A float of either sign with an exponent in [low, high). */
static float random_float(uint64_t *random, int low, int high) {
  const uint64_t r = lab_random(random);
  const uint32_t exponent = (uint32_t)(127 + low) + (uint32_t)(r >> 40) % (uint32_t)(high - low);
  const uint32_t bits = (uint32_t)(r & 0x807fffffu) | exponent << 23;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static bool same_bits(float a, float b) { return memcmp(&a, &b, sizeof a) == 0; }

static void divide(float a, float c) {
  const float got = kc_divide_near(a, c, 1.0f / c), want = a / c;
  if (!same_bits(got, want)) fail_msg("%a / %a: %a instead of %a", a, c, got, want);
}

/* The quick divisions, with the reciprocal correctly rounded; on the GPU, where one of
 * them starts from an approximation, tests/cuda/test_device does the same. */
static void test_division(void **state) {
  uint64_t random = 7;
  (void)state;
  for (int i = 0; i < 4000000; ++i) {
    const float a = random_float(&random, -90, 90), c = kc_abs(random_float(&random, -30, 30));
    const float top = random_float(&random, -70, 7), divisor = kc_abs(random_float(&random, 0, 24));
    divide(a, c);
    if (!same_bits(kf_div(top, divisor), top / divisor)) fail_msg("%a / %a", top, divisor);
    if (!same_bits(kc_inverse(divisor), 1 / divisor)) fail_msg("1 / %a", divisor);
  }
}

/* The inverse of an odd number modulo 2^64: each step doubles the bits that are right. */
static uint64_t inverse_of_odd(uint64_t b) {
  uint64_t x = b;
  for (int i = 0; i < 6; ++i) x *= 2 - b * x;
  return x;
}

/* All a with which a / c is within 16 * 2^-25 ulp, but not at, the middle of two floats; a
 * and c are significands, integers of 24 bits. The middles are M / 2^e, M odd and of 25
 * bits, e 24 for a quotient of at least 1, else 25. So 2^e a - M c = j for a small j, which
 * is odd times the power of two in c. Returns how many they are. */
static uint64_t divide_hard_pairs(uint64_t c, int e) {
  enum { NEAR = 16 };
  const int zeros = __builtin_ctzll(c);
  const uint64_t odd = c >> zeros, modulus = UINT64_C(1) << (e - zeros), inverse = inverse_of_odd(odd);
  uint64_t n = 0;
  for (int64_t j = -(NEAR >> zeros); j <= NEAR >> zeros; ++j) {
    if (j % 2 == 0) continue;
    for (uint64_t m = (uint64_t)-j * inverse & (modulus - 1); m < 1 << 25; m += modulus) {
      const uint64_t a = (m * odd + (uint64_t)j) / modulus;
      if (m <= 1 << 24 || a < 1 << 23 || a >= 1 << 24 || (e == 24) != (a >= c)) continue;
      divide((float)a, (float)c);
      ++n;
    }
  }
  return n;
}

static void test_hard_division(void **state) {
  uint64_t n = 0;
  (void)state;
  for (uint64_t c = 1 << 23; c < 1 << 24; ++c)
    for (int e = 24; e <= 25; ++e) n += divide_hard_pairs(c, e);
  assert_int_equal(n, 93036199);
}

/* Where quotients are divided in the quick way: on both sides of each bound, and in between. */
static void check_division_range(float x) {
  const int is_near = kc_abs(x) >= 0x1p-64f && kc_abs(x) < 0x1p64f;
  if (kc_are_near(x, 1.0f) != is_near || kc_are_near(-1.0f, x) != is_near) fail_msg("%a is near: %d", x, !is_near);
}

static void test_division_range(void **state) {
  static const float bounds[] = {0.0f, 0x1p-64f, 0x1p64f, INFINITY};
  (void)state;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 9973) check_division_range(ks_float((int32_t)(uint32_t)bits));
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; ++i)
    for (int step = -1; step <= 1; ++step) {
      const float x = ks_float(ks_bits(bounds[i]) + step);
      check_division_range(x);
      check_division_range(-x);
    }
}

/* silu_half of several at once: a NaN hides no other number that is out of the bounds. */
static void test_silu_half(void **state) {
  const float x[] = {NAN, 81.0f, -INFINITY, 1.0f, ks_float(0x42a00001), -80.0f, -ks_float(0x42a00001), 80.0f};
  enum { N = sizeof x / sizeof *x };
  (void)state;
  for (int first = 0; first < N; ++first) {
    float y[N];
    kc_silu_half(x + first, y, N - first);
    for (int i = first; i < N; ++i)
      if (x[i] == x[i] ? !same_bits(y[i - first], ks_silu_half(x[i])) : y[i - first] == y[i - first])
        fail_msg("silu_half(%a): %a", x[i], y[i - first]);
  }
}

/* The short forms where they are taken are the shared functions. */
static void test_near(void **state) {
  uint64_t n_near = 0;
  (void)state;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 997) {
    const float x = ks_float((int32_t)(uint32_t)bits);
    const int silu = kc_are_in_range(kc_silu_range(x)), sigmoid = kc_are_in_range(kc_sigmoid_range(x));
    n_near += (uint64_t)silu;
    if (silu && !same_bits(kc_silu_near(x), ks_silu(x)))
      fail_msg("silu(%a): %a instead of %a", x, kc_silu_near(x), ks_silu(x));
    if (sigmoid && !same_bits(kc_sigmoid_near(x), ks_sigmoid(x)))
      fail_msg("sigmoid(%a): %a instead of %a", x, kc_sigmoid_near(x), ks_sigmoid(x));
    if (!(kc_abs(x) > 80) && x == x && !same_bits(kc_silu_half_near(x), ks_silu_half(x)))
      fail_msg("silu_half(%a): %a instead of %a", x, kc_silu_half_near(x), ks_silu_half(x));
    float half;
    kc_silu_half(&x, &half, 1);
    if (x == x ? !same_bits(half, ks_silu_half(x)) : half == half) fail_msg("silu_half(%a): %a", x, half);
    if (x != x && (silu || sigmoid)) fail_msg("a NaN is near");
    if (silu != (kc_abs(x) >= 0x1p-60f && kc_abs(x) < 16)) fail_msg("silu(%a) is near: %d", x, silu);
    if (sigmoid != (x >= -16 && x < 47.999999f)) fail_msg("sigmoid(%a) is near: %d", x, sigmoid);
  }
  assert_in_range(n_near, 1000000, 1200000);
}

cuda_entry gdn_step_batch_cuda, gdn_decode_cuda;

/* Sequences at even and odd positions in one launch. */
static void run_batch(stk_dtype rows) {
  enum { SEQUENCES = 3 };
  const stk_op *op = st_kreg_op(ST_OP_gdn_step);
  lab_case want[SEQUENCES], got[SEQUENCES];
  stk_gdn_step_args steps[SEQUENCES];
  stk_cuda_launch launch;
  strata_error err;
  for (int i = 0; i < SEQUENCES; ++i) {
    const lab_fill fill = {.seed = 1 + (uint64_t)i, .poison = 0x5a, .guard = 0xa5, .unread = 0xff};
    stk_gdn_step_args shape = *(const stk_gdn_step_args *)op->cases;
    shape.pos0 = i;
    shape.rows = (int32_t)rows;
    assert_int_equal(lab_case_init(&want[i], op, &shape, fill, &err), STRATA_OK);
    assert_int_equal(lab_case_init(&got[i], op, &shape, fill, &err), STRATA_OK);
    steps[i] = *(const stk_gdn_step_args *)got[i].args;
    lab_case_run(&want[i], op->oracle, 1);
  }
  const stk_gdn_step_batch_args args = {steps, SEQUENCES};
  assert_null(stk_cuda_gdn_step_batch_cuda.plan(&args, &big_chip, &launch));
  const char *wrong = cuda_emulate(gdn_step_batch_cuda, &args, &launch, CUDA_SHUFFLED);
  if (wrong) fail_msg("%s", wrong);
  for (int i = 0; i < SEQUENCES; ++i) {
    lab_difference d = lab_case_compare(&want[i], &got[i]);
    fail_if("sequence", &d);
    lab_case_release(&want[i]);
    lab_case_release(&got[i]);
  }
}

static void test_batch(void **state) {
  (void)state;
  run_batch(STK_F32);
  run_batch(STK_F16);
}

static void run_decode(int32_t pos0, int32_t k_heads, int32_t v_heads, stk_dtype rows, cuda_order order) {
  decode_case want, got;
  stk_cuda_launch launch;
  strata_error err;
  assert_int_equal(decode_case_init(&want, pos0, k_heads, v_heads, rows, 1 + (uint64_t)pos0, &err), STRATA_OK);
  assert_int_equal(decode_case_init(&got, pos0, k_heads, v_heads, rows, 1 + (uint64_t)pos0, &err), STRATA_OK);
  decode_case_run_oracles(&want);
  const stk_gdn_decode_args args = decode_args(got.stage[0].args, got.stage[1].args, got.stage[2].args);
  assert_null(stk_cuda_gdn_decode_cuda.plan(&args, &big_chip, &launch));
  const char *wrong = cuda_emulate(gdn_decode_cuda, &args, &launch, order);
  if (wrong) fail_msg("%s", wrong);
  lab_difference d = decode_case_compare(&want, &got);
  fail_if("gdn_decode", &d);
  decode_case_release(&want);
  decode_case_release(&got);
}

/* A NaN whose bits a conversion would change. */
static void put_nan(void *rows, size_t i, int32_t type) {
  if (type == STK_F16) ((uint16_t *)rows)[i] = 0xfc01;
  else memcpy((float *)rows + i, &(uint32_t){0xff800001}, 4);
}

/* In the younger key of the tail, and in the history of a value. */
static void put_nans(const stk_gdn_pre_args *a) {
  const size_t keys = (size_t)a->k_heads * (size_t)a->k_dim, channels = 2 * keys + (size_t)a->v_heads * (size_t)a->v_dim;
  put_nan(a->k_tail, keys + 5, a->rows);
  put_nan(a->history, channels + 2 * keys + 7, a->rows);
}

static void compare_copies(const lab_case *want, const lab_case *got, const char *name) {
  for (int32_t i = 0; i < want->n; ++i) {
    if (strcmp(want->tensors[i].name, name) != 0) continue;
    const lab_difference d = lab_case_compare_tensor(want, got, i, 0);
    if (d.word != LAB_EQUAL) fail_msg("%s differs at %d", name, (int)d.first);
  }
}

/* What only moves keeps its bits, NaNs too: history, tail, and the keys before the window. */
static void run_copies(int32_t T, stk_dtype rows) {
  const stk_gdn_pre_args shape = {.n_tokens = T, .k_heads = 2, .v_heads = 6, .k_dim = 128, .v_dim = 128, .n_taps = 4,
                                  .kinds = STK_GDN_ALL, .rows = (int32_t)rows};
  const stk_op *op = st_kreg_op(ST_OP_gdn_pre);
  const lab_fill fill = {.seed = 3, .poison = 0x5a, .guard = 0xa5, .unread = 0xff};
  lab_case want, got;
  stk_cuda_launch launch;
  strata_error err;
  assert_int_equal(lab_case_init(&want, op, &shape, fill, &err), STRATA_OK);
  assert_int_equal(lab_case_init(&got, op, &shape, fill, &err), STRATA_OK);
  put_nans(want.args);
  put_nans(got.args);
  lab_case_run(&want, op->oracle, 1);
  assert_null(stk_cuda_gdn_pre_cuda.plan(got.args, &big_chip, &launch));
  const char *wrong = cuda_emulate(gdn_pre_cuda, got.args, &launch, CUDA_SHUFFLED);
  if (wrong) fail_msg("%s", wrong);
  compare_copies(&want, &got, "history");
  compare_copies(&want, &got, "k_tail");
  compare_copies(&want, &got, "kn");
  lab_case_release(&want);
  lab_case_release(&got);
}

static void run_decode_copies(stk_dtype rows) {
  decode_case want, got;
  stk_cuda_launch launch;
  strata_error err;
  assert_int_equal(decode_case_init(&want, 0, 2, 6, rows, 3, &err), STRATA_OK);
  assert_int_equal(decode_case_init(&got, 0, 2, 6, rows, 3, &err), STRATA_OK);
  put_nans(want.stage[DECODE_PRE].args);
  put_nans(got.stage[DECODE_PRE].args);
  decode_case_run_oracles(&want);
  const stk_gdn_decode_args args = decode_args(got.stage[0].args, got.stage[1].args, got.stage[2].args);
  assert_null(stk_cuda_gdn_decode_cuda.plan(&args, &big_chip, &launch));
  const char *wrong = cuda_emulate(gdn_decode_cuda, &args, &launch, CUDA_SHUFFLED);
  if (wrong) fail_msg("%s", wrong);
  compare_copies(&want.stage[DECODE_PRE], &got.stage[DECODE_PRE], "history");
  compare_copies(&want.stage[DECODE_PRE], &got.stage[DECODE_PRE], "k_tail");
  decode_case_release(&want);
  decode_case_release(&got);
}

static void test_copies(void **state) {
  (void)state;
  for (int rows = STK_F32; rows <= STK_F16; ++rows) {
    for (int32_t T = 1; T <= 3; ++T) run_copies(T, (stk_dtype)rows);
    run_decode_copies((stk_dtype)rows);
  }
}

static void test_decode(void **state) {
  (void)state;
  for (int order = CUDA_ASCENDING; order <= CUDA_SHUFFLED; ++order)
    for (int32_t pos0 = 0; pos0 < 4; ++pos0) {
      run_decode(pos0, 2, 6, STK_F32, (cuda_order)order);
      run_decode(pos0, 1, 1, STK_F32, (cuda_order)order);
      run_decode(pos0, 2, 6, STK_F16, (cuda_order)order);
    }
}

int main(void) {
  struct CMUnitTest tests[N_KERNELS + 9];
  for (int i = 0; i < N_KERNELS; ++i)
    tests[i] = (struct CMUnitTest){kernels[i].kernel->entry, test_kernel, NULL, NULL, (void *)(uintptr_t)&kernels[i]};
  tests[N_KERNELS] = (struct CMUnitTest)cmocka_unit_test(test_batch);
  tests[N_KERNELS + 1] = (struct CMUnitTest)cmocka_unit_test(test_decode);
  tests[N_KERNELS + 2] = (struct CMUnitTest)cmocka_unit_test(test_division);
  tests[N_KERNELS + 3] = (struct CMUnitTest)cmocka_unit_test(test_selection);
  tests[N_KERNELS + 4] = (struct CMUnitTest)cmocka_unit_test(test_near);
  tests[N_KERNELS + 5] = (struct CMUnitTest)cmocka_unit_test(test_hard_division);
  tests[N_KERNELS + 6] = (struct CMUnitTest)cmocka_unit_test(test_copies);
  tests[N_KERNELS + 7] = (struct CMUnitTest)cmocka_unit_test(test_division_range);
  tests[N_KERNELS + 8] = (struct CMUnitTest)cmocka_unit_test(test_silu_half);
  return cmocka_run_group_tests_name("emulated", tests, NULL, NULL);
}
