/* Times of the GPU kernels beside their floors, one table: median microseconds of a
 * launch in graph replays after warm-up, buffers rotated past the second-level cache.
 *
 *   bench_cuda [OP [T]]
 *
 * The floor of a row is the larger of its bytes over BANDWIDTH and, for the scan, its
 * multiply-adds over FMA_RATE; both were read on an H200 (docs/perf/h200.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/st_cuda_kernels.h"
#include "gdn_scan/gdn_scan.h"
#include "kreg/st_kreg.h"
#include "lab/lab_cuda.h"

static const double BANDWIDTH = 4.28e12, FMA_RATE = 32.2e12;
enum { SETS_MAX = 40, ROUNDS = 15 };

typedef struct row {
  const stk_cuda_kernel *kernel;
  const stk_op *op;
  lab_args args;
  int32_t n_sets;
  const char *label;
} row;

/* Gates as a model has them: decays near 1, no head that forgets at once. */
static void gates_of_a_model(lab_case *c) {
  for (int32_t i = 0; i < c->n; ++i) {
    if (strcmp(c->tensors[i].name, "gb") != 0 || c->tensors[i].role != STK_IN) continue;
    float *gb = (float *)(void *)c->buffers[i].data;
    for (size_t k = 0; k < c->tensors[i].n; k += 2) gb[k] = 0.95f + 0.05f * (float)(k % 97) / 97.0f;
  }
  for (int32_t i = 0; i < c->n; ++i) {
    if (strcmp(c->tensors[i].name, "state") != 0) continue;
    const stk_gdn_scan_args *a = c->args;
    const size_t tile = (size_t)(a->k_dim + STK_GDN_TILE_ROWS) * STK_GDN_TILE;
    float *state = (float *)(void *)c->buffers[i].data;
    for (size_t at = (size_t)(a->k_dim + STK_GDN_ROW_SCALARS) * STK_GDN_TILE; at < c->tensors[i].n; at += tile) {
      state[at + STK_GDN_C] = 0.01f;
      state[at + STK_GDN_S] = 1.0f;
      state[at + STK_GDN_C1] = 0.0098f;
    }
  }
}

static double floor_of(const row *r) {
  stk_work w = {0};
  r->op->work(r->args.bytes, &w);
  double bytes = w.weight_bytes + w.io_bytes + w.state_bytes;
  double by_bytes = bytes / BANDWIDTH, by_flops = w.flops / 2 / FMA_RATE;
  if (strcmp(r->op->name, "gdn_scan") == 0) {
    const stk_gdn_scan_args *a = (const void *)r->args.bytes;
    /* The state is read and written once a window. */
    double state = 8.0 * (double)stk_gdn_state_floats(a->v_heads, a->k_dim, a->v_dim);
    by_bytes = (w.io_bytes + state) / BANDWIDTH;
  }
  return by_bytes > by_flops ? by_bytes : by_flops;
}

static strata_status run_row(st_cuda *cuda, const row *r, strata_error *err) {
  strata_status status = STRATA_OK;
  static lab_cuda_case sets[SETS_MAX];
  st_cuda_module *module = NULL;
  stk_cuda_launch launch;
  lab_case host = {0};
  int32_t n = 0;
  double seconds = 0;
  const char *refused = r->kernel->plan(r->args.bytes, &launch);
  if (refused) {
    printf("%-22s %-22s %s\n", r->kernel->entry, r->label, refused);
    return STRATA_OK;
  }
  ST_TRY_OUT(st_cuda_module_open_kernel(cuda, r->kernel, launch.options, &module, err));
  ST_TRY_OUT(lab_case_init(&host, r->op, r->args.bytes, (lab_fill){1, 0x5a, 0xa5, 0xff}, err));
  gates_of_a_model(&host);
  for (; n < r->n_sets; ++n) ST_TRY_OUT(lab_cuda_case_init(cuda, &host, &sets[n], err));
  ST_TRY_OUT(lab_cuda_time(cuda, module, &launch, sets, n, ROUNDS, &seconds, err));
  st_cuda_module_info info = st_cuda_module_info_of(module);
  printf("%-22s %-22s %9.2f us  floor %8.2f  ratio %5.2f  grid %ux%u block %u regs %d local %d\n", r->kernel->entry,
         r->label, seconds * 1e6, floor_of(r) * 1e6, seconds / floor_of(r), launch.grid[0], launch.grid[1], launch.block,
         info.registers, info.local_bytes);
  fflush(stdout);
out:
  while (n > 0) lab_cuda_case_release(cuda, &sets[--n]);
  lab_case_release(&host);
  st_cuda_module_close(cuda, &module);
  return status;
}

/* T: only that many tokens; 0: all sizes. */
static strata_status run_op(st_cuda *cuda, const stk_op *op, int32_t T, strata_error *err) {
  static const struct {
    int32_t T, pos0, n_sets;
  } sizes[] = {{1, 0, 36}, {1, 1, 36}, {2, 0, 36}, {4, 0, 36}, {8, 0, 36}, {16, 0, 24}, {32, 0, 24}, {512, 0, 6}, {1024, 0, 4}, {2048, 0, 3}, {8192, 0, 1}};
  const stk_cuda_kernel *kernel;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s)
    for (int32_t i = 0; (kernel = st_cuda_kernel_of(op->name, i)); ++i) {
      lab_settings settings = {0};
      char label[64];
      row r = {.kernel = kernel, .op = op, .n_sets = sizes[s].n_sets, .label = label};
      ST_TRY(lab_settings_put(&settings, "T", sizes[s].T, err));
      ST_TRY(lab_settings_put(&settings, "pos0", sizes[s].pos0, err));
      ST_TRY(lab_args_make(op, &settings, &r.args, err));
      snprintf(label, sizeof label, "T=%d pos0=%d", (int)sizes[s].T, (int)sizes[s].pos0);
      if (T && T != sizes[s].T) continue;
      if (sizes[s].pos0 && !lab_op_has_param(op, "pos0")) continue;
      if (sizes[s].T != 1 && !lab_op_has_param(op, "T")) continue;
      ST_TRY(run_row(cuda, &r, err));
    }
  return STRATA_OK;
}

int main(int argc, char **argv) {
  char why[512];
  st_cuda *cuda = NULL;
  strata_error err = {0};
  if (st_cuda_count(why, sizeof why) == 0) {
    fprintf(stderr, "bench_cuda: %s\n", why);
    return 2;
  }
  strata_status status = st_cuda_open(0, NULL, &cuda, &err);
  for (int op = 0; op < ST_OPS && status == STRATA_OK; ++op) {
    const stk_op *contract = st_kreg_op((st_op)op);
    if (st_cuda_kernel_of(contract->name, 0) && (argc < 2 || strcmp(argv[1], contract->name) == 0))
      status = run_op(cuda, contract, argc > 2 ? (int32_t)strtol(argv[2], NULL, 10) : 0, &err);
  }
  if (status != STRATA_OK) fprintf(stderr, "bench_cuda: %s\n", err.message);
  st_cuda_close(&cuda);
  return status != STRATA_OK;
}
