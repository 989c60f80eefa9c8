/* A model: config, mapped weights, and what is derived from them once. */
#ifndef ST_MODEL_H
#define ST_MODEL_H

#include "model/qwen4_exp/qwen4_weights.h"
#include "model/st_engine.h"

enum { ST_MODEL_LINES_MAX = 32 };

struct strata_model {
  strata_engine *engine; /* borrowed for the model's life */
  qwen4_config config;
  st_safetensors *tensors;
  qwen4_weights weights;
  float *inv_freq; /* [rotary_dim / 2] */
  uint64_t fingerprint; /* of the weights; 0 until first asked for */
  int64_t program_bytes; /* st_model_program_bytes before the first session; 0 until then */
  char dtypes[128];
  struct {
    const char *name;
    char value[120];
  } lines[ST_MODEL_LINES_MAX];
  int32_t n_lines;
};

uint64_t st_model_fingerprint(strata_model *model);

/* What the process holds besides the model and its sessions: code, libraries,
 * heap (a tokenizer, say), stacks. Measured, since no table can know it. */
int64_t st_model_program_bytes(const strata_model *model);

#endif
