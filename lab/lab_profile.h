/* Where a model's time goes, kernel by kernel, beside the floor of each: for reading
 * a prompt and for writing token by token.
 *
 * Of the laboratory only this file and lab_replay see models. */
#ifndef LAB_PROFILE_H
#define LAB_PROFILE_H

#include <strata/strata.h>

#include "kreg/st_kreg.h"
#include "lab/lab_ceilings.h"

/* What all calls of one kernel cost. */
typedef struct lab_profile_row {
  const stk_kernel *kernel;
  int64_t calls;
  double seconds, floor_s;
  stk_work work;
} lab_profile_row;

enum { LAB_PROFILE_ROWS_MAX = 64 };

/* Times are sums over the passes of a phase. Each holds the one before it: kernels
 * inside lists of calls, lists inside passes, passes inside the phase. */
typedef struct lab_profile_phase {
  int64_t n_tokens;
  int64_t n_passes;         /* windows that were run */
  double kernels_s;         /* the rows' sum */
  double lists_s;           /* the lists of calls: and waking threads, reading clocks */
  double passes_s;          /* forward passes: and building plans, looking for NaN */
  double phase_s;           /* and choosing tokens; without the profile's own sums */
  double floor_s;           /* the rows' floors */
  double working_set_bytes; /* weights and state that one pass goes through */
  double read_bytes_per_s, update_bytes_per_s; /* measured for that working set */
  lab_profile_row rows[LAB_PROFILE_ROWS_MAX];
  int32_t n_rows;
} lab_profile_phase;

typedef struct lab_profile {
  lab_profile_phase prefill, decode;
} lab_profile;

typedef struct lab_profile_request {
  const int32_t *ids; /* the prompt */
  int32_t n_ids;
  int32_t n_decode; /* tokens to write after it, the likeliest each time; 0: none */
  int32_t window;
  /* Asked after each pass; false stops with CANCELLED. May be NULL. */
  bool (*go_on)(void *user);
  void *user;
} lab_profile_request;

/* Runs a session of the model: one window and one token untimed, which show the
 * working sets, then everything. ARG as strata_session_feed. ceilings are those of the
 * model's engine: the same level and threads. */
strata_status lab_profile_run(strata_model *model, const lab_ceilings *ceilings,
                              const lab_profile_request *request, lab_profile *out, strata_error *err);

#endif
