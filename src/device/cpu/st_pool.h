/* A pool of threads that run lists of kernel calls together.
 *
 * Every thread walks the whole list; a call is cut into parts, and nobody starts
 * the next call before all parts of this one are done. So a list of a thousand
 * short calls costs one wake-up, and between calls only a barrier that spins.
 * Which thread does which part does not change any byte. */
#ifndef ST_POOL_H
#define ST_POOL_H

#include <strata/kernel.h>

#include "core/st_error.h"

typedef struct st_call {
  const stk_kernel *kernel;
  const void *args;
  int32_t n_parts; /* 1 .. */
  int32_t tag;     /* the caller's: which op, for the profile */
  int32_t layer;   /* the caller's: -1 outside layers */
} st_call;

typedef struct st_pool st_pool;

/* n_threads in 1 .. 256, the caller's thread included. */
strata_status st_pool_new(int32_t n_threads, st_pool **out, strata_error *err);
void st_pool_free(st_pool **pool);
int32_t st_pool_threads(const st_pool *pool);

/* Called on the caller's thread after each call. */
typedef void st_pool_observer(void *user, const st_call *call, double seconds);

/* Runs the calls in order; borrows them until it returns. observer may be NULL. */
void st_pool_run(st_pool *pool, const st_call *calls, int32_t n_calls, st_pool_observer *observer,
                 void *user);

#endif
