/* A plan: the flat list of kernel calls of one window, built anew for each
 * window (some 20 calls a layer, a few microseconds), checked as it is built,
 * and then run without anything that can fail. */
#ifndef ST_PLAN_H
#define ST_PLAN_H

#include "device/cpu/st_pool.h"
#include "kreg/st_kreg.h"
#include "runtime/st_capture.h"

enum { ST_PLAN_ARGS_MAX = 384 }; /* bytes of the largest args struct */

/* What each op cost, summed over calls. */
typedef struct st_op_profile {
  int64_t calls;
  double seconds;
  stk_work work;
} st_op_profile;

typedef struct st_plan {
  const st_kernel_set *kernels;
  int32_t n_threads, n_calls, capacity;
  st_call *calls;   /* [capacity] */
  uint8_t *args;    /* [capacity][ST_PLAN_ARGS_MAX] */
  st_op_profile *profile; /* [ST_OPS], or NULL when nobody counts */
  /* For the laboratory: [capacity], what each call of the last run took, or NULL;
   * and, with it, the wall time of all runs together. */
  double *seconds;
  double run_seconds;
  /* For tests: sees each call after it ran, with its args. May be NULL. */
  void (*watch)(void *user, const st_call *call);
  void *watch_user;
  st_capture *capture; /* borrowed; NULL: nothing is captured, and nothing is asked */
} st_plan;

strata_status st_plan_init(st_plan *plan, const st_kernel_set *kernels, int32_t n_threads,
                           int32_t capacity, strata_error *err);
void st_plan_release(st_plan *plan);
void st_plan_reset(st_plan *plan);

/* Appends a call of op with a copy of args (the op's struct); layer -1 is
 * outside the layers. n_tokens > 1 cuts the call finer than the threads, so
 * that uneven parts even out. INTERNAL, with the op's own words, if the args
 * break the contract. */
strata_status st_plan_add(st_plan *plan, st_op op, const void *args, int32_t n_tokens,
                          int32_t layer, strata_error *err);

void st_plan_run(st_plan *plan, st_pool *pool);

#endif
