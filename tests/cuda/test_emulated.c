/* Every GPU kernel of the exact class, run thread by thread on the CPU over the
 * cases of its op: the oracle's bytes, whatever order the threads run in. */
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

/* The quick divisions, with the reciprocal correctly rounded; on the GPU, where one of
 * them starts from an approximation, tests/cuda/test_device does the same. */
static void test_division(void **state) {
  uint64_t random = 7;
  (void)state;
  for (int i = 0; i < 4000000; ++i) {
    const float a = random_float(&random, -90, 90), c = kc_abs(random_float(&random, -30, 30));
    const float top = random_float(&random, -70, 7), divisor = kc_abs(random_float(&random, 0, 24));
    const float got = kc_divide_near(a, c, 1.0f / c), want = a / c;
    if (memcmp(&got, &want, sizeof got) != 0) fail_msg("%a / %a: %a instead of %a", a, c, got, want);
    const float got2 = kf_div(top, divisor), want2 = top / divisor;
    if (memcmp(&got2, &want2, sizeof got2) != 0) fail_msg("%a / %a: %a instead of %a", top, divisor, got2, want2);
  }
}

static bool same_bits(float a, float b) { return memcmp(&a, &b, sizeof a) == 0; }

/* The short forms where they are taken are the shared functions. */
static void test_near(void **state) {
  uint64_t n_near = 0;
  (void)state;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 997) {
    const float x = ks_float((int32_t)(uint32_t)bits);
    n_near += (uint64_t)kc_silu_is_near(x);
    if (kc_silu_is_near(x) && !same_bits(kc_silu_near(x), ks_silu(x)))
      fail_msg("silu(%a): %a instead of %a", x, kc_silu_near(x), ks_silu(x));
    if (kc_sigmoid_is_near(x) && !same_bits(kc_sigmoid_near(x), ks_sigmoid(x)))
      fail_msg("sigmoid(%a): %a instead of %a", x, kc_sigmoid_near(x), ks_sigmoid(x));
    if (x != x && (kc_silu_is_near(x) || kc_sigmoid_is_near(x))) fail_msg("a NaN is near");
  }
  assert_in_range(n_near, 1000000, 1200000);
}

cuda_entry gdn_step_batch_cuda, gdn_decode_cuda;

/* Sequences at even and odd positions in one launch. */
static void test_batch(void **state) {
  enum { SEQUENCES = 3 };
  const stk_op *op = st_kreg_op(ST_OP_gdn_step);
  lab_case want[SEQUENCES], got[SEQUENCES];
  stk_gdn_step_args steps[SEQUENCES];
  stk_cuda_launch launch;
  strata_error err;
  (void)state;
  for (int i = 0; i < SEQUENCES; ++i) {
    const lab_fill fill = {.seed = 1 + (uint64_t)i, .poison = 0x5a, .guard = 0xa5, .unread = 0xff};
    stk_gdn_step_args shape = *(const stk_gdn_step_args *)op->cases;
    shape.pos0 = i;
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
  struct CMUnitTest tests[N_KERNELS + 5];
  for (int i = 0; i < N_KERNELS; ++i)
    tests[i] = (struct CMUnitTest){kernels[i].kernel->entry, test_kernel, NULL, NULL, (void *)(uintptr_t)&kernels[i]};
  tests[N_KERNELS] = (struct CMUnitTest)cmocka_unit_test(test_batch);
  tests[N_KERNELS + 1] = (struct CMUnitTest)cmocka_unit_test(test_decode);
  tests[N_KERNELS + 2] = (struct CMUnitTest)cmocka_unit_test(test_division);
  tests[N_KERNELS + 3] = (struct CMUnitTest)cmocka_unit_test(test_selection);
  tests[N_KERNELS + 4] = (struct CMUnitTest)cmocka_unit_test(test_near);
  return cmocka_run_group_tests_name("emulated", tests, NULL, NULL);
}
