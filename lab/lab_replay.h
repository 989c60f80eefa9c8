/* Repeating a captured call: does a kernel leave what the oracle leaves on the real
 * model's inputs, and what the model's own kernel left there; and how long does it take.
 *
 * Everything runs in child processes with a deadline, as in lab_ab.h. */
#ifndef LAB_REPLAY_H
#define LAB_REPLAY_H

#include "lab/lab_ab.h"

/* A kernel to run: a built-in variant as it is linked in, or a compiled side. */
typedef struct lab_replay_kernel {
  const stk_kernel *linked; /* NULL: side */
  const lab_side *side;
} lab_replay_kernel;

typedef struct lab_replay_parity {
  lab_parity oracle;   /* as lab_parity_check has it, by all its ways of running */
  lab_parity captured; /* one plain run beside the captured outputs */
} lab_replay_parity;

bool lab_replay_passed(const lab_replay_parity *parity);

/* A kernel that fails, crashes or hangs is a word in out. UNSUPPORTED for a kernel of
 * class fast where the contract has no bound; NOMEM. */
strata_status lab_replay_check(const lab_trace *trace, const lab_replay_kernel *kernel, double deadline,
                               lab_replay_parity *out, strata_error *err);

/* How a call is timed. cand is compared with base, and base with a second copy of it. */
typedef struct lab_replay_race {
  const lab_trace *trace;
  const lab_side *base, *cand;
  const lab_rule *rule;
  double deadline;
  int32_t n_threads;
  size_t cache_bytes;
} lab_replay_race;

/* The timing's size is 0. st_free its samples, also after a failure. */
strata_status lab_replay_time(const lab_replay_race *race, lab_timing *out, strata_error *err);

#endif
