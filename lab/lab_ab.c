/* One comparison, step by step. */
#include "lab/lab_ab.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/st_mem.h"
#include "lab/lab_cuda_bench.h"
#include "lab/lab_report.h"
#include "lab/lab_together.h"
#include "os/st_dir.h"
#include "os/st_file.h"
#include "os/st_process.h"
#include "os/st_spawn.h"

/* Copies of a module that must not meet. */

static void say(const lab_request *q, const char *what) {
  if (q->progress) q->progress(q->user, what);
}

/* ---- sizes -------------------------------------------------------------------- */

static bool any_has(const lab_request *q, const char *name) {
  for (int32_t s = 0; s < q->n_stages; ++s)
    if (lab_op_has_param(q->ops[s], name)) return true;
  return false;
}

static strata_status add_size(lab_size *sizes, int32_t *n, const lab_request *q, int32_t tokens,
                              int32_t f32, strata_error *err) {
  lab_size size = {0};
  if (*n == LAB_SIZES_MAX) ST_FAIL(err, ARG, "--T, --f32: at most %d sizes expected", LAB_SIZES_MAX);
  if (tokens) ST_TRY(lab_settings_put(&size.settings, "T", tokens, err));
  if (f32 >= 0) ST_TRY(lab_settings_put(&size.settings, "f32", f32, err));
  for (int32_t i = 0; i < q->settings.n; ++i)
    ST_TRY(lab_settings_put(&size.settings, q->settings.items[i].name, q->settings.items[i].value, err));
  lab_settings_text(&size.settings, size.name, sizeof size.name);
  if (!size.name[0]) snprintf(size.name, sizeof size.name, "released");
  for (int32_t i = 0; i < *n; ++i)
    if (strcmp(sizes[i].name, size.name) == 0) return STRATA_OK;
  sizes[(*n)++] = size;
  return STRATA_OK;
}

/* All combinations of tokens and f32 that some stage has. */
static strata_status add_sizes(lab_size *sizes, int32_t *n, const lab_request *q, const int32_t *tokens,
                               int32_t n_tokens, strata_error *err) {
  static const int32_t both[] = {0, 1}, neither[] = {-1};
  const int32_t *f32 = q->n_f32 ? q->f32 : both;
  int32_t n_f32 = q->n_f32 ? q->n_f32 : 2;
  static const int32_t no_tokens[] = {0};
  if (!any_has(q, "f32")) f32 = neither, n_f32 = 1;
  if (!any_has(q, "T")) tokens = no_tokens, n_tokens = 1;
  for (int32_t t = 0; t < n_tokens; ++t)
    for (int32_t f = 0; f < n_f32; ++f) ST_TRY(add_size(sizes, n, q, tokens[t], f32[f], err));
  return STRATA_OK;
}

static strata_status check_settings(const lab_request *q, strata_error *err) {
  lab_args args;
  for (int32_t i = 0; i < q->settings.n; ++i)
    if (!any_has(q, q->settings.items[i].name))
      ST_FAIL(err, ARG, "--set: %s: a parameter of %s expected", q->settings.items[i].name, q->ops[0]->name);
  if (q->n_f32 && !any_has(q, "f32")) ST_FAIL(err, ARG, "--f32: %s has no f32 output to choose", q->ops[0]->name);
  if (q->n_tokens && !any_has(q, "T")) ST_FAIL(err, ARG, "--T: %s has no T", q->ops[0]->name);
  for (int32_t s = 0; s < q->n_stages; ++s) ST_TRY(lab_args_make(q->ops[s], &q->settings, &args, err));
  return STRATA_OK;
}

static strata_status choose_sizes(lab_result *r, strata_error *err) {
  static const int32_t timed[] = {512, 1024, 2048}, short_ones[] = {1, 3, 37, 300};
  const lab_request *q = r->request;
  const int32_t *tokens = q->n_tokens ? q->tokens : timed;
  const int32_t n_tokens = q->n_tokens ? q->n_tokens : (int32_t)(sizeof timed / sizeof *timed);
  lab_args args;
  ST_TRY(check_settings(q, err));
  ST_TRY(add_sizes(r->checked, &r->n_checked, q, short_ones, sizeof short_ones / sizeof *short_ones, err));
  ST_TRY(add_sizes(r->checked, &r->n_checked, q, tokens, n_tokens, err));
  ST_TRY(add_sizes(r->timed, &r->n_timed, q, tokens, n_tokens, err));
  for (int32_t i = 0; i < r->n_checked; ++i)
    for (int32_t s = 0; s < q->n_stages; ++s)
      ST_TRY(lab_args_make(q->ops[s], &r->checked[i].settings, &args, err));
  return STRATA_OK;
}

/* ---- sources ------------------------------------------------------------------ */

static strata_status prepare_sides(lab_result *r, lab_stage *stage, int32_t s, strata_error *err) {
  const lab_request *q = r->request;
  ST_TRY(lab_side_freeze(&stage->base, stage->op, q->cuda, q->base[s], q->directory, "base", err));
  ST_TRY(lab_side_freeze(&stage->cand, stage->op, q->cuda, q->cand[s] ? q->cand[s] : q->base[s], q->directory, "cand", err));
  say(q, "compiling");
  ST_TRY(lab_side_compile(&stage->base, &q->tools, err));
  ST_TRY(lab_side_compile(&stage->cand, &q->tools, err));
  if (stage->base.numerics != STK_EXACT)
    ST_FAIL(err, ARG, "%s: a base of class exact expected", stage->base.given);
  if (stage->cand.numerics == STK_FAST) {
    stage->bound = stage->op->fast_bound;
    if (!(stage->bound > 0)) ST_FAIL(err, UNSUPPORTED, "%s: class fast, but %s has no bound for such kernels",
                                     stage->cand.given, stage->op->name);
  }
  return STRATA_OK;
}

static bool same_code(const lab_stage *stage) {
  return strcmp(stage->base.sha256, stage->cand.sha256) == 0 && strcmp(stage->base.level, stage->cand.level) == 0;
}

static strata_status refuse_equal(const lab_result *r, strata_error *err) {
  const lab_request *q = r->request;
  bool equal = true;
  for (int32_t s = 0; s < q->n_stages; ++s) equal &= same_code(&r->stages[s]);
  if (equal && q->kind != LAB_AA)
    ST_FAIL(err, ARG, "%s: a candidate that differs from the base expected (lab aa compares a kernel with itself)",
            r->stages[0].cand.given);
  return STRATA_OK;
}

/* The difference of two sources as diff(1) writes it; none without diff. */
static void find_diff(lab_stage *stage) {
  st_argv argv = {0};
  st_spawn_result result = {0};
  strata_error ignored;
  const char *const words[] = {"diff", "-u", "--label", stage->base.file, "--label", stage->cand.file,
                               stage->base.frozen, stage->cand.frozen};
  strata_status status = STRATA_OK;
  for (size_t i = 0; i < sizeof words / sizeof *words && status == STRATA_OK; ++i)
    status = st_argv_add(&argv, words[i], &ignored);
  if (status == STRATA_OK) status = st_spawn(&argv, 10, &result, &ignored);
  if (status == STRATA_OK && result.exit_code == 1 && !result.timed_out) {
    stage->diff = result.output.text;
    result.output = (st_string){0};
  }
  st_spawn_result_release(&result);
  st_argv_release(&argv);
}

/* ---- parity in children --------------------------------------------------------- */

/* What a child checks: kernels of a stage on one shape. Lies in shared memory. */
typedef struct check_job {
  const lab_side *base, *cand; /* base NULL: the op's oracle */
  const stk_op *op;
  const void *shape;
  int32_t n_threads;
  lab_trial trial;
  lab_parity parity;
} check_job;

static strata_status check_on_cpu(check_job *job, strata_error *err) {
  strata_status status = STRATA_OK;
  lab_loaded base = {0}, cand = {0};
  lab_together together = {0};
  if (job->base) ST_TRY_OUT(lab_side_load(job->base, 1, &base, err));
  ST_TRY_OUT(lab_side_load(job->cand, 1, &cand, err));
  job->trial.base = lab_runner_of(job->base ? base.kernels.kernel[0] : job->op->oracle);
  job->trial.cand = lab_runner_of(cand.kernels.kernel[0]);
  ST_TRY_OUT(st_pool_new(job->n_threads, &together.pool, err));
  together.kernel = cand.kernels.kernel[0];
  job->trial.together = lab_runner_together(&together);
  job->trial.n_threads = job->n_threads;
  ST_TRY_OUT(lab_parity_check(&job->trial, &job->parity, err));
out:
  st_pool_free(&together.pool);
  lab_side_unload(&base);
  lab_side_unload(&cand);
  return status;
}

/* What a GPU's kernel does wrong ends in an error of its driver. */
static strata_status check_on_gpu(check_job *job, strata_error *err) {
  strata_status status = STRATA_OK;
  st_cuda *cuda = NULL;
  lab_cuda_kernel base = {0}, cand = {0};
  ST_TRY_OUT(st_cuda_open(0, NULL, &cuda, err));
  if (job->base) ST_TRY_OUT(lab_cuda_kernel_open(cuda, job->base, &base, err));
  ST_TRY_OUT(lab_cuda_kernel_open(cuda, job->cand, &cand, err));
  job->trial.base = job->base ? lab_cuda_runner(&base) : lab_runner_of(job->op->oracle);
  job->trial.cand = lab_cuda_runner(&cand);
  status = lab_parity_check(&job->trial, &job->parity, err);
  if (status == STRATA_DEVICE) {
    job->parity.word = LAB_CRASHED;
    snprintf(job->parity.detail, sizeof job->parity.detail, "%.250s", err->message);
    status = STRATA_OK;
  }
out:
  lab_cuda_kernel_close(&base);
  lab_cuda_kernel_close(&cand);
  st_cuda_close(&cuda);
  return status;
}

static strata_status check_child(void *user, strata_error *err) {
  check_job *job = user;
  job->trial.op = job->op;
  job->trial.shape = job->shape;
  return job->cand->cuda ? check_on_gpu(job, err) : check_on_cpu(job, err);
}

/* Runs the job in a child; a crash or a hang becomes the parity's word. */
static strata_status check_once(const lab_request *q, check_job *job, strata_error *err) {
  st_child_result end;
  job->n_threads = q->n_threads > 1 ? q->n_threads : 2; /* parts meet, even if none do when timed */
  ST_TRY(st_child_run(check_child, job, q->deadline, &end, err));
  if (end.end == ST_CHILD_CRASHED) lab_parity_crashed(&job->parity, end.name, end.address);
  if (end.end == ST_CHILD_HUNG) {
    job->parity.word = LAB_HUNG;
    snprintf(job->parity.detail, sizeof job->parity.detail, "killed after %g seconds", q->deadline);
  }
  return STRATA_OK;
}

/* As check_once; a crash that does not come when what must not be read is harmless was
 * about reading it. */
static strata_status check_shape(const lab_request *q, check_job *job, strata_error *err) {
  ST_TRY(check_once(q, job, err));
  if (job->parity.word != LAB_CRASHED || job->trial.spare_unread) return STRATA_OK;
  check_job *again;
  void *shared;
  ST_TRY(st_shared_new(&shared, sizeof *again, "a child process", err));
  again = shared;
  *again = *job;
  again->trial.spare_unread = true;
  strata_status status = check_once(q, again, err);
  if (status == STRATA_OK && again->parity.word != LAB_CRASHED) job->parity.word = LAB_ON_UNREAD;
  st_shared_free(shared, sizeof *again);
  return status;
}

static strata_status run_controls(lab_result *r, lab_stage *stage, check_job *job, strata_error *err) {
  static const lab_control plan[LAB_CONTROLS] = {
      {.name = "base against base", .expected = LAB_PASS},
      {.name = "one bit of base's output flipped", .expected = LAB_WRONG_RESULT},
      {.name = "last head of base's output left unwritten", .expected = LAB_LEFT_UNWRITTEN}};
  static const lab_sabotage sabotage[LAB_CONTROLS] = {LAB_AS_IS, LAB_FLIP_BIT, LAB_SKIP_HEAD};
  lab_args args;
  /* The first checked size is the smallest. */
  ST_TRY(lab_args_make(stage->op, &r->checked[0].settings, &args, err));
  for (; stage->n_controls < LAB_CONTROLS; ++stage->n_controls) {
    lab_control *c = &stage->controls[stage->n_controls];
    *c = plan[stage->n_controls];
    *job = (check_job){.base = &stage->base, .cand = &stage->base, .op = stage->op,
                       .shape = args.bytes,
                       .trial = {.seed = r->request->seed, .sabotage = sabotage[stage->n_controls]}};
    ST_TRY(check_shape(r->request, job, err));
    c->got = job->parity.word;
    snprintf(c->detail, sizeof c->detail, "%s", job->parity.detail);
  }
  return STRATA_OK;
}

static strata_status check_oracle(lab_result *r, lab_stage *stage, const lab_side *side, double bound,
                                  check_job *job, lab_oracle_result *out, strata_error *err) {
  out->n_cases = stage->op->n_cases;
  for (int32_t i = 0; i < out->n_cases; ++i) {
    *job = (check_job){.cand = side, .op = stage->op,
                       .shape = (const char *)stage->op->cases + (size_t)i * stage->op->args_bytes,
                       .trial = {.seed = r->request->seed, .bound = bound}};
    ST_TRY(check_shape(r->request, job, err));
    if (job->parity.word == LAB_PASS) {
      ++out->n_passed;
    } else if (out->word == LAB_PASS) {
      out->word = job->parity.word;
      snprintf(out->detail, sizeof out->detail, "case %d: %s", i, job->parity.detail);
      if (job->parity.word == LAB_HUNG) break;
    }
  }
  return STRATA_OK;
}

static strata_status check_sizes(lab_result *r, lab_stage *stage, check_job *job, strata_error *err) {
  lab_args args;
  bool hung = stage->cand_oracle.word == LAB_HUNG; /* each would take the whole deadline */
  for (int32_t i = 0; i < r->n_checked; ++i) {
    say(r->request, r->checked[i].name);
    ST_TRY(lab_args_make(stage->op, &r->checked[i].settings, &args, err));
    *job = (check_job){.base = &stage->base, .cand = &stage->cand, .op = stage->op,
                       .shape = args.bytes,
                       .trial = {.seed = r->request->seed, .bound = stage->bound}};
    if (hung) {
      job->parity.word = LAB_HUNG;
      snprintf(job->parity.detail, sizeof job->parity.detail, "not run, after a hang");
    } else {
      ST_TRY(check_shape(r->request, job, err));
    }
    hung |= job->parity.word == LAB_HUNG;
    stage->parity[i] = job->parity;
  }
  return STRATA_OK;
}

static strata_status check_stage(lab_result *r, lab_stage *stage, strata_error *err) {
  strata_status status = STRATA_OK;
  void *shared;
  ST_TRY(st_shared_new(&shared, sizeof(check_job), "a child process", err));
  say(r->request, "controls");
  ST_TRY_OUT(run_controls(r, stage, shared, err));
  say(r->request, "test cases");
  ST_TRY_OUT(check_oracle(r, stage, &stage->base, 0, shared, &stage->base_oracle, err));
  ST_TRY_OUT(check_oracle(r, stage, &stage->cand, stage->bound, shared, &stage->cand_oracle, err));
  ST_TRY_OUT(check_sizes(r, stage, shared, err));
out:
  st_shared_free(shared, sizeof(check_job));
  return status;
}

/* ---- timing in a child ----------------------------------------------------------- */

/* Shared with the child that times one size: of each timing what it measured. */
typedef struct time_slot {
  int32_t n_sets, n_calls;
  size_t n_bytes;
  stk_work work;
  bool complete;
} time_slot;

typedef struct time_job {
  const lab_result *result;
  const lab_size *size;
  uint8_t *samples; /* [n_slots] of lab_samples_bytes, shared too */
  time_slot slots[LAB_STAGES_MAX + 1];
} time_job;

static int32_t slots_of(const lab_result *r) {
  return r->request->kind == LAB_PIPELINE ? r->request->n_stages + 1 : 1;
}

static lab_samples *samples_at(const time_job *job, int32_t slot) {
  return (lab_samples *)(void *)(job->samples + (size_t)slot * lab_samples_bytes(&job->result->rule));
}

/* Modules of all arms of all stages. */
typedef struct arms {
  lab_loaded modules[LAB_STAGES_MAX][LAB_ARMS];
  lab_args args[LAB_STAGES_MAX];
  lab_bench_stage stages[LAB_STAGES_MAX];
} arms;

static strata_status open_arms(const lab_result *r, const lab_size *size, arms *a, strata_error *err) {
  const lab_request *q = r->request;
  for (int32_t s = 0; s < q->n_stages; ++s) {
    const lab_stage *stage = &r->stages[s];
    ST_TRY(lab_args_make(stage->op, &size->settings, &a->args[s], err));
    ST_TRY(lab_side_load(&stage->base, LAB_COPIES, &a->modules[s][LAB_BASE], err));
    ST_TRY(lab_side_load(&stage->base, LAB_COPIES, &a->modules[s][LAB_NULL], err));
    if (q->kind != LAB_AA) ST_TRY(lab_side_load(&stage->cand, LAB_COPIES, &a->modules[s][LAB_CAND], err));
    a->stages[s] = (lab_bench_stage){.op = stage->op, .args = &a->args[s], .bound = stage->bound};
    for (int arm = 0; arm < LAB_ARMS; ++arm) a->stages[s].kernels[arm] = a->modules[s][arm].kernels;
  }
  return STRATA_OK;
}

static void close_arms(arms *a) {
  for (int32_t s = 0; s < LAB_STAGES_MAX; ++s)
    for (int arm = 0; arm < LAB_ARMS; ++arm) lab_side_unload(&a->modules[s][arm]);
}

static strata_status time_on_cpu(time_job *job, double end, strata_error *err) {
  const lab_result *r = job->result;
  const lab_request *q = r->request;
  const int32_t n_slots = slots_of(r);
  strata_status status = STRATA_OK;
  arms a = {0};
  st_pool *pool = NULL;
  lab_bench *bench = NULL;
  ST_TRY_OUT(open_arms(r, job->size, &a, err));
  ST_TRY_OUT(st_pool_new(q->n_threads, &pool, err));
  ST_TRY_OUT(lab_bench_new(a.stages, q->n_stages, pool, q->cache_bytes, r->rule.calls, q->seed, &bench, err));
  for (int32_t slot = 0; slot < n_slots; ++slot) {
    int32_t stage = slot < q->n_stages ? slot : -1;
    double left = end - st_clock_seconds();
    job->slots[slot] = (time_slot){lab_bench_sets(bench), lab_bench_calls(bench), lab_bench_bytes(bench),
                                   lab_bench_work(bench, stage), false};
    ST_TRY_OUT(lab_bench_measure(bench, stage, &r->rule, left / (n_slots - slot), samples_at(job, slot), err));
    job->slots[slot].complete = true;
  }
out:
  lab_bench_free(&bench);
  st_pool_free(&pool);
  close_arms(&a);
  return status;
}

static strata_status open_gpu_arms(const lab_result *r, const lab_size *size, st_cuda *cuda, lab_args *args,
                                   lab_cuda_stage *stages, strata_error *err) {
  for (int32_t s = 0; s < r->request->n_stages; ++s) {
    const lab_stage *stage = &r->stages[s];
    ST_TRY(lab_args_make(stage->op, &size->settings, &args[s], err));
    stages[s] = (lab_cuda_stage){.op = stage->op, .args = &args[s], .bound = stage->bound};
    ST_TRY(lab_cuda_kernel_open(cuda, &stage->base, &stages[s].kernel[LAB_BASE], err));
    ST_TRY(lab_cuda_kernel_open(cuda, &stage->base, &stages[s].kernel[LAB_NULL], err));
    if (r->request->kind != LAB_AA) ST_TRY(lab_cuda_kernel_open(cuda, &stage->cand, &stages[s].kernel[LAB_CAND], err));
  }
  return STRATA_OK;
}

static strata_status time_on_gpu(time_job *job, double end, strata_error *err) {
  const lab_result *r = job->result;
  const lab_request *q = r->request;
  const int32_t n_slots = slots_of(r);
  strata_status status = STRATA_OK;
  st_cuda *cuda = NULL;
  lab_args args[LAB_STAGES_MAX];
  lab_cuda_stage stages[LAB_STAGES_MAX] = {0};
  lab_cuda_bench *bench = NULL;
  ST_TRY_OUT(st_cuda_open(0, NULL, &cuda, err));
  ST_TRY_OUT(open_gpu_arms(r, job->size, cuda, args, stages, err));
  ST_TRY_OUT(lab_cuda_bench_new(cuda, stages, q->n_stages, r->rule.calls, q->seed, &bench, err));
  for (int32_t slot = 0; slot < n_slots; ++slot) {
    int32_t stage = slot < q->n_stages ? slot : -1;
    double left = end - st_clock_seconds();
    job->slots[slot] = (time_slot){lab_cuda_bench_sets(bench), lab_cuda_bench_calls(bench), lab_cuda_bench_bytes(bench),
                                   lab_cuda_bench_work(bench, stage), false};
    ST_TRY_OUT(lab_cuda_bench_measure(bench, stage, &r->rule, left / (n_slots - slot), samples_at(job, slot), err));
    job->slots[slot].complete = true;
  }
out:
  lab_cuda_bench_free(&bench);
  for (int32_t s = 0; s < LAB_STAGES_MAX; ++s)
    for (int arm = 0; arm < LAB_ARMS; ++arm) lab_cuda_kernel_close(&stages[s].kernel[arm]);
  st_cuda_close(&cuda);
  return status;
}

static strata_status time_child(void *user, strata_error *err) {
  time_job *job = user;
  const double end = st_clock_seconds() + 0.8 * job->result->request->deadline;
  return job->result->request->cuda ? time_on_gpu(job, end, err) : time_on_cpu(job, end, err);
}

static strata_status keep_timing(const lab_result *r, const time_job *job, int32_t slot, lab_timing *out,
                                 strata_error *err) {
  void *memory;
  const size_t n_bytes = lab_samples_bytes(&r->rule);
  const time_slot *measured = &job->slots[slot];
  ST_TRY(st_calloc(&memory, 1, n_bytes, "samples", err));
  out->samples = memory;
  memcpy(memory, samples_at(job, slot), n_bytes);
  out->size = (int32_t)(job->size - r->timed);
  out->n_sets = measured->n_sets;
  out->n_calls = measured->n_calls;
  out->n_bytes = measured->n_bytes;
  out->work = measured->work;
  ST_TRY(lab_stats_judge(out->samples->items, out->samples->n, &r->rule, &out->outcome, err));
  if (out->samples->changed) {
    out->outcome.verdict = LAB_WRONG;
    out->outcome.reason = LAB_REASON_CHANGED;
  } else if (!measured->complete) {
    out->outcome.verdict = LAB_NO_VERDICT;
    out->outcome.reason = LAB_REASON_DEADLINE;
  }
  return STRATA_OK;
}

static strata_status time_size(lab_result *r, int32_t size, strata_error *err) {
  strata_status status = STRATA_OK;
  const int32_t n_slots = slots_of(r);
  const size_t n_bytes = lab_samples_bytes(&r->rule) * (size_t)n_slots;
  void *job_memory = NULL, *samples = NULL;
  st_child_result end;
  say(r->request, r->timed[size].name);
  ST_TRY_OUT(st_shared_new(&job_memory, sizeof(time_job), "a child process", err));
  ST_TRY_OUT(st_shared_new(&samples, n_bytes, "samples", err));
  time_job *job = job_memory;
  *job = (time_job){.result = r, .size = &r->timed[size], .samples = samples};
  ST_TRY_OUT(st_child_run(time_child, job, r->request->deadline, &end, err));
  for (int32_t slot = 0; slot < n_slots; ++slot) {
    lab_timing *t = slot < r->request->n_stages ? &r->stages[slot].timings[size] : &r->total[size];
    ST_TRY_OUT(keep_timing(r, job, slot, t, err));
    if (end.end == ST_CHILD_CRASHED && !job->slots[slot].complete) t->outcome.reason = LAB_REASON_CRASHED;
  }
  ++r->n_measured;
out:
  st_shared_free(job_memory, sizeof(time_job));
  st_shared_free(samples, n_bytes);
  return status;
}

/* ---- the verdict ------------------------------------------------------------------ */

static bool find_wrong(lab_result *r) {
  for (int32_t s = 0; s < r->request->n_stages; ++s) {
    const lab_stage *stage = &r->stages[s];
    const lab_oracle_result *o = &stage->cand_oracle;
    for (int32_t i = 0; i < r->n_checked; ++i)
      if (stage->parity[i].word != LAB_PASS) {
        snprintf(r->reason, sizeof r->reason, "%s, %s: %s: %s", stage->op->name, r->checked[i].name,
                 lab_word_name(stage->parity[i].word), stage->parity[i].detail);
        return true;
      }
    if (o->word == LAB_PASS) continue;
    snprintf(r->reason, sizeof r->reason, "%s, %s: %s", stage->op->name, lab_word_name(o->word), o->detail);
    return true;
  }
  return false;
}

static bool find_bad_control(lab_result *r) {
  for (int32_t s = 0; s < r->request->n_stages; ++s) {
    const lab_stage *stage = &r->stages[s];
    for (int32_t i = 0; i < stage->n_controls; ++i)
      if (stage->controls[i].got != stage->controls[i].expected) {
        snprintf(r->reason, sizeof r->reason, "control failed: %s: %s expected, %s seen (%s)", stage->controls[i].name,
                 lab_word_name(stage->controls[i].expected), lab_word_name(stage->controls[i].got), stage->controls[i].detail);
        return true;
      }
    if (stage->base_oracle.word == LAB_PASS) continue;
    snprintf(r->reason, sizeof r->reason, "the base itself is wrong: %s: %s: %s", stage->op->name,
             lab_word_name(stage->base_oracle.word), stage->base_oracle.detail);
    return true;
  }
  return false;
}

const lab_timing *lab_result_timings(const lab_result *r) {
  return r->request->kind == LAB_PIPELINE ? r->total : r->stages[0].timings;
}

/* Whether a stage, or the chain, gave something else when it was timed. */
static bool find_wrong_timing(lab_result *r) {
  for (int32_t s = 0; s <= r->request->n_stages; ++s) {
    const lab_timing *t = s < r->request->n_stages ? r->stages[s].timings : r->total;
    for (int32_t i = 0; i < r->n_measured; ++i)
      if (t[i].outcome.verdict == LAB_WRONG) {
        const char *what = s < r->request->n_stages ? r->stages[s].op->name : "all stages";
        snprintf(r->reason, sizeof r->reason, "%s, %s: %s", what, r->timed[i].name, t[i].outcome.reason);
        return true;
      }
  }
  return false;
}

static void judge(lab_result *r) {
  lab_verdict sizes[LAB_SIZES_MAX];
  const lab_timing *t = lab_result_timings(r);
  if (find_wrong_timing(r)) {
    r->verdict = LAB_WRONG;
    return;
  }
  for (int32_t i = 0; i < r->n_measured; ++i) {
    sizes[i] = t[i].outcome.verdict;
    if (sizes[i] == LAB_NO_VERDICT && !r->reason[0])
      snprintf(r->reason, sizeof r->reason, "%s: %s", r->timed[i].name, t[i].outcome.reason);
  }
  r->verdict = lab_stats_overall(sizes, r->n_measured);
  if (r->verdict != LAB_NO_VERDICT) r->reason[0] = '\0';
}

/* ---- all of it ---------------------------------------------------------------------- */

/* Takes away what prepare_sides left, so that a refused run leaves nothing. */
static void remove_frozen(const lab_result *r) {
  static const char *const places[] = {"base", "cand"};
  char path[LAB_PATH_MAX + 16];
  for (int32_t s = 0; s < r->request->n_stages && r->stages; ++s) {
    if (r->stages[s].base.frozen[0]) st_file_remove(r->stages[s].base.frozen);
    if (r->stages[s].cand.frozen[0]) st_file_remove(r->stages[s].cand.frozen);
  }
  for (int i = 0; i < 2; ++i) {
    snprintf(path, sizeof path, "%s/%s", r->request->directory, places[i]);
    st_dir_remove(path);
  }
  st_dir_remove(r->request->directory);
}

static strata_status allocate(lab_result *r, strata_error *err) {
  void *memory;
  ST_TRY(st_calloc(&memory, (size_t)r->request->n_stages, sizeof *r->stages, "a comparison", err));
  r->stages = memory;
  for (int32_t s = 0; s < r->request->n_stages; ++s) {
    ST_TRY(st_calloc(&memory, LAB_SIZES_MAX, sizeof(lab_parity), "a comparison", err));
    r->stages[s].parity = memory;
    r->stages[s].op = r->request->ops[s];
  }
  return STRATA_OK;
}

static strata_status compare(lab_result *r, strata_error *err) {
  const lab_request *q = r->request;
  for (int32_t s = 0; s < q->n_stages; ++s) ST_TRY(check_stage(r, &r->stages[s], err));
  for (int32_t s = 0; s < q->n_stages; ++s) find_diff(&r->stages[s]);
  if (find_bad_control(r)) return STRATA_OK;
  if (find_wrong(r)) {
    r->verdict = LAB_WRONG;
    return STRATA_OK;
  }
  for (int32_t i = 0; i < r->n_timed && !find_wrong_timing(r); ++i) ST_TRY(time_size(r, i, err));
  judge(r);
  return STRATA_OK;
}

strata_status lab_ab_run(const lab_request *q, lab_result *r, strata_error *err) {
  strata_status status = STRATA_OK;
  const double begin = st_clock_seconds();
  *r = (lab_result){.request = q, .verdict = LAB_NO_VERDICT, .started = (int64_t)time(NULL)};
  ST_TRY(lab_rule_read(q->rule, &r->rule, err));
  ST_TRY(choose_sizes(r, err));
  ST_TRY(allocate(r, err));
  bool made = false;
  ST_TRY(st_dir_make_empty(q->directory, err));
  made = true;
  for (int32_t s = 0; s < q->n_stages; ++s) ST_TRY_OUT(prepare_sides(r, &r->stages[s], s, err));
  ST_TRY_OUT(refuse_equal(r, err));
  ST_TRY_OUT(compare(r, err));
  r->seconds = st_clock_seconds() - begin;
out:
  if (status != STRATA_OK && made) remove_frozen(r);
  return status;
}

void lab_result_release(lab_result *r) {
  for (int32_t s = 0; r->stages && s < r->request->n_stages; ++s) {
    st_free(r->stages[s].parity);
    st_free(r->stages[s].diff);
    for (int32_t i = 0; i < LAB_SIZES_MAX; ++i) st_free(r->stages[s].timings[i].samples);
  }
  for (int32_t i = 0; i < LAB_SIZES_MAX; ++i) st_free(r->total[i].samples);
  st_free(r->stages);
  *r = (lab_result){0};
}
