/* Cases on the device, parity and times of GPU kernels. */
#include "lab/lab_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "device/cuda/st_cuda_kernels.h"
#include "kreg/st_kreg.h"
#include "lab/lab_topk.h"

/* ---- cases ------------------------------------------------------------------------ */

static size_t whole_bytes(const lab_case *host, int32_t i) {
  return host->buffers[i].n_bytes + 2 * (size_t)LAB_GUARD_BYTES;
}

/* A pointer of host's args, at the same place in the device's. */
static void point(const lab_case *host, int32_t i, lab_args *args, void *to) {
  size_t at = (size_t)((const uint8_t *)(const void *)host->tensors[i].slot - (const uint8_t *)host->args);
  memcpy(args->bytes + at, &to, sizeof to);
}

static bool is_table(const lab_case *host, int32_t i) { return host->tensors[i].dtype == STK_U8; }

/* The device's address of what p leads to; NULL if it is no byte of a tensor. */
static void *address_of(const lab_case *host, void *const memory[], const void *p) {
  for (int32_t i = 0; i < host->n; ++i) {
    const uintptr_t at = (uintptr_t)p - (uintptr_t)host->buffers[i].data;
    if (at < host->buffers[i].n_bytes) return (void *)((uintptr_t)memory[i] + LAB_GUARD_BYTES + at);
  }
  return NULL;
}

void lab_cuda_table(const lab_case *host, int32_t i, void *const memory[STK_TENSORS_MAX], void **out) {
  const void *const *pointers = (const void *const *)(const void *)host->buffers[i].data;
  const size_t n = host->buffers[i].n_bytes / sizeof *pointers;
  for (size_t k = 0; k < n; ++k) out[k] = address_of(host, memory, pointers[k]);
}

static strata_status upload_table(st_cuda *cuda, const lab_case *host, int32_t i, lab_cuda_case *c, strata_error *err) {
  void *table;
  ST_TRY(st_calloc(&table, 1, host->buffers[i].n_bytes, host->tensors[i].name, err));
  lab_cuda_table(host, i, c->memory, table);
  uint8_t *to = (uint8_t *)c->memory[i] + LAB_GUARD_BYTES;
  strata_status status = st_cuda_upload(cuda, to, table, host->buffers[i].n_bytes, err);
  st_free(table);
  return status;
}

strata_status lab_cuda_case_init(st_cuda *cuda, const lab_case *host, lab_cuda_case *out, strata_error *err) {
  strata_status status = STRATA_OK;
  *out = (lab_cuda_case){0};
  memcpy(out->args.bytes, host->args, host->op->args_bytes);
  for (; out->n < host->n; ++out->n) {
    void **memory = &out->memory[out->n];
    ST_TRY_OUT(st_cuda_alloc(cuda, whole_bytes(host, out->n), host->tensors[out->n].name, memory, err));
    point(host, out->n, &out->args, (uint8_t *)*memory + LAB_GUARD_BYTES);
  }
  ST_TRY_OUT(lab_cuda_case_upload(cuda, host, out, err));
out:
  if (status != STRATA_OK) lab_cuda_case_release(cuda, out);
  return status;
}

void lab_cuda_case_release(st_cuda *cuda, lab_cuda_case *c) {
  for (int32_t i = 0; i < STK_TENSORS_MAX; ++i) st_cuda_free(cuda, &c->memory[i]);
  *c = (lab_cuda_case){0};
}

strata_status lab_cuda_case_upload(st_cuda *cuda, const lab_case *host, lab_cuda_case *c, strata_error *err) {
  for (int32_t i = 0; i < host->n; ++i) {
    ST_TRY(st_cuda_upload(cuda, c->memory[i], host->buffers[i].data - LAB_GUARD_BYTES, whole_bytes(host, i), err));
    if (is_table(host, i) && host->buffers[i].n_bytes) ST_TRY(upload_table(cuda, host, i, c, err));
  }
  return STRATA_OK;
}

strata_status lab_cuda_case_download(st_cuda *cuda, const lab_cuda_case *c, lab_case *host, strata_error *err) {
  for (int32_t i = 0; i < host->n; ++i) {
    uint8_t *front = host->buffers[i].data - LAB_GUARD_BYTES;
    const uint8_t *from = c->memory[i];
    const size_t back = LAB_GUARD_BYTES + host->buffers[i].n_bytes;
    if (is_table(host, i)) {
      ST_TRY(st_cuda_download(cuda, front, from, LAB_GUARD_BYTES, err));
      ST_TRY(st_cuda_download(cuda, front + back, from + back, LAB_GUARD_BYTES, err));
    } else {
      ST_TRY(st_cuda_download(cuda, front, from, whole_bytes(host, i), err));
    }
  }
  return STRATA_OK;
}

/* ---- parity ------------------------------------------------------------------------- */

/* A kernel and one shape of its op. */
typedef struct trial {
  st_cuda *cuda;
  const stk_cuda_kernel *kernel;
  const stk_op *op;
  const void *shape;
  const stk_kernel *reference;
  int32_t n_repeats;
  lab_fill fill;
  int32_t scores; /* lab_topk_put; -1: those of the fill */
} trial;

/* Runs the kernel on a fresh copy of start's buffers; *detail stays empty if want's
 * bytes come out each time. */
static strata_status repeat(const trial *t, const st_cuda_module *module, const stk_cuda_launch *launch,
                            const lab_case *start, const lab_case *want, char *detail, size_t n_bytes,
                            strata_error *err) {
  strata_status status = STRATA_OK;
  lab_cuda_case device = {0};
  lab_case got = {0};
  ST_TRY_OUT(lab_cuda_case_init(t->cuda, start, &device, err));
  ST_TRY_OUT(lab_case_init(&got, t->op, t->shape, t->fill, err));
  for (int32_t i = 0; i < t->n_repeats && !detail[0]; ++i) {
    if (i) ST_TRY_OUT(lab_cuda_case_upload(t->cuda, start, &device, err));
    ST_TRY_OUT(st_cuda_launch(t->cuda, module, launch, device.args.bytes, err));
    ST_TRY_OUT(lab_cuda_case_download(t->cuda, &device, &got, err));
    lab_difference d = lab_case_compare(want, &got);
    if (!d.tensor) continue;
    int n = snprintf(detail, n_bytes, "repeat %d, seed %d: ", (int)i, (int)t->fill.seed);
    lab_difference_describe(&d, 0, detail + n, n_bytes - (size_t)n);
  }
out:
  lab_case_release(&got);
  lab_cuda_case_release(t->cuda, &device);
  return status;
}

static strata_status run_trial(const trial *t, char *detail, size_t n_bytes, strata_error *err) {
  strata_status status = STRATA_OK;
  st_cuda_module *module = NULL;
  lab_case start = {0}, want = {0};
  stk_cuda_launch launch;
  if (t->kernel->plan(t->shape, &st_cuda_info_of(t->cuda)->chip, &launch)) return STRATA_OK; /* not a shape it takes */
  ST_TRY_OUT(st_cuda_module_open_kernel(t->cuda, t->kernel, launch.options, &module, err));
  ST_TRY_OUT(lab_case_init(&start, t->op, t->shape, t->fill, err));
  ST_TRY_OUT(lab_case_init(&want, t->op, t->shape, t->fill, err));
  if (t->scores >= 0) {
    lab_topk_put(&start, t->scores);
    lab_topk_put(&want, t->scores);
  }
  lab_case_run(&want, t->reference, 1);
  ST_TRY_OUT(repeat(t, module, &launch, &start, &want, detail, n_bytes, err));
out:
  lab_case_release(&start);
  lab_case_release(&want);
  st_cuda_module_close(t->cuda, &module);
  return status;
}

static lab_fill filling(uint64_t seed) {
  const uint8_t poison = seed % 2 ? 0x5a : 0xa5;
  return (lab_fill){.seed = seed, .poison = poison, .guard = (uint8_t)(poison ^ 0xff), .unread = 0xff};
}

static strata_status check_kernel(st_cuda *cuda, const stk_cuda_kernel *kernel, int32_t n_repeats, lab_tally *tally,
                                  strata_error *err) {
  const st_op id = (st_op)st_kreg_op_by_name(kernel->op);
  const stk_op *op = st_kreg_op(id);
  char name[96], detail[320] = "", text[256] = "";
  st_kernel_set best;
  snprintf(name, sizeof name, "%s.%s = oracle", kernel->op, kernel->variant);
  if (kernel->contract != op->contract || kernel->args_bytes != op->args_bytes)
    snprintf(detail, sizeof detail, "built for another contract");
  for (int32_t c = 0; c < op->n_cases && !detail[0]; ++c)
    for (uint64_t seed = 1; seed <= 2 && !detail[0]; ++seed) {
      const void *shape = (const char *)op->cases + (size_t)c * op->args_bytes;
      trial t = {cuda, kernel, op, shape, op->oracle, n_repeats, filling(seed), -1};
      ST_TRY(run_trial(&t, text, sizeof text, err));
      if (text[0]) snprintf(detail, sizeof detail, "case %d, %s", (int)c, text);
    }
  lab_tally_add(tally, name, detail[0] ? detail : NULL);
  if (!op->released) return STRATA_OK;
  st_kernel_set_choose(&best, st_cpu_best());
  for (int32_t rows = STK_F32; rows <= (lab_op_has_param(op, "rows") ? STK_F16 : STK_F32); ++rows) {
    lab_settings settings = {0};
    lab_args released;
    if (rows) ST_TRY(lab_settings_put(&settings, "rows", rows, err));
    ST_TRY(lab_args_make(op, &settings, &released, err));
    trial t = {cuda, kernel, op, released.bytes, best.kernel[id], n_repeats / 10 + 1, filling(3), -1};
    text[0] = 0;
    ST_TRY(run_trial(&t, text, sizeof text, err));
    snprintf(name, sizeof name, "%s.%s = %s at the released shape%s", kernel->op, kernel->variant,
             best.kernel[id]->variant, rows ? ", rows of f16" : "");
    lab_tally_add(tally, name, text[0] ? text : NULL);
  }
  return STRATA_OK;
}

/* Ties, NaNs, and more blocks than shared memory holds. */
static strata_status check_selection(st_cuda *cuda, const stk_cuda_kernel *kernel, int32_t n_repeats, lab_tally *tally,
                                     strata_error *err) {
  st_kernel_set best;
  st_kernel_set_choose(&best, st_cpu_best());
  for (int32_t scores = 0; scores < LAB_TOPK_FILLS; ++scores) {
    char name[96], text[256] = "";
    for (int32_t i = 0; i < LAB_TOPK_SHAPES && !text[0]; ++i) {
      const stk_qsa_topk_args shape = lab_topk_shape(i);
      const trial t = {cuda, kernel, st_kreg_op(ST_OP_qsa_topk), &shape, best.kernel[ST_OP_qsa_topk], n_repeats,
                       filling(1), scores};
      ST_TRY(run_trial(&t, text, sizeof text, err));
    }
    snprintf(name, sizeof name, "%s.%s: %s, up to 100000 blocks", kernel->op, kernel->variant, lab_topk_fill_name(scores));
    lab_tally_add(tally, name, text[0] ? text : NULL);
  }
  return STRATA_OK;
}

strata_status lab_cuda_check(st_cuda *cuda, const char *what, int32_t n_repeats, lab_report *report, void *user,
                             int32_t *n_passed, int32_t *n_failed, strata_error *err) {
  lab_tally tally = {.report = report, .user = user};
  const stk_cuda_kernel *kernel;
  for (int32_t i = 0; (kernel = st_cuda_kernel_at(i)); ++i)
    if (!what || strncmp(kernel->op, what, strlen(what)) == 0) {
      ST_TRY(check_kernel(cuda, kernel, n_repeats, &tally, err));
      if (strcmp(kernel->op, "qsa_topk") == 0) ST_TRY(check_selection(cuda, kernel, n_repeats, &tally, err));
    }
  *n_passed = tally.n_passed;
  *n_failed = tally.n_failed;
  if (tally.n_passed + tally.n_failed == 0)
    ST_FAIL(err, ARG, "lab check: %s: the name of an op with GPU kernels, or the beginning of some, expected", what);
  return STRATA_OK;
}

/* ---- times ------------------------------------------------------------------------------ */

enum { ROUNDS_MAX = 101 };

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

strata_status lab_cuda_time(st_cuda *cuda, const st_cuda_module *module, const stk_cuda_launch *launch,
                            const lab_cuda_case *cases, int32_t n_cases, int32_t n_rounds, lab_cuda_times *out,
                            strata_error *err) {
  strata_status status = STRATA_OK;
  st_cuda_graph *graph = NULL;
  double round[ROUNDS_MAX];
  if (n_rounds > ROUNDS_MAX) n_rounds = ROUNDS_MAX;
  /* The first launch sets the function's attributes, outside the recording. */
  ST_TRY(st_cuda_launch(cuda, module, launch, cases[0].args.bytes, err));
  ST_TRY(st_cuda_wait(cuda, err));
  ST_TRY(st_cuda_graph_begin(cuda, err));
  for (int32_t i = 0; i < n_cases && status == STRATA_OK; ++i)
    status = st_cuda_launch(cuda, module, launch, cases[i].args.bytes, err);
  strata_status ended = st_cuda_graph_end(cuda, &graph, status == STRATA_OK ? err : NULL);
  if (status == STRATA_OK) status = ended;
  for (int32_t i = -2; i < n_rounds && status == STRATA_OK; ++i) {
    double taken = 0;
    ST_TRY_OUT(st_cuda_time_begin(cuda, err));
    ST_TRY_OUT(st_cuda_graph_run(cuda, graph, err));
    ST_TRY_OUT(st_cuda_time_end(cuda, &taken, err));
    if (i >= 0) round[i] = taken / n_cases;
  }
  if (status == STRATA_OK) {
    qsort(round, (size_t)n_rounds, sizeof *round, by_value);
    *out = (lab_cuda_times){round[0], round[n_rounds / 2]};
  }
out:
  st_cuda_graph_close(cuda, &graph);
  return status;
}
