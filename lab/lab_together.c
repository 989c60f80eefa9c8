/* Running all parts on a pool, and letting them meet. */
#include "lab/lab_together.h"

#include <stdatomic.h>

#include "os/st_fpmode.h"
#include "os/st_process.h"

/* A thread that has not come within this time has no CPU to run on. */
#define COMPANY_SECONDS 0.2

/* What a kernel around the kernel needs. */
typedef struct watch {
  const stk_kernel *kernel;
  const void *args;
  _Atomic int32_t n_entered;
  _Atomic bool changed; /* of the floating-point mode */
  st_fpmode left;       /* then: the first thread's */
} watch;

/* Nobody begins before a second part does: on short work one thread may be done with all
 * parts before another wakes up, and then nothing has met. */
static void wait_for_company(watch *w, int32_t n_parts) {
  const double end = st_clock_seconds() + COMPANY_SECONDS;
  atomic_fetch_add(&w->n_entered, 1);
  while (n_parts > 1 && atomic_load(&w->n_entered) < 2 && st_clock_seconds() < end) continue;
}

static void run_watched(const void *args, int32_t part, int32_t n_parts) {
  watch *w = *(watch *const *)args;
  const st_fpmode before = st_fpmode_get();
  wait_for_company(w, n_parts);
  w->kernel->run(w->args, part, n_parts);
  const st_fpmode after = st_fpmode_get();
  if (st_fpmode_equal(before, after)) return;
  if (!atomic_exchange(&w->changed, true)) w->left = after;
  st_fpmode_set(before);
}

static strata_status run(const void *self, lab_case *c, int32_t n_parts, strata_error *err) {
  static const stk_kernel watched = {.run = run_watched};
  const lab_together *t = self;
  watch w = {.kernel = t->kernel, .args = c->args};
  watch *at = &w;
  const st_call call = {&watched, &at, n_parts, 0, -1};
  (void)err;
  lab_case_close_inputs(c);
  st_pool_run(t->pool, &call, 1, NULL, NULL);
  lab_case_open_inputs(c);
  if (atomic_load(&w.changed)) st_fpmode_set(w.left);
  return STRATA_OK;
}

lab_runner lab_runner_together(const lab_together *together) { return (lab_runner){run, together}; }
