/* Times of the gated delta net's GPU kernels, and of qsa_decode, beside their floors,
 * one table: median microseconds of a launch in graph replays after warm-up,
 * buffers rotated past the second-level cache.
 *
 *   bench_cuda [--kernels DIR] [--f16] [OP [T]]
 *
 * OP: an op, batch (steps of many sequences), decode (pre, step and post of a token in
 * one launch), layers (36 layers of pre, scan and post), qsa_decode. DIR: sources that
 * take the place of built-in ones, as in lab check. --f16: rows of f16 instead of f32.
 *
 * The floor of a row is the larger of its bytes over BANDWIDTH and, for the scan, its
 * multiply-adds over FMA_RATE; both were read on an H200 (docs/perf/h200.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/st_cuda_kernels.h"
#include "device/cuda/st_cuda_sources.h"
#include "gdn_decode/gdn_decode.h"
#include "gdn_post/gdn_post.h"
#include "gdn_pre/gdn_pre.h"
#include "gdn_step/gdn_step_batch.h"
#include "kreg/st_kreg.h"
#include "lab/lab_cuda.h"
#include "qsa_decode/qsa_decode.h"

static const double BANDWIDTH = 4.28e12, FMA_RATE = 32.2e12;
enum { SETS_MAX = 40, ROUNDS = 15 };
static int32_t rows = STK_F32;
static const char *rows_note(void) { return rows == STK_F16 ? " f16" : ""; }

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
  lab_cuda_times times = {0};
  const char *refused = r->kernel->plan(r->args.bytes, &st_cuda_info_of(cuda)->chip, &launch);
  if (refused) {
    printf("%-22s %-22s %s\n", r->kernel->entry, r->label, refused);
    return STRATA_OK;
  }
  ST_TRY_OUT(st_cuda_module_open_kernel(cuda, r->kernel, launch.options, &module, err));
  ST_TRY_OUT(lab_case_init(&host, r->op, r->args.bytes, (lab_fill){.seed = 1, .poison = 0x5a, .guard = 0xa5, .unread = 0xff}, err));
  gates_of_a_model(&host);
  for (; n < r->n_sets; ++n) ST_TRY_OUT(lab_cuda_case_init(cuda, &host, &sets[n], err));
  ST_TRY_OUT(lab_cuda_time(cuda, module, &launch, sets, n, ROUNDS, &times, err));
  st_cuda_module_info info = st_cuda_module_info_of(module);
  printf("%-22s %-22s %9.2f us  floor %8.2f  ratio %5.2f  grid %ux%u block %u regs %d local %d\n", r->kernel->entry,
         r->label, times.median * 1e6, floor_of(r) * 1e6, times.median / floor_of(r), launch.grid[0], launch.grid[1], launch.block,
         info.registers, info.local_bytes);
  fflush(stdout);
out:
  while (n > 0) lab_cuda_case_release(cuda, &sets[--n]);
  lab_case_release(&host);
  st_cuda_module_close(cuda, &module);
  return status;
}

/* A linked-in kernel ready for one shape. */
typedef struct ready {
  st_cuda_module *module;
  stk_cuda_launch launch;
} ready;

static strata_status make_ready(st_cuda *cuda, const stk_cuda_kernel *kernel, const void *args, ready *out, strata_error *err) {
  const char *refused = kernel->plan(args, &st_cuda_info_of(cuda)->chip, &out->launch);
  if (refused) ST_FAIL(err, UNSUPPORTED, "%s", refused);
  return st_cuda_module_open_kernel(cuda, kernel, out->launch.options, &out->module, err);
}

static strata_status host_case(lab_case *out, const char *op, int32_t T, int32_t pos0, strata_error *err) {
  const stk_op *contract = st_kreg_op((st_op)st_kreg_op_by_name(op));
  lab_settings settings = {0};
  lab_args args;
  ST_TRY(lab_settings_put(&settings, "T", T, err));
  ST_TRY(lab_settings_put(&settings, "pos0", pos0, err));
  ST_TRY(lab_settings_put(&settings, "rows", rows, err));
  ST_TRY(lab_args_make(contract, &settings, &args, err));
  ST_TRY(lab_case_init(out, contract, args.bytes, (lab_fill){.seed = 1, .poison = 0x5a, .guard = 0xa5, .unread = 0xff}, err));
  gates_of_a_model(out);
  return STRATA_OK;
}

/* ---- steps of many sequences ------------------------------------------------------- */

enum { BATCH_MAX = 256, LAYERS = 36 };

/* n sequences, of as many layers as there is room for: each row of cases one layer. */
static strata_status run_batch(st_cuda *cuda, int32_t n, int32_t pos0, strata_error *err) {
  strata_status status = STRATA_OK;
  static lab_cuda_case sets[1024], lists[LAYERS];
  static stk_gdn_step_args steps[BATCH_MAX];
  const int32_t n_layers = n * LAYERS <= 1024 ? LAYERS : 1024 / n;
  void *list = NULL;
  lab_case host = {0};
  ready kernel = {0};
  lab_cuda_times times = {0};
  int32_t made = 0;
  ST_TRY_OUT(host_case(&host, "gdn_step", 1, pos0, err));
  const stk_gdn_step_batch_args shape = {host.args, n};
  ST_TRY_OUT(make_ready(cuda, &stk_cuda_gdn_step_batch_cuda, &shape, &kernel, err));
  ST_TRY_OUT(st_cuda_alloc(cuda, (size_t)n_layers * (size_t)n * sizeof *steps, "the list of steps", &list, err));
  for (int32_t layer = 0; layer < n_layers; ++layer) {
    for (int32_t i = 0; i < n; ++i, ++made) {
      ST_TRY_OUT(lab_cuda_case_init(cuda, &host, &sets[made], err));
      memcpy(&steps[i], sets[made].args.bytes, sizeof *steps);
    }
    stk_gdn_step_args *at = (stk_gdn_step_args *)list + layer * n;
    ST_TRY_OUT(st_cuda_upload(cuda, at, steps, (size_t)n * sizeof *steps, err));
    const stk_gdn_step_batch_args args = {at, n};
    memcpy(lists[layer].args.bytes, &args, sizeof args);
  }
  ST_TRY_OUT(lab_cuda_time(cuda, kernel.module, &kernel.launch, lists, n_layers, ROUNDS, &times, err));
  stk_work w = {0};
  host.op->work(host.args, &w);
  double floor = n * (w.state_bytes + w.io_bytes) / BANDWIDTH;
  printf("%-22s n=%-4d %-5s%-11s %9.2f us  floor %8.2f  ratio %5.2f\n", "gdn_step_batch_cuda", (int)n,
         pos0 % 2 ? "odd" : "even", rows_note(), times.median * 1e6, floor * 1e6, times.median / floor);
  fflush(stdout);
out:
  while (made > 0) lab_cuda_case_release(cuda, &sets[--made]);
  lab_case_release(&host);
  st_cuda_module_close(cuda, &kernel.module);
  st_cuda_free(cuda, &list);
  return status;
}

/* ---- layers of a prompt --------------------------------------------------------------- */

enum { STAGES = 3 };

/* LAYERS times pre, scan, post; pre's outputs are scan's inputs, and so on. Buffers of
 * n_sets layers in turn. */
static strata_status run_layers(st_cuda *cuda, int32_t T, int32_t n_sets, strata_error *err) {
  static const char *const names[STAGES] = {"gdn_pre", "gdn_scan", "gdn_post"};
  strata_status status = STRATA_OK;
  static lab_cuda_case sets[STAGES][SETS_MAX];
  lab_case host[STAGES] = {{0}};
  ready kernel[STAGES] = {{0}};
  st_cuda_graph *graph = NULL;
  double best[ROUNDS];
  int32_t made = 0;
  for (int k = 0; k < STAGES; ++k) {
    ST_TRY_OUT(host_case(&host[k], names[k], T, 0, err));
    ST_TRY_OUT(make_ready(cuda, st_cuda_kernel_of(names[k], 0), host[k].args, &kernel[k], err));
  }
  for (; made < n_sets; ++made) {
    for (int k = 0; k < STAGES; ++k) ST_TRY_OUT(lab_cuda_case_init(cuda, &host[k], &sets[k][made], err));
    const stk_gdn_pre_args *pre = (const void *)sets[0][made].args.bytes;
    stk_gdn_scan_args *scan = (void *)sets[1][made].args.bytes;
    stk_gdn_post_args *post = (void *)sets[2][made].args.bytes;
    scan->qn = pre->qn;
    scan->kn = pre->kn;
    scan->vc = pre->vc;
    scan->kq = pre->kq;
    post->o = scan->o;
  }
  for (int k = 0; k < STAGES; ++k) ST_TRY_OUT(st_cuda_launch(cuda, kernel[k].module, &kernel[k].launch, sets[k][0].args.bytes, err));
  ST_TRY_OUT(st_cuda_wait(cuda, err));
  ST_TRY_OUT(st_cuda_graph_begin(cuda, err));
  for (int32_t layer = 0; layer < LAYERS; ++layer)
    for (int k = 0; k < STAGES; ++k)
      ST_TRY_OUT(st_cuda_launch(cuda, kernel[k].module, &kernel[k].launch, sets[k][layer % n_sets].args.bytes, err));
  ST_TRY_OUT(st_cuda_graph_end(cuda, &graph, err));
  for (int i = -2; i < ROUNDS; ++i) {
    double seconds;
    ST_TRY_OUT(st_cuda_time_begin(cuda, err));
    ST_TRY_OUT(st_cuda_graph_run(cuda, graph, err));
    ST_TRY_OUT(st_cuda_time_end(cuda, &seconds, err));
    for (int at = i; at >= 0; --at) { /* keeps the times in order */
      best[at] = seconds;
      if (at == 0 || best[at - 1] <= seconds) break;
      best[at] = best[at - 1];
    }
  }
  printf("36 layers pre + scan + post, T=%-5d%s %9.3f ms, %8.2f us a layer\n", (int)T, rows_note(), best[ROUNDS / 2] * 1e3,
         best[ROUNDS / 2] * 1e6 / LAYERS);
  fflush(stdout);
out:
  st_cuda_graph_close(cuda, &graph);
  for (int k = 0; k < STAGES; ++k) {
    for (int32_t i = 0; i < SETS_MAX; ++i) lab_cuda_case_release(cuda, &sets[k][i]);
    lab_case_release(&host[k]);
    st_cuda_module_close(cuda, &kernel[k].module);
  }
  return status;
}

/* A token in one launch, the layers' buffers in turn. */
static strata_status run_decode(st_cuda *cuda, int32_t pos0, strata_error *err) {
  static const char *const names[STAGES] = {"gdn_pre", "gdn_step", "gdn_post"};
  strata_status status = STRATA_OK;
  static lab_cuda_case sets[STAGES][LAYERS], lists[LAYERS];
  lab_case host[STAGES] = {{0}};
  ready kernel = {0};
  lab_cuda_times times = {0};
  stk_work w = {0};
  for (int k = 0; k < STAGES; ++k) ST_TRY_OUT(host_case(&host[k], names[k], 1, pos0, err));
  for (int32_t layer = 0; layer < LAYERS; ++layer) {
    stk_gdn_decode_args args;
    for (int k = 0; k < STAGES; ++k) ST_TRY_OUT(lab_cuda_case_init(cuda, &host[k], &sets[k][layer], err));
    memcpy(&args.pre, sets[0][layer].args.bytes, sizeof args.pre);
    memcpy(&args.step, sets[1][layer].args.bytes, sizeof args.step);
    memcpy(&args.post, sets[2][layer].args.bytes, sizeof args.post);
    memcpy(lists[layer].args.bytes, &args, sizeof args);
  }
  ST_TRY_OUT(make_ready(cuda, &stk_cuda_gdn_decode_cuda, lists[0].args.bytes, &kernel, err));
  ST_TRY_OUT(lab_cuda_time(cuda, kernel.module, &kernel.launch, lists, LAYERS, ROUNDS, &times, err));
  for (int k = 0; k < STAGES; ++k) host[k].op->work(host[k].args, &w);
  double floor = (w.weight_bytes + w.state_bytes + w.io_bytes) / BANDWIDTH;
  printf("%-22s %-8s%-14s %9.2f us  floor %8.2f  ratio %5.2f\n", "gdn_decode_cuda", pos0 % 2 ? "T=1 odd" : "T=1 even",
         rows_note(), times.median * 1e6, floor * 1e6, times.median / floor);
  fflush(stdout);
out:
  for (int k = 0; k < STAGES; ++k) {
    for (int32_t i = 0; i < LAYERS; ++i) lab_cuda_case_release(cuda, &sets[k][i]);
    lab_case_release(&host[k]);
  }
  st_cuda_module_close(cuda, &kernel.module);
  return status;
}

/* One token against 2048 and 32768 cells, of which it has a list of 2048. */
static strata_status run_qsa_decode(st_cuda *cuda, strata_error *err) {
  static const struct {
    int32_t pos0, n_sets;
  } sizes[] = {{2047, 16}, {32767, 2}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s)
    for (int32_t kind = 0; kind < STK_KV_KINDS; ++kind) {
      lab_settings settings = {0};
      char label[64];
      row r = {.kernel = st_cuda_kernel_of("qsa_decode", 0), .op = st_kreg_op(ST_OP_qsa_decode),
               .n_sets = sizes[s].n_sets, .label = label};
      ST_TRY(lab_settings_put(&settings, "T", 1, err));
      ST_TRY(lab_settings_put(&settings, "pos0", sizes[s].pos0, err));
      ST_TRY(lab_settings_put(&settings, "kv", kind, err));
      ST_TRY(lab_args_make(r.op, &settings, &r.args, err));
      snprintf(label, sizeof label, "T=1 pos0=%d kv=%d", (int)sizes[s].pos0, (int)kind);
      ST_TRY(run_row(cuda, &r, err));
    }
  return STRATA_OK;
}

static strata_status run_batches(st_cuda *cuda, strata_error *err) {
  static const int32_t sizes[] = {1, 16, 64, 256};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
    for (int32_t pos0 = 0; pos0 < 2; ++pos0) ST_TRY(run_batch(cuda, sizes[i], pos0, err));
  return STRATA_OK;
}

static strata_status run_prompts(st_cuda *cuda, strata_error *err) {
  ST_TRY(run_layers(cuda, 512, 6, err));
  ST_TRY(run_layers(cuda, 1024, 4, err));
  return run_layers(cuda, 2048, 3, err);
}

/* ---- one op --------------------------------------------------------------------------- */

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
      ST_TRY(lab_settings_put(&settings, "rows", rows, err));
      ST_TRY(lab_args_make(op, &settings, &r.args, err));
      snprintf(label, sizeof label, "T=%d pos0=%d%s", (int)sizes[s].T, (int)sizes[s].pos0, rows_note());
      if (T && T != sizes[s].T) continue;
      if (sizes[s].pos0 && !lab_op_has_param(op, "pos0")) continue;
      if (sizes[s].T != 1 && !lab_op_has_param(op, "T")) continue;
      ST_TRY(run_row(cuda, &r, err));
    }
  return STRATA_OK;
}

static bool is_wanted(const char *what, const char *name) { return !what || strcmp(what, name) == 0; }

/* Those of the name, or all without one; T 0: several. */
static strata_status run(st_cuda *cuda, const char *what, int32_t T, strata_error *err) {
  static const char *const others[] = {"batch", "decode", "layers", "qsa_decode"};
  bool is_known = false;
  for (size_t i = 0; i < sizeof others / sizeof *others; ++i) is_known |= is_wanted(what, others[i]);
  for (int op = 0; op < ST_OPS; ++op) {
    const stk_op *contract = st_kreg_op((st_op)op);
    if (strncmp(contract->name, "gdn", 3) != 0 || !is_wanted(what, contract->name)) continue;
    is_known = true;
    ST_TRY(run_op(cuda, contract, T, err));
  }
  if (!is_known) ST_FAIL(err, ARG, "%s: gdn_pre, batch, decode, layers, qsa_decode or the like expected", what);
  if (is_wanted(what, "batch")) ST_TRY(run_batches(cuda, err));
  for (int32_t pos0 = 0; pos0 < 2 && is_wanted(what, "decode"); ++pos0) ST_TRY(run_decode(cuda, pos0, err));
  if (is_wanted(what, "layers")) ST_TRY(run_prompts(cuda, err));
  if (is_wanted(what, "qsa_decode") && rows == STK_F32) ST_TRY(run_qsa_decode(cuda, err));
  return STRATA_OK;
}

int main(int argc, char **argv) {
  char why[512];
  st_cuda *cuda = NULL;
  st_cuda_sources *sources = NULL;
  strata_error err = {0};
  strata_status status = STRATA_OK;
  if (st_cuda_count(why, sizeof why) == 0) {
    fprintf(stderr, "bench_cuda: %s\n", why);
    return 2;
  }
  if (argc > 2 && strcmp(argv[1], "--kernels") == 0) {
    status = st_cuda_sources_open(argv[2], &sources, &err);
    argc -= 2;
    argv += 2;
  }
  if (argc > 1 && strcmp(argv[1], "--f16") == 0) {
    rows = STK_F16;
    --argc;
    ++argv;
  }
  if (status == STRATA_OK) status = st_cuda_open(0, NULL, &cuda, &err);
  if (status == STRATA_OK) st_cuda_use_sources(cuda, sources);
  if (status == STRATA_OK)
    status = run(cuda, argc > 1 ? argv[1] : NULL, argc > 2 ? (int32_t)strtol(argv[2], NULL, 10) : 0, &err);
  if (status != STRATA_OK) fprintf(stderr, "bench_cuda: %s\n", err.message);
  st_cuda_close(&cuda);
  st_cuda_sources_close(&sources);
  return status != STRATA_OK;
}
