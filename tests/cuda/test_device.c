/* The parity suite of the GPU kernels on the first GPU; a case a kernel. Without a
 * GPU there is one line that says why, and nothing failed.
 *
 *   test_device [OP [once]]
 *
 * With OP only this op's kernels ("": all; gdn_step has the batch and gdn_decode, too), and no
 * sweep over every float. once: each case once instead of 100 times, as under a sanitizer. */
#include <stdio.h>
#include <string.h>

#include "gdn_step/gdn_step_batch.h"
#include "kreg/st_kreg.h"
#include "lab/lab_cuda.h"
#include "tests/cuda/decode_case.h"

enum { REPEATS = 100 };

static void show(void *user, const char *name, const char *detail) {
  (void)user;
  if (detail) printf("%s\nnot ok %s\n", detail, name);
  else printf("ok %s\n", name);
  fflush(stdout);
}

enum { SEQUENCES = 5 };

/* Sequences at positions of both kinds, in one launch: the oracle's bytes of each. */
static strata_status check_batch(st_cuda *cuda, stk_dtype rows, int32_t *n_failed, strata_error *err) {
  strata_status status = STRATA_OK;
  const stk_op *op = st_kreg_op(ST_OP_gdn_step);
  lab_case want[SEQUENCES] = {{0}}, got[SEQUENCES] = {{0}};
  lab_cuda_case device[SEQUENCES] = {0};
  stk_gdn_step_args steps[SEQUENCES];
  st_cuda_module *module = NULL;
  stk_cuda_launch launch;
  void *list = NULL;
  char text[256] = "";
  for (int32_t i = 0; i < SEQUENCES; ++i) {
    stk_gdn_step_args shape = *(const stk_gdn_step_args *)op->released;
    const lab_fill fill = {.seed = 1 + (uint64_t)i, .poison = 0x5a, .guard = 0xa5, .unread = 0xff};
    shape.pos0 = i;
    shape.rows = (int32_t)rows;
    ST_TRY_OUT(lab_case_init(&want[i], op, &shape, fill, err));
    ST_TRY_OUT(lab_case_init(&got[i], op, &shape, fill, err));
    ST_TRY_OUT(lab_cuda_case_init(cuda, &want[i], &device[i], err));
    memcpy(&steps[i], device[i].args.bytes, sizeof steps[i]);
    lab_case_run(&want[i], op->oracle, 1);
  }
  stk_gdn_step_batch_args args = {steps, SEQUENCES};
  stk_cuda_gdn_step_batch_cuda.plan(&args, &st_cuda_info_of(cuda)->chip, &launch);
  ST_TRY_OUT(st_cuda_module_open_kernel(cuda, &stk_cuda_gdn_step_batch_cuda, launch.options, &module, err));
  ST_TRY_OUT(st_cuda_alloc(cuda, sizeof steps, "the list of steps", &list, err));
  ST_TRY_OUT(st_cuda_upload(cuda, list, steps, sizeof steps, err));
  args.steps = list;
  ST_TRY_OUT(st_cuda_launch(cuda, module, &launch, &args, err));
  for (int32_t i = 0; i < SEQUENCES && !text[0]; ++i) {
    ST_TRY_OUT(lab_cuda_case_download(cuda, &device[i], &got[i], err));
    lab_difference d = lab_case_compare(&want[i], &got[i]);
    if (d.tensor) lab_difference_describe(&d, 0, text, sizeof text);
  }
  show(NULL, rows == STK_F16 ? "gdn_step.batch = oracle, f16" : "gdn_step.batch = oracle, f32", text[0] ? text : NULL);
  *n_failed += text[0] != 0;
out:
  for (int32_t i = 0; i < SEQUENCES; ++i) {
    lab_case_release(&want[i]);
    lab_case_release(&got[i]);
    lab_cuda_case_release(cuda, &device[i]);
  }
  st_cuda_module_close(cuda, &module);
  st_cuda_free(cuda, &list);
  return status;
}

/* One position of the released shape, n_repeats times from the same start. */
static strata_status check_decode(st_cuda *cuda, int32_t pos0, stk_dtype rows, int32_t n_repeats, int32_t *n_failed, strata_error *err) {
  strata_status status = STRATA_OK;
  decode_case want = {0}, start = {0}, got = {0};
  lab_cuda_case device[DECODE_STAGES] = {0};
  st_cuda_module *module = NULL;
  stk_cuda_launch launch;
  char text[256] = "", name[64];
  ST_TRY_OUT(decode_case_init(&want, pos0, 16, 48, rows, 1 + (uint64_t)pos0, err));
  ST_TRY_OUT(decode_case_init(&start, pos0, 16, 48, rows, 1 + (uint64_t)pos0, err));
  ST_TRY_OUT(decode_case_init(&got, pos0, 16, 48, rows, 1 + (uint64_t)pos0, err));
  decode_case_run_oracles(&want);
  for (int i = 0; i < DECODE_STAGES; ++i) ST_TRY_OUT(lab_cuda_case_init(cuda, &start.stage[i], &device[i], err));
  const stk_gdn_decode_args args = decode_args(device[0].args.bytes, device[1].args.bytes, device[2].args.bytes);
  stk_cuda_gdn_decode_cuda.plan(&args, &st_cuda_info_of(cuda)->chip, &launch);
  ST_TRY_OUT(st_cuda_module_open_kernel(cuda, &stk_cuda_gdn_decode_cuda, launch.options, &module, err));
  for (int32_t r = 0; r < n_repeats && !text[0]; ++r) {
    for (int i = 0; i < DECODE_STAGES; ++i) ST_TRY_OUT(lab_cuda_case_upload(cuda, &start.stage[i], &device[i], err));
    ST_TRY_OUT(st_cuda_launch(cuda, module, &launch, &args, err));
    for (int i = 0; i < DECODE_STAGES; ++i) ST_TRY_OUT(lab_cuda_case_download(cuda, &device[i], &got.stage[i], err));
    lab_difference d = decode_case_compare(&want, &got);
    if (d.tensor) lab_difference_describe(&d, 0, text, sizeof text);
  }
  snprintf(name, sizeof name, "gdn_decode = three oracles, position %d, %s", (int)pos0, rows == STK_F16 ? "f16" : "f32");
  show(NULL, name, text[0] ? text : NULL);
  *n_failed += text[0] != 0;
out:
  decode_case_release(&want);
  decode_case_release(&start);
  decode_case_release(&got);
  for (int i = 0; i < DECODE_STAGES; ++i) lab_cuda_case_release(cuda, &device[i]);
  st_cuda_module_close(cuda, &module);
  return status;
}

/* A kernel that counts where a short way to a number differs from the plain one. */
typedef struct count_args {
  uint32_t *n_wrong;
} count_args;
typedef struct count_test {
  const char *name, *text;
  uint32_t n_blocks; /* of 256 threads */
} count_test;

#define COUNT_BEGIN                                           \
  "#include \"common/k_cuda_math.h\"\n"                        \
  "typedef struct count_args { unsigned *n_wrong; } count_args;\n" \
  "KC_KERNEL(count, count_args, 256, 1) {\n"                  \
  "  const unsigned index = blockIdx.x * 256u + threadIdx.x;\n" \
  "  unsigned wrong = 0;\n"
#define COUNT_END "  if (wrong) atomicAdd(a->n_wrong, wrong);\n}\n"

static const count_test count_tests[] = {
    /* By 1 + e^-x: every divisor in [1, 2^120], those up to 2^24 with 1 and 15 other numerators each. */
    {"the quick division and inverse = the plain ones",
     COUNT_BEGIN
     "  const float divisor = ks_float((int)(0x3f800000u + (index < 120u << 23 ? index : 120u << 23)));\n"
     "  unsigned random = index * 2654435761u + 1u;\n"
     "  for (int i = 0; i < 16 && index <= 24u << 23; ++i) {\n"
     "    random = random * 1664525u + 1013904223u;\n"
     "    const unsigned exponent = 127u - 70u + (random >> 8) % 77u;\n"
     "    const unsigned fraction = (random * 747796405u) >> 9;\n"
     "    const float top = i ? ks_float((int)((random & 0x80000000u) | exponent << 23 | fraction)) : 1.0f;\n"
     "    wrong += ks_bits(kf_div(top, divisor)) != ks_bits(top / divisor);\n"
     "  }\n"
     "  wrong += ks_bits(kc_inverse(divisor)) != ks_bits(1.0f / divisor);\n" COUNT_END,
     ((120u << 23) + 256) / 256},
    /* Every float. */
    {"the short silu and sigmoid = the shared ones",
     COUNT_BEGIN
     "  const float x = ks_float((int)index);\n"
     "  float silu, silu_half, sigmoid;\n"
     "  kc_silu(&x, &silu, 1);\n"
     "  kc_silu_half(&x, &silu_half, 1);\n"
     "  kc_sigmoid(&x, &sigmoid, 1);\n"
     "  wrong += ks_bits(silu) != ks_bits(ks_silu(x));\n"
     "  wrong += ks_bits(silu_half) != ks_bits(ks_silu_half(x));\n"
     "  wrong += ks_bits(sigmoid) != ks_bits(ks_sigmoid(x));\n" COUNT_END,
     1u << 24},
};

static strata_status check_count(st_cuda *cuda, const count_test *t, int32_t *n_failed, strata_error *err) {
  strata_status status = STRATA_OK;
  const st_cuda_source source = {"count.cu", t->text, "count", "", NULL};
  const stk_cuda_launch launch = {.grid = {t->n_blocks, 1, 1}, .block = 256};
  st_cuda_module *module = NULL;
  void *count = NULL;
  uint32_t n_wrong = 1;
  char text[64] = "";
  ST_TRY_OUT(st_cuda_module_open(cuda, &source, &module, err));
  ST_TRY_OUT(st_cuda_alloc(cuda, sizeof n_wrong, "a count", &count, err));
  ST_TRY_OUT(st_cuda_fill(cuda, count, 0, sizeof n_wrong, err));
  const count_args args = {count};
  ST_TRY_OUT(st_cuda_launch(cuda, module, &launch, &args, err));
  ST_TRY_OUT(st_cuda_download(cuda, &n_wrong, count, sizeof n_wrong, err));
  if (n_wrong) snprintf(text, sizeof text, "%u numbers differ", n_wrong);
  show(NULL, t->name, text[0] ? text : NULL);
  *n_failed += n_wrong != 0;
out:
  st_cuda_module_close(cuda, &module);
  st_cuda_free(cuda, &count);
  return status;
}

int main(int argc, char **argv) {
  char why[512];
  st_cuda *cuda = NULL;
  strata_error err;
  int32_t n_passed = 0, n_failed = 0;
  if (st_cuda_count(why, sizeof why) == 0) {
    printf("skip GPU kernels: %s\n", why);
    return 0;
  }
  strata_status status = st_cuda_open(0, NULL, &cuda, &err);
  if (status == STRATA_OK)
    status = lab_cuda_check(cuda, argc > 1 ? argv[1] : NULL, argc > 2 ? 1 : REPEATS, show, NULL, &n_passed, &n_failed, &err);
  for (size_t i = 0; i < sizeof count_tests / sizeof *count_tests && status == STRATA_OK && argc < 2; ++i)
    status = check_count(cuda, &count_tests[i], &n_failed, &err);
  const bool all = argc < 2 || !argv[1][0], steps = all || strcmp(argv[1], "gdn_step") == 0;
  for (int rows = STK_F32; rows <= STK_F16 && status == STRATA_OK && steps; ++rows)
    status = check_batch(cuda, (stk_dtype)rows, &n_failed, &err);
  for (int32_t pos0 = 0; pos0 < 8 && status == STRATA_OK && steps && st_cuda_info_of(cuda)->major >= 9; ++pos0)
    status = check_decode(cuda, pos0 % 4, pos0 < 4 ? STK_F32 : STK_F16, argc > 2 ? 1 : REPEATS, &n_failed, &err);
  if (status != STRATA_OK) printf("%s\nnot ok GPU\n", err.message);
  st_cuda_close(&cuda);
  return status != STRATA_OK || n_failed > 0;
}
