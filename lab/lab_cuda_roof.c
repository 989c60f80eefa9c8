/* Rows of a roof on a GPU. */
#include "lab/lab_cuda_roof.h"

#include <math.h>

#include "core/st_mem.h"
#include "lab/lab_cuda.h"

/* The buffers of a row, and which of them a launch has. */
typedef struct row_buffers {
  lab_case host;
  lab_cuda_case sets[LAB_CUDA_ROOF_LAUNCHES], launches[LAB_CUDA_ROOF_LAUNCHES];
  int32_t n_sets;
} row_buffers;

int32_t lab_cuda_roof_sets(double set_bytes, double cache_bytes) {
  const double wanted = ceil(2 * cache_bytes / fmax(set_bytes, 1.0));
  return (int32_t)fmin(fmax(wanted, 2), LAB_CUDA_ROOF_LAUNCHES);
}

static double bytes_of(const lab_case *c) {
  double sum = 0;
  for (int32_t i = 0; i < c->n; ++i) sum += (double)c->buffers[i].n_bytes;
  return sum;
}

static strata_status fill(st_cuda *cuda, row_buffers *b, const stk_op *op, const lab_args *shape, strata_error *err) {
  const lab_fill how = {.seed = 1, .poison = 0xa5, .guard = 0x5e};
  ST_TRY(lab_case_init(&b->host, op, shape->bytes, how, err));
  const int32_t n = lab_cuda_roof_sets(bytes_of(&b->host), (double)st_cuda_info_of(cuda)->l2_bytes);
  for (; b->n_sets < n; ++b->n_sets) ST_TRY(lab_cuda_case_init(cuda, &b->host, &b->sets[b->n_sets], err));
  for (int32_t i = 0; i < LAB_CUDA_ROOF_LAUNCHES; ++i) b->launches[i] = b->sets[i % n];
  return STRATA_OK;
}

static strata_status time_row(st_cuda *cuda, const lab_ceilings *ceilings, const stk_cuda_kernel *kernel,
                              const stk_op *op, const lab_args *shape, int32_t n_rounds, lab_roof_row *row,
                              strata_error *err) {
  strata_status status = STRATA_OK;
  st_cuda_module *module = NULL;
  row_buffers *b = NULL;
  stk_cuda_launch launch;
  lab_cuda_times times;
  void *memory = NULL;
  const char *refused = kernel->plan(shape->bytes, &st_cuda_info_of(cuda)->chip, &launch);
  if (refused) ST_FAIL(err, UNSUPPORTED, "%s", refused);
  ST_TRY_OUT(st_calloc(&memory, 1, sizeof *b, "the timings", err));
  b = memory;
  ST_TRY_OUT(fill(cuda, b, op, shape, err));
  ST_TRY_OUT(st_cuda_module_open_kernel(cuda, kernel, launch.options, &module, err));
  ST_TRY_OUT(lab_cuda_time(cuda, module, &launch, b->launches, LAB_CUDA_ROOF_LAUNCHES, n_rounds, &times, err));
  op->work(b->host.args, &row->work);
  row->floor = lab_floor_of(&ceilings->all, &row->work, INFINITY);
  row->best = times.best;
  row->median = times.median;
out:
  for (int32_t i = 0; b && i < b->n_sets; ++i) lab_cuda_case_release(cuda, &b->sets[i]);
  if (b) lab_case_release(&b->host);
  st_free(memory);
  st_cuda_module_close(cuda, &module);
  return status;
}

strata_status lab_cuda_roof_op(st_cuda *cuda, const lab_ceilings *ceilings, const stk_cuda_kernel *kernel,
                               const lab_roof_request *q, int32_t n_rounds, lab_roof_row rows[LAB_ROOF_ROWS_MAX],
                               int32_t *n_rows, strata_error *err) {
  const bool has_tokens = lab_op_has_param(q->op, "T");
  const int32_t n = has_tokens ? q->n_tokens : 1;
  *n_rows = 0;
  if (n_rounds < 1 || n_rounds > LAB_ROUNDS_MAX || n < 1 || n > LAB_ROOF_ROWS_MAX)
    ST_FAIL(err, ARG, "lab roof: %d rounds of %d rows: 1 to %d of at most %d expected", n_rounds, n, LAB_ROUNDS_MAX,
            LAB_ROOF_ROWS_MAX);
  for (int32_t i = 0; i < n; ++i) {
    const int32_t T = has_tokens ? q->tokens[i] : 1;
    lab_args shape;
    rows[i] = (lab_roof_row){.op = q->op->name, .variant = kernel->variant, .n_tokens = T};
    ST_TRY(lab_roof_shape(q, T, &shape, err));
    ST_TRY(time_row(cuda, ceilings, kernel, q->op, &shape, n_rounds, &rows[i], err));
  }
  *n_rows = n;
  return STRATA_OK;
}
