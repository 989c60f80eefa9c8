/* Checks and timings of captured calls, in children. */
#include "lab/lab_replay.h"

#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "os/st_process.h"


bool lab_replay_passed(const lab_replay_parity *p) {
  return p->oracle.word == LAB_PASS && p->captured.word == LAB_PASS;
}

/* ---- parity --------------------------------------------------------------------- */

/* What a child checks. Lies in shared memory. */
typedef struct check_job {
  const lab_trace *trace;
  const lab_replay_kernel *kernel;
  bool captured; /* which of the two comparisons */
  lab_parity parity;
} check_job;

/* The kernel's bound; of captured outputs, also that of the kernel that left them. */
static strata_status find_bound(const check_job *job, const stk_kernel *kernel, double *bound, strata_error *err) {
  const stk_op *op = job->trace->op;
  const bool fast = kernel->numerics == STK_FAST || (job->captured && job->trace->call.head->numerics == STK_FAST);
  *bound = fast ? op->fast_bound : 0;
  if (fast && !(op->fast_bound > 0))
    ST_FAIL(err, UNSUPPORTED, "%s: class fast, but %s has no bound for such kernels", kernel->variant, op->name);
  return STRATA_OK;
}

static strata_status check_child(void *user, strata_error *err) {
  check_job *job = user;
  strata_status status = STRATA_OK;
  lab_loaded loaded = {0};
  const stk_kernel *kernel = job->kernel->linked;
  lab_trial trial = {.op = job->trace->op, .shape = job->trace->shape, .trace = job->trace,
                     .base = lab_runner_of(job->trace->op->oracle), .captured = job->captured};
  if (!kernel) {
    ST_TRY_OUT(lab_side_load(job->kernel->side, 1, &loaded, err));
    kernel = loaded.kernels.kernel[0];
  }
  trial.cand = lab_runner_of(kernel);
  ST_TRY_OUT(find_bound(job, kernel, &trial.bound, err));
  ST_TRY_OUT(job->captured ? lab_parity_once(&trial, &job->parity, err) : lab_parity_check(&trial, &job->parity, err));
out:
  lab_side_unload(&loaded);
  return status;
}

/* Runs one comparison in a child; a crash or a hang becomes the parity's word. */
static strata_status check_once(check_job *job, double deadline, strata_error *err) {
  st_child_result end;
  ST_TRY(st_child_run(check_child, job, deadline, &end, err));
  if (end.end == ST_CHILD_CRASHED) lab_parity_crashed(&job->parity, end.name, end.address);
  if (end.end == ST_CHILD_HUNG) {
    job->parity.word = LAB_HUNG;
    snprintf(job->parity.detail, sizeof job->parity.detail, "killed after %g seconds", deadline);
  }
  return STRATA_OK;
}

strata_status lab_replay_check(const lab_trace *trace, const lab_replay_kernel *kernel, double deadline,
                               lab_replay_parity *out, strata_error *err) {
  strata_status status = STRATA_OK;
  void *shared;
  ST_TRY(st_shared_new(&shared, sizeof(check_job), "a child process", err));
  check_job *job = shared;
  for (int captured = 0; captured < 2; ++captured) {
    *job = (check_job){.trace = trace, .kernel = kernel, .captured = captured};
    ST_TRY_OUT(check_once(job, deadline, err));
    *(captured ? &out->captured : &out->oracle) = job->parity;
  }
out:
  st_shared_free(shared, sizeof *job);
  return status;
}

/* ---- timing --------------------------------------------------------------------- */

/* What a child times. Lies in shared memory; so do the samples. */
typedef struct time_job {
  const lab_replay_race *race;
  lab_samples *samples;
  int32_t n_sets, n_calls;
  size_t n_bytes;
  stk_work work;
  bool complete;
} time_job;

static strata_status time_child(void *user, strata_error *err) {
  time_job *job = user;
  const lab_replay_race *race = job->race;
  strata_status status = STRATA_OK;
  lab_loaded modules[LAB_ARMS] = {0};
  lab_bench_stage stage = {.op = race->trace->op, .trace = race->trace};
  st_pool *pool = NULL;
  lab_bench *bench = NULL;
  const double end = st_clock_seconds() + 0.8 * race->deadline;
  ST_TRY_OUT(lab_side_load(race->base, LAB_COPIES, &modules[LAB_BASE], err));
  ST_TRY_OUT(lab_side_load(race->base, LAB_COPIES, &modules[LAB_NULL], err));
  ST_TRY_OUT(lab_side_load(race->cand, LAB_COPIES, &modules[LAB_CAND], err));
  for (int arm = 0; arm < LAB_ARMS; ++arm) stage.kernels[arm] = modules[arm].kernels;
  stage.bound = race->cand->numerics == STK_FAST ? race->trace->op->fast_bound : 0;
  ST_TRY_OUT(st_pool_new(race->n_threads, &pool, err));
  ST_TRY_OUT(lab_bench_new(&stage, 1, pool, race->cache_bytes, race->rule->calls, 0, &bench, err));
  job->n_sets = lab_bench_sets(bench);
  job->n_calls = lab_bench_calls(bench);
  job->n_bytes = lab_bench_bytes(bench);
  job->work = lab_bench_work(bench, 0);
  ST_TRY_OUT(lab_bench_measure(bench, 0, race->rule, end - st_clock_seconds(), job->samples, err));
  job->complete = true;
out:
  lab_bench_free(&bench);
  st_pool_free(&pool);
  for (int arm = 0; arm < LAB_ARMS; ++arm) lab_side_unload(&modules[arm]);
  return status;
}

static strata_status keep_timing(const time_job *job, const lab_rule *rule, const st_child_result *end,
                                 lab_timing *out, strata_error *err) {
  void *memory;
  const size_t n_bytes = lab_samples_bytes(rule);
  ST_TRY(st_calloc(&memory, 1, n_bytes, "samples", err));
  out->samples = memory;
  memcpy(memory, job->samples, n_bytes);
  out->n_sets = job->n_sets;
  out->n_calls = job->n_calls;
  out->n_bytes = job->n_bytes;
  out->work = job->work;
  ST_TRY(lab_stats_judge(out->samples->items, out->samples->n, rule, &out->outcome, err));
  if (out->samples->changed) {
    out->outcome.verdict = LAB_WRONG;
    out->outcome.reason = "a timed batch left other bytes than base's";
  } else if (!job->complete) {
    out->outcome.verdict = LAB_NO_VERDICT;
    out->outcome.reason = end->end == ST_CHILD_CRASHED ? "stopped: a kernel crashed while it was timed"
                                                       : "stopped: the deadline came";
  }
  return STRATA_OK;
}

strata_status lab_replay_time(const lab_replay_race *race, lab_timing *out, strata_error *err) {
  strata_status status = STRATA_OK;
  const size_t n_bytes = lab_samples_bytes(race->rule);
  void *job_memory = NULL, *samples = NULL;
  st_child_result end;
  *out = (lab_timing){0};
  ST_TRY_OUT(st_shared_new(&job_memory, sizeof(time_job), "a child process", err));
  ST_TRY_OUT(st_shared_new(&samples, n_bytes, "samples", err));
  time_job *job = job_memory;
  *job = (time_job){.race = race, .samples = samples};
  ST_TRY_OUT(st_child_run(time_child, job, race->deadline, &end, err));
  ST_TRY_OUT(keep_timing(job, race->rule, &end, out, err));
out:
  st_shared_free(job_memory, sizeof(time_job));
  st_shared_free(samples, n_bytes);
  return status;
}
