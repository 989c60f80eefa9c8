/* The state of one sequence: everything a model remembers of the tokens it has
 * seen. One object: create, reset, copy, save, restore, hash.
 *
 * It is a list of parts. A part has a fixed number of bytes, or a row for every
 * `tokens_a_row` tokens (caches), of which only the rows of the tokens seen are
 * state; memory for the others is reserved but not used. The canonical bytes of
 * a state, which save writes and the hash covers, are the position and each
 * part's used bytes in order; they depend on the tokens seen and on nothing
 * else. */
#ifndef QWEN4_STATE_H
#define QWEN4_STATE_H

#include "model/qwen4_exp/qwen4_config.h"

typedef struct qwen4_part {
  const char *name;     /* "gdn state", "k cache", ... */
  int32_t layer;        /* -1 outside layers */
  uint8_t *data;
  size_t fixed_bytes;   /* or 0 */
  size_t row_bytes;     /* of a row, or 0 */
  int32_t tokens_a_row; /* 1, or the indexer's ratio */
  size_t reserved_bytes;
} qwen4_part;

/* Views into the parts, for the plan. NULL where a layer has no such part. */
typedef struct qwen4_layer_state {
  float *gdn;                                   /* tiles, see gdn_scan.h */
  float *gdn_history, *gdn_keys;                /* [taps-1][C], [2][Hk][Dk] */
  float *k_cache, *v_cache;                     /* [capacity][Hkv][D] */
  float *block_keys, *open_keys;                /* [capacity/ratio][Di], [ratio][Di] */
  float *ple_history;                           /* [(taps-1)*ngram_size][S*H] */
} qwen4_layer_state;

typedef struct qwen4_state {
  int32_t position, capacity;
  qwen4_part *parts;
  int32_t n_parts;
  qwen4_layer_state *layers; /* [n_layers] */
  int32_t *context;          /* [ngram_size - 1] last ids, oldest first; eos before the start */
  float *logits;             /* [vocab] of the last token */
} qwen4_state;

strata_status qwen4_state_init(const qwen4_config *config, int32_t capacity, qwen4_state *out,
                               strata_error *err);
void qwen4_state_release(qwen4_state *state);
void qwen4_state_reset(const qwen4_config *config, qwen4_state *state);
/* dst and src are of one config. LIMIT if src does not fit. */
strata_status qwen4_state_copy(qwen4_state *dst, const qwen4_state *src, strata_error *err);

/* fingerprint: of the weights. path is replaced in one step. */
strata_status qwen4_state_save(const qwen4_state *state, uint64_t fingerprint, const char *path,
                               strata_error *err);
/* On failure the state is as it was. */
strata_status qwen4_state_restore(qwen4_state *state, uint64_t fingerprint, const char *path,
                                  strata_error *err);
void qwen4_state_sha256(const qwen4_state *state, char hex[65]);

/* Bytes of a part that are state after `position` tokens. */
size_t qwen4_part_used(const qwen4_part *part, int32_t position);

/* The parts that a config needs, without memory: for the memory plan. gives
 * *parts (st_free). */
strata_status qwen4_state_describe(const qwen4_config *config, int32_t capacity, qwen4_part **parts,
                                   int32_t *n_parts, strata_error *err);

#endif
