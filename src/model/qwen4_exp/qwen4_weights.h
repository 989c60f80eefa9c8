/* The weights of a qwen4_exp model, bound to the tensors of a checkpoint.
 *
 * Matrices stay as stored (bf16, f16, f32) in the mapped file; one that is not
 * aligned to its element there is copied. Vectors (gains,
 * convolution taps, A_log, dt_bias) are widened to f32 once; a zero-centred
 * norm weight w becomes the gain 1 + w, added in f32; linear_attn.norm is a
 * plain gain.
 *
 * Accepted name prefixes: "model.", "model.language_model.", "language_model.",
 * "" for the text model; "lm_head.weight" without one. Both expert layouts:
 * stacked (mlp.experts.gate_up_proj [E, 2F, H], mlp.experts.down_proj [E, H, F])
 * and one by one (mlp.experts.E.{gate,up,down}_proj.weight). The n-gram table
 * whole (ngram_embedding.weight) or in shards (shard_P.weight, cut like
 * torch.chunk). The int64 hash tensors, if present, must equal the computed
 * constants; they are only compared, and count neither as bound nor as ignored.
 *
 * Errors: FORMAT names the first missing tensor, or the file and the tensor
 * whose shape is wrong with what was expected; UNSUPPORTED the tensor whose
 * dtype strata does not run (FP8, ...); NOMEM. Tensors that are not used
 * (visual, mtp, the lm_head of a tied model, ...) are listed, not refused. */
#ifndef QWEN4_WEIGHTS_H
#define QWEN4_WEIGHTS_H

#include <strata/kernel.h>

#include "model/qwen4_exp/qwen4_config.h"
#include "model/safetensors/st_safetensors.h"

/* One read (and write) of the residual streams, section 2 of the model's text.
 * S = hc_count, H = hidden, L = hc_lowrank. */
typedef struct qwen4_hc {
  const float *gain;  /* [S*H], 1 + w */
  stk_matrix down;    /* [L, S*H] */
  stk_matrix up;      /* [S*H, L] */
  stk_matrix inject;  /* [S, S*H]; data NULL in the final mixer */
} qwen4_hc;

typedef struct qwen4_gdn {
  stk_matrix qkv, z, b, a, out;
  const float *conv;    /* [channels][taps] */
  const float *a_log;   /* [v_heads] */
  const float *dt_bias; /* [v_heads] */
  const float *gain;    /* [v_dim], plain */
} qwen4_gdn;

typedef struct qwen4_qsa {
  stk_matrix q, k, v, o, index_qk;
  const float *q_gain, *k_gain;           /* [head_dim], 1 + w */
  const float *index_q_gain, *index_k_gain; /* [idx_dim], 1 + w */
} qwen4_qsa;

typedef struct qwen4_moe {
  stk_matrix router;      /* [E, H] */
  stk_matrix shared_gate; /* [1, H] */
  /* E + 1 experts; the last one is the shared expert (inner size shared_ff). */
  stk_matrix *gate, *up;  /* [E + 1], each [F, H] */
  stk_matrix *down;       /* [E + 1], each [H, F] */
} qwen4_moe;

typedef struct qwen4_ple {
  stk_matrix key;   /* [S*H, P] */
  stk_matrix value; /* [H, P] */
  const float *key_gain, *query_gain, *conv_gain; /* [S*H], 1 + w */
  const float *conv;    /* [S*H][taps] */
  stk_matrix *shards;   /* the table in row order: [n_shards], each [rows, P/heads] */
  int32_t n_shards;
  int64_t shard_rows;   /* rows of every shard but the last */
  qwen4_ngram_hash hash;
} qwen4_ple;

typedef struct qwen4_layer {
  qwen4_hc attn_hc, mlp_hc;
  qwen4_gdn gdn; /* if layer_kind is QWEN4_GDN */
  qwen4_qsa qsa; /* else */
  qwen4_moe moe;
  qwen4_ple *ple; /* NULL on most layers */
} qwen4_layer;

typedef struct qwen4_weights {
  stk_matrix embed, lm_head; /* lm_head equals embed when tied */
  qwen4_hc final_hc;
  qwen4_layer *layers; /* [n_layers] */
  int64_t n_parameters, weight_bytes;   /* of the bound tensors */
  int64_t widened_bytes;                /* memory of the f32 copies of vectors and of
                                         * the copies of unaligned matrices */
  int64_t bytes_by_dtype[3];            /* bf16, f16, f32 */
  int32_t n_bound;
  const char **ignored; /* names, views into the safetensors object */
  int32_t n_ignored;
  void *owned; /* what release frees */
} qwen4_weights;

/* keeps a view of tensors until released. After a failure *out is all zero. */
strata_status qwen4_weights_bind(const qwen4_config *config, const st_safetensors *tensors,
                                 qwen4_weights *out, strata_error *err);
void qwen4_weights_release(qwen4_weights *weights);

/* A hash of the model's identity: names, dtypes and shapes of all tensors of the
 * checkpoint and samples of their bytes (64 at the start, middle and end of
 * each); a state file carries it. It does not depend on how the tensors are
 * spread over files. Touches up to three pages a tensor. */
uint64_t qwen4_weights_fingerprint(const st_safetensors *tensors);

#endif
