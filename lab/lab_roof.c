/* Timing one op's kernel on rotating buffers. */
#include "lab/lab_roof.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "lab/lab_case.h"
#include "os/st_process.h"

enum { SETS_MAX = 64, WARM_CALLS_MAX = 256 };
static const double SETS_BYTES_MAX = 512e6, WARM_BATCH_SECONDS = 5e-4;

/* Reading it drives everything else out of the caches. */
typedef struct evictor {
  const volatile uint8_t *data;
  int64_t n_bytes;
} evictor;

/* A row being timed: a batch is one call on each set of buffers, or, warm, several
 * on one. */
typedef struct job {
  lab_roof_row *row;
  lab_case sets[SETS_MAX];
  int32_t n_sets, n_calls;
  st_call calls[WARM_CALLS_MAX];
  bool evict; /* the sets alone do not fill the caches */
  double seconds[LAB_ROUNDS_MAX]; /* of a call */
} job;

static double case_bytes(const lab_case *c) {
  double sum = 0;
  for (int32_t i = 0; i < c->n; ++i) sum += (double)c->buffers[i].n_bytes;
  return sum;
}

/* At least so many different bytes are touched: what is read and written counts
 * twice as traffic. */
static double touched_bytes(const stk_work *w) {
  return w->weight_bytes + (w->state_bytes + w->io_bytes) / 2;
}

/* Four times the last cache: of what was touched before it then holds next to nothing,
 * whatever it throws out first. */
static double cold_bytes(const lab_rates *rates) {
  double last = 0;
  for (int m = LAB_L1; m < LAB_DRAM; ++m) last = fmax(last, (double)rates->capacity[m]);
  return 4 * last;
}

static void evict(const void *args, int32_t part, int32_t n_parts) {
  const evictor *e = args;
  int64_t begin, end;
  stk_slice(e->n_bytes, 64, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; i += 64) (void)e->data[i];
}

static const stk_kernel evict_kernel = {.run = evict};

static strata_status evictor_init(evictor *e, const lab_rates *rates, strata_error *err) {
  void *data;
  int64_t n_bytes = (int64_t)cold_bytes(rates);
  ST_TRY(st_calloc_aligned(&data, (size_t)n_bytes, 1, "the timings", err));
  *e = (evictor){data, n_bytes};
  return STRATA_OK;
}

/* ---- a job's buffers ------------------------------------------------------------ */

strata_status lab_roof_shape(const lab_roof_request *q, int32_t T, lab_args *out, strata_error *err) {
  lab_settings settings = q->settings;
  ST_TRY(lab_settings_check(&settings, q->op, err));
  ST_TRY(lab_settings_put(&settings, "T", T, err));
  return lab_args_make(q->op, &settings, out, err);
}

static int32_t sets_wanted(const job *j, const lab_rates *rates, double bytes) {
  double wanted = ceil(cold_bytes(rates) / fmax(touched_bytes(&j->row->work), 1.0));
  wanted = fmin(fmin(wanted, SETS_BYTES_MAX / bytes), SETS_MAX);
  return wanted > 1 ? (int32_t)wanted : 1;
}

static strata_status job_init(job *j, st_pool *pool, const lab_ceilings *c, const lab_roof_request *q,
                              int32_t T, strata_error *err) {
  lab_args shape;
  int32_t threads = st_pool_threads(pool), wanted = 1;
  ST_TRY(lab_roof_shape(q, T, &shape, err));
  while (j->n_sets < wanted) {
    lab_case *set = &j->sets[j->n_sets];
    ST_TRY(lab_case_init(set, q->op, shape.bytes, (lab_fill){.seed = (uint64_t)j->n_sets + 1}, err));
    j->calls[j->n_sets] = (st_call){q->kernel, set->args, T > 1 ? 4 * threads : threads, 0, -1};
    if (j->n_sets++ == 0) {
      q->op->work(set->args, &j->row->work);
      if (!q->warm) wanted = sets_wanted(j, &c->all, case_bytes(set));
    }
  }
  j->n_calls = j->n_sets;
  double all = touched_bytes(&j->row->work) * j->n_sets;
  j->evict = !q->warm && all < cold_bytes(&c->all);
  j->row->floor = lab_floor_of(&c->all, &j->row->work, q->warm ? all : INFINITY);
  return STRATA_OK;
}

static void job_release(job *j) {
  for (int32_t i = 0; i < j->n_sets; ++i) lab_case_release(&j->sets[i]);
}

/* ---- timing --------------------------------------------------------------------- */

/* Seconds of a call. */
static double run_batch(st_pool *pool, const job *j, const evictor *e) {
  const st_call sweep = {&evict_kernel, e, st_pool_threads(pool), 0, -1};
  if (j->evict) st_pool_run(pool, &sweep, 1, NULL, NULL);
  double begin = st_clock_seconds();
  st_pool_run(pool, j->calls, j->n_calls, NULL, NULL);
  return (st_clock_seconds() - begin) / j->n_calls;
}

/* A warm batch is so long that waking the threads does not count. */
static void lengthen(job *j, double seconds) {
  double n = seconds > 0 ? WARM_BATCH_SECONDS / seconds : WARM_CALLS_MAX;
  while (j->n_calls < WARM_CALLS_MAX && j->n_calls < n) j->calls[j->n_calls++] = j->calls[0];
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(st_pool *pool, job *jobs, int32_t n_jobs, int32_t n_rounds, const evictor *e) {
  for (int32_t i = 0; i < n_jobs; ++i) {
    double first = run_batch(pool, &jobs[i], e); /* pages, clock */
    if (jobs[i].row->warm) lengthen(&jobs[i], first);
  }
  for (int32_t round = 0; round < n_rounds; ++round)
    for (int32_t i = 0; i < n_jobs; ++i) jobs[i].seconds[round] = run_batch(pool, &jobs[i], e);
  for (int32_t i = 0; i < n_jobs; ++i) {
    qsort(jobs[i].seconds, (size_t)n_rounds, sizeof(double), compare_doubles);
    jobs[i].row->best = jobs[i].seconds[0];
    jobs[i].row->median = jobs[i].seconds[n_rounds / 2];
  }
}

strata_status lab_roof_op(st_pool *pool, const lab_ceilings *ceilings, const lab_roof_request *q,
                          int32_t n_rounds, lab_roof_row rows[LAB_ROOF_ROWS_MAX], int32_t *n_rows,
                          strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory = NULL;
  job *jobs;
  evictor e = {0};
  *n_rows = 0;
  if (n_rounds < 1 || n_rounds > LAB_ROUNDS_MAX || q->n_tokens < 1 || q->n_tokens > LAB_ROOF_ROWS_MAX)
    ST_FAIL(err, ARG, "lab roof: %d rounds of %d rows: 1 to %d of at most %d expected", n_rounds,
            q->n_tokens, LAB_ROUNDS_MAX, LAB_ROOF_ROWS_MAX);
  ST_TRY_OUT(evictor_init(&e, &ceilings->all, err));
  ST_TRY_OUT(st_calloc(&memory, (size_t)q->n_tokens, sizeof *jobs, "the timings", err));
  jobs = memory;
  const bool has_tokens = lab_op_has_param(q->op, "T");
  int32_t n = has_tokens ? q->n_tokens : 1;
  for (int32_t i = 0; i < n; ++i) {
    int32_t T = has_tokens ? q->tokens[i] : 1;
    rows[i] = (lab_roof_row){.op = q->op->name, .variant = q->kernel->variant, .n_tokens = T, .warm = q->warm};
    jobs[i].row = &rows[i];
    *n_rows = i + 1;
    ST_TRY_OUT(job_init(&jobs[i], pool, ceilings, q, T, err));
  }
  measure(pool, jobs, n, n_rounds, &e);
out:
  for (int32_t i = 0; memory && i < *n_rows; ++i) job_release((job *)memory + i);
  if (status != STRATA_OK) *n_rows = 0;
  st_free(memory);
  st_free((void *)(uintptr_t)e.data);
  return status;
}
