/* The dimensions of a qwen4_exp model, read from config.json.
 *
 * Accepted: the text config alone (model_type qwen4_exp_text) or nested under
 * "text_config" (model_type qwen4_exp). Every dimension is generic; what the
 * kernels need is checked here once, with the key named, so nothing later can
 * be of a wrong shape. Class defaults are never relied on except norm_topk_prob
 * (true), seed (1234), rms_norm_eps (1e-6), tie_word_embeddings (false) and
 * partial_rotary_factor (0.25).
 *
 * Errors: FORMAT for JSON that is broken or a value of the wrong type or range
 * (absurd numbers included: every size is bounded before it is multiplied),
 * UNSUPPORTED for a valid value that strata does not run (another model_type,
 * rope scaling, an unknown layer type, indexer_kv_heads other than 1, ...). */
#ifndef QWEN4_CONFIG_H
#define QWEN4_CONFIG_H

#include "core/st_error.h"

enum {
  QWEN4_LAYERS_MAX = 1024,
  QWEN4_EOS_MAX = 16,
  QWEN4_PLE_MAX = 8,    /* PLE layers */
  QWEN4_NGRAM_MAX = 8,  /* ngram_size */
  QWEN4_DIM_MAX = 1 << 24, /* any single dimension but the n-gram table */
};

typedef enum qwen4_layer_kind { QWEN4_GDN, QWEN4_QSA } qwen4_layer_kind;

typedef struct qwen4_config {
  int32_t n_layers, hidden, vocab, max_positions;
  uint8_t layer_kind[QWEN4_LAYERS_MAX]; /* qwen4_layer_kind */
  int32_t n_gdn_layers, n_qsa_layers;
  float rms_eps;
  int32_t tie_word_embeddings;

  int32_t hc_count, hc_lowrank; /* residual streams, rank of the read mix */

  int32_t gdn_k_heads, gdn_v_heads, gdn_k_dim, gdn_v_dim;
  int32_t gdn_taps; /* linear_conv_kernel_dim */

  int32_t q_heads, kv_heads, head_dim;
  int32_t rotary_dim; /* head_dim * partial_rotary_factor, even */
  double rope_theta;
  int32_t idx_heads, idx_dim, idx_budget, idx_ratio;

  int32_t n_experts, n_experts_used, expert_ff, shared_ff;
  int32_t norm_topk;

  int32_t n_ple;                    /* number of PLE layers, 0 if none */
  int32_t ple_layer[QWEN4_PLE_MAX]; /* decoder layer index, zero-based, ascending */
  int32_t ple_dim;                  /* ple_embed_dim */
  int32_t ngram_size, heads_per_ngram;
  int64_t ngram_vocab_base, ngram_vocab_divisor;
  int32_t ngram_parts;              /* split_ngram_parts, 1 if absent */
  int32_t ple_taps;                 /* ple_conv_kernel_size */
  uint64_t seed;
  int32_t ple_eos; /* eos_token_id (element 0 of a list): cuts the n-gram context; -1 if none */

  int32_t eos[QWEN4_EOS_MAX]; /* generation stops on these, from eos_token_id and
                               * generation_config.json where present */
  int32_t n_eos;
} qwen4_config;

/* Derived sizes. */
static inline int32_t qwen4_gdn_channels(const qwen4_config *c) {
  return 2 * c->gdn_k_heads * c->gdn_k_dim + c->gdn_v_heads * c->gdn_v_dim;
}
static inline int32_t qwen4_ngram_heads(const qwen4_config *c) {
  return (c->ngram_size - 1) * c->heads_per_ngram;
}

/* path: the model directory. Reads config.json and, if there,
 * generation_config.json (for eos ids only). */
strata_status qwen4_config_read(const char *directory, qwen4_config *out, strata_error *err);
/* The same from JSON text (for tests and the fuzzer). label stands in messages. */
strata_status qwen4_config_parse(const char *label, const char *json, size_t n_bytes,
                                 qwen4_config *out, strata_error *err);

/* The constants of the n-gram hash of PLE layer number ple (0 .. n_ple-1), as
 * in the checkpoint's int64 tensors: multipliers [ngram_size], head sizes and
 * offsets [qwen4_ngram_heads], n_rows = the padded number of table rows. The
 * head sizes are consecutive primes from ngram_vocab_base on, those of layer
 * ple + 1 following those of ple. NOMEM is the only error of a config that was
 * read by the functions above. release frees both arrays (one allocation). */
typedef struct qwen4_ngram_hash {
  uint64_t multiplier[QWEN4_NGRAM_MAX];
  int64_t *head_rows, *head_offset; /* [qwen4_ngram_heads(c)] */
  int64_t n_rows;
} qwen4_ngram_hash;
strata_status qwen4_ngram_hash_init(const qwen4_config *config, int32_t ple, qwen4_ngram_hash *out,
                                    strata_error *err);
void qwen4_ngram_hash_release(qwen4_ngram_hash *hash);

#endif
