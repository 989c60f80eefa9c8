/* A session's inside, for the tests. */
#ifndef ST_SESSION_H
#define ST_SESSION_H

#include "model/qwen4_exp/qwen4_step.h"
#include "model/st_model.h"

struct strata_session {
  strata_model *model;
  int32_t window; /* most tokens run at once */
  bool damaged;   /* a window failed half way: only reset, copy, restore or rollback help */
  bool has_logits;
  /* What was fed since the checkpoint, and whether it had logits. */
  int32_t *since;
  size_t since_capacity;
  int32_t n_since;
  bool checkpoint_logits;
  qwen4_state state;
  qwen4_scratch scratch;
  st_plan plan;
  st_op_profile profile[ST_OPS];
  st_capture *capture; /* the plan's, or NULL */
  float *logits_run; /* [QWEN4_LOGITS_RUN][vocab], pages; only with all_logits */
  size_t logits_run_bytes;
};

#endif
