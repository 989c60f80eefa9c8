/* One window of a qwen4_exp model as a plan of kernel calls, and the scratch
 * memory it needs. Follows sections 0 to 6 of the model's description; the
 * mathematics of each call is in the contract of its op. */
#ifndef QWEN4_STEP_H
#define QWEN4_STEP_H

#include "model/qwen4_exp/qwen4_state.h"
#include "model/qwen4_exp/qwen4_weights.h"
#include "runtime/st_plan.h"

/* Tokens whose logits are computed at once: bounds the memory of all_logits. */
enum { QWEN4_LOGITS_RUN = 128 };

/* Scratch for windows of up to n_tokens tokens of sequences of up to capacity.
 * Buffers of the four kinds of block lie over each other: only one runs at a
 * time. f32 unless said; T = n_tokens, S = streams, H = hidden. */
typedef struct qwen4_scratch {
  uint8_t *memory; /* everything but scores */
  size_t memory_bytes;
  float *score;    /* [T][score_stride], pages: touched in sparse windows only */
  size_t score_bytes;
  int64_t score_stride;

  int32_t *ids;       /* [ngram_size-1 + T]: context, then the window */
  float *r, *n, *u;   /* [T][S][H] residual streams, normalised, gates */
  float *x, *y;       /* [T][H] a block's input and output */
  float *low, *inject; /* [T][hc_lowrank], [T][S] */
  float *mean_square; /* [2*n_layers+1][T][S]: one row set a read */
  float *cos, *sin;   /* [T][n_pairs] */
  float *block_cos, *block_sin; /* [T/ratio+1][n_pairs] */

  float *qkv, *z, *ab, *qn, *kn, *vc, *gb, *kq, *o, *gdn_y;              /* GDN */
  float *q_raw, *k_raw, *v_raw, *index_raw, *q, *iq, *attn, *partial;    /* QSA */
  int32_t *cells, *n_cells;                                              /* QSA */
  float *router, *shared_logit, *route_weight, *shared, *all, *h, *h_shared; /* MoE */
  int32_t *expert;                                                       /* MoE */
  float *ngram, *key_raw, *value, *gv, *nv;                              /* PLE */
} qwen4_scratch;

strata_status qwen4_scratch_init(const qwen4_config *config, int32_t n_tokens, int32_t capacity,
                                 qwen4_scratch *out, strata_error *err);
void qwen4_scratch_release(qwen4_scratch *scratch);
/* Bytes of memory, and of scores for a sequence of sequence_tokens, without
 * allocating. */
void qwen4_scratch_plan(const qwen4_config *config, int32_t n_tokens, int32_t sequence_tokens,
                        int64_t *memory_bytes, int64_t *score_bytes);

/* What a window works on. */
typedef struct qwen4_window {
  const qwen4_config *config;
  const qwen4_weights *weights;
  const float *inv_freq; /* [rotary_dim / 2] */
  qwen4_state *state;    /* position is that of the window's first token */
  qwen4_scratch *scratch;
  int32_t n_tokens;
} qwen4_window;

/* Upper bound of the calls of one plan. */
int32_t qwen4_plan_capacity(const qwen4_config *config);

/* All layers. The window's ids must already be in scratch->ids. */
strata_status qwen4_plan_layers(const qwen4_window *window, st_plan *plan, strata_error *err);
/* The final mixer and the head, for tokens first .. first + count - 1 of the
 * window: logits [count][vocab]. Runs once for each token: it also makes the
 * last block's write into the residual streams. */
strata_status qwen4_plan_logits(const qwen4_window *window, int32_t first, int32_t count,
                                float *logits, st_plan *plan, strata_error *err);

#endif
