/* Plans: appending checked calls, running and counting them. */
#include "runtime/st_plan.h"

#include <string.h>

#include "core/st_mem.h"
#include "os/st_process.h"

enum { PARTS_A_THREAD = 4 };

strata_status st_plan_init(st_plan *plan, const st_kernel_set *kernels, int32_t n_threads,
                           int32_t capacity, strata_error *err) {
  void *calls = NULL, *args = NULL;
  *plan = (st_plan){.kernels = kernels, .n_threads = n_threads, .capacity = capacity};
  ST_TRY(st_calloc(&calls, (size_t)capacity, sizeof *plan->calls, "a plan", err));
  plan->calls = calls;
  ST_TRY(st_calloc_aligned(&args, (size_t)capacity, ST_PLAN_ARGS_MAX, "a plan", err));
  plan->args = args;
  return STRATA_OK;
}

void st_plan_release(st_plan *plan) {
  st_free(plan->calls);
  st_free(plan->args);
  *plan = (st_plan){0};
}

void st_plan_reset(st_plan *plan) { plan->n_calls = 0; }

strata_status st_plan_add(st_plan *plan, st_op op, const void *args, int32_t n_tokens,
                          int32_t layer, strata_error *err) {
  const stk_op *contract = st_kreg_op(op);
  const char *wrong = contract->check(args);
  if (wrong) ST_FAIL(err, INTERNAL, "plan: layer %d: %s", layer, wrong);
  if (plan->n_calls == plan->capacity || contract->args_bytes > ST_PLAN_ARGS_MAX)
    ST_FAIL(err, INTERNAL, "plan: %d calls: at most %d expected", plan->n_calls + 1, plan->capacity);
  uint8_t *copy = plan->args + (size_t)plan->n_calls * ST_PLAN_ARGS_MAX;
  memcpy(copy, args, contract->args_bytes);
  int32_t n_parts = plan->n_threads > 1 && n_tokens > 1 ? plan->n_threads * PARTS_A_THREAD
                                                        : plan->n_threads;
  plan->calls[plan->n_calls++] = (st_call){plan->kernels->kernel[op], copy, n_parts, op, layer};
  return STRATA_OK;
}

static void observe(void *user, const st_call *call, double seconds) {
  st_plan *plan = user;
  if (plan->seconds) plan->seconds[call - plan->calls] = seconds;
  if (plan->profile) {
    st_op_profile *row = &plan->profile[call->tag];
    ++row->calls;
    row->seconds += seconds;
    st_kreg_op((st_op)call->tag)->work(call->args, &row->work);
  }
  if (plan->watch) plan->watch(plan->watch_user, call);
}

static void run_calls(st_plan *plan, st_pool *pool, int32_t first, int32_t end) {
  bool observed = plan->profile || plan->watch || plan->seconds;
  double begin = plan->seconds ? st_clock_seconds() : 0;
  st_pool_run(pool, plan->calls + first, end - first, observed ? observe : NULL, plan);
  if (plan->seconds) plan->run_seconds += st_clock_seconds() - begin;
}

/* A captured call runs by itself, so that no thread is ahead of the copying. */
void st_plan_run(st_plan *plan, st_pool *pool) {
  int32_t first = 0;
  for (int32_t i = 0; plan->capture && i < plan->n_calls; ++i) {
    if (!st_capture_wants(plan->capture, &plan->calls[i])) continue;
    run_calls(plan, pool, first, i);
    st_capture_before(plan->capture, &plan->calls[i]);
    run_calls(plan, pool, i, i + 1);
    st_capture_after(plan->capture, &plan->calls[i]);
    first = i + 1;
  }
  run_calls(plan, pool, first, plan->n_calls);
}
