/* strata lab roof --backend cuda: GPU kernels beside the ceilings of the first GPU. */
#include <stdio.h>
#include <string.h>

#include "cli_lab_gpu.h"
#include "cli_lab_roof.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "lab/lab_cuda_bench.h"
#include "lab/lab_cuda_roof.h"
#include "lab/lab_cuda_side.h"

/* What is timed: a kernel of each op. */
typedef struct choice {
  const stk_cuda_kernel *kernel[ST_OPS]; /* NULL: not this op */
  int n;
} choice;

static bool is_meant(const cli_words *words, const char *op, bool used[]) {
  bool meant = words->n == 0;
  for (int i = 0; i < words->n; i++)
    if (strncmp(op, words->items[i], strlen(words->items[i])) == 0) meant = used[i] = true;
  return meant;
}

static strata_status find_variant(choice *c, const char *variant, strata_error *err) {
  const stk_cuda_kernel *kernel;
  int op = 0;
  if (c->n != 1) ST_FAIL(err, ARG, "--variant: %d ops: one op expected", c->n);
  while (!c->kernel[op]) op++;
  for (int32_t i = 0; (kernel = st_cuda_kernel_of(st_kreg_op((st_op)op)->name, i)); i++)
    if (strcmp(kernel->variant, variant) == 0) {
      c->kernel[op] = kernel;
      return STRATA_OK;
    }
  ST_FAIL(err, ARG, "--variant: %s: a GPU kernel of %s expected", variant, st_kreg_op((st_op)op)->name);
}

static strata_status choose(const cli_roof_gpu_args *args, choice *out, strata_error *err) {
  enum { WORDS_MAX = 64 };
  bool used[WORDS_MAX] = {false};
  lab_settings settings = args->request.settings;
  *out = (choice){.n = 0};
  ST_TRY(cli_words_at_most(args->words, WORDS_MAX, "names of ops", err));
  for (int op = 0; op < ST_OPS; op++) {
    const stk_op *contract = st_kreg_op((st_op)op);
    const stk_cuda_kernel *kernel = st_cuda_kernel_of(contract->name, 0);
    if (!kernel || !contract->released || !is_meant(args->words, contract->name, used)) continue;
    ST_TRY(lab_settings_check(&settings, contract, err));
    out->kernel[op] = kernel;
    out->n++;
  }
  for (int i = 0; i < args->words->n; i++)
    if (!used[i])
      ST_FAIL(err, ARG, "lab roof: %s: an op with GPU kernels, or the beginning of some, expected", args->words->items[i]);
  return args->variant ? find_variant(out, args->variant, err) : STRATA_OK;
}

/* ---- showing --------------------------------------------------------------------- */

static double copy_rate(const lab_ceilings *c) { return c->all.bytes_per_s[LAB_DRAM][ST_TRAFFIC_COPY]; }

static void print_ceilings(const lab_ceilings *c) {
  printf("%s; measured now\n%.1f GFLOP/s multiply-adds of f32, %.1f GB/s of a copy within its memory, both directions\n",
         c->machine.cpu, 1e-9 * c->all.flops_per_s, 1e-9 * copy_rate(c));
}

static json_t *ceilings_json(const lab_ceilings *c) {
  return json_pack("{s:s, s:o, s:o}", "gpu", c->machine.cpu, "flops_per_second", cli_json_number(c->all.flops_per_s),
                   "copy_bytes_per_second", cli_json_number(copy_rate(c)));
}

/* ---- timing ---------------------------------------------------------------------- */

static strata_status time_op(st_cuda *cuda, const lab_ceilings *ceilings, const cli_roof_gpu_args *args, st_op op,
                             const stk_cuda_kernel *kernel, json_t *list, strata_error *err) {
  lab_roof_row rows[LAB_ROOF_ROWS_MAX];
  lab_roof_request request = args->request;
  int32_t n;
  request.op = st_kreg_op(op);
  ST_TRY(lab_cuda_roof_op(cuda, ceilings, kernel, &request, args->rounds, rows, &n, err));
  for (int32_t i = 0; i < n; i++) {
    if (args->json) json_array_append_new(list, cli_roof_row_json(&rows[i]));
    else cli_roof_print_row(&rows[i]);
  }
  return cli_interrupted() ? st_error_set(err, STRATA_CANCELLED, "lab roof: interrupted") : STRATA_OK;
}

static strata_status time_ops(const lab_ceilings *ceilings, const cli_roof_gpu_args *args, const choice *c, json_t *list,
                              strata_error *err) {
  strata_status status = STRATA_OK;
  st_cuda *cuda = NULL;
  if (args->only_ceilings) return STRATA_OK;
  ST_TRY_OUT(cli_lab_gpu(args->sources, args->json ? NULL : stdout, &cuda, err));
  if (!args->json) cli_roof_print_header();
  for (int op = 0; op < ST_OPS; op++)
    if (c->kernel[op]) ST_TRY_OUT(time_op(cuda, ceilings, args, (st_op)op, c->kernel[op], list, err));
out:
  st_cuda_close(&cuda);
  return status;
}

strata_status cli_roof_gpu(const cli_roof_gpu_args *args, strata_error *err) {
  strata_status status = STRATA_OK;
  lab_ceilings ceilings = {0};
  choice chosen;
  ST_TRY(choose(args, &chosen, err));
  ST_TRY(lab_cuda_ceilings(&ceilings, err));
  json_t *list = json_array();
  if (!args->json) print_ceilings(&ceilings);
  ST_TRY_OUT(time_ops(&ceilings, args, &chosen, list, err));
  status = args->json ? cli_json_print(json_pack("{s:o, s:O}", "machine", ceilings_json(&ceilings), "ops", list), err)
                      : cli_flush(err);
out:
  json_decref(list);
  return status;
}
