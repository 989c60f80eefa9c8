/* The parity suite of the GPU kernels on the first GPU; a case a kernel. Without a
 * GPU there is one line that says why, and nothing failed. */
#include <stdio.h>

#include <string.h>

#include "gdn_step/gdn_step_batch.h"
#include "kreg/st_kreg.h"
#include "lab/lab_cuda.h"

enum { REPEATS = 100 };

static void show(void *user, const char *name, const char *detail) {
  (void)user;
  if (detail) printf("%s\nnot ok %s\n", detail, name);
  else printf("ok %s\n", name);
  fflush(stdout);
}

enum { SEQUENCES = 5 };

/* Sequences at positions of both kinds, in one launch: the oracle's bytes of each. */
static strata_status check_batch(st_cuda *cuda, int32_t *n_failed, strata_error *err) {
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
    const lab_fill fill = {1 + (uint64_t)i, 0x5a, 0xa5, 0xff};
    shape.pos0 = i;
    ST_TRY_OUT(lab_case_init(&want[i], op, &shape, fill, err));
    ST_TRY_OUT(lab_case_init(&got[i], op, &shape, fill, err));
    ST_TRY_OUT(lab_cuda_case_init(cuda, &want[i], &device[i], err));
    memcpy(&steps[i], device[i].args.bytes, sizeof steps[i]);
    lab_case_run(&want[i], op->oracle, 1);
  }
  stk_gdn_step_batch_args args = {steps, SEQUENCES};
  stk_cuda_gdn_step_batch_cuda.plan(&args, &launch);
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
  show(NULL, "gdn_step.batch = oracle", text[0] ? text : NULL);
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
  if (status == STRATA_OK) status = check_batch(cuda, &n_failed, &err);
  if (status != STRATA_OK) printf("%s\nnot ok GPU\n", err.message);
  st_cuda_close(&cuda);
  return status != STRATA_OK || n_failed > 0;
}
