/* The state of one sequence: everything a model remembers of the tokens it has
 * seen. One object: create, reset, copy, save, restore, hash.
 *
 * It is a list of parts. A part has a fixed number of bytes, or it is a cache: rows
 * of a paged cache (common/k_cache.h), one for every `tokens_a_row` tokens, of which
 * only the rows of the tokens seen are state. Pages are made as the sequence grows;
 * none is ever moved. The canonical bytes of a state, which save writes and the hash
 * covers, are the position and each part's used bytes in order (of a cache: page by
 * page, plane by plane); they depend on the tokens seen and on the kind of the cache
 * and on nothing else.
 *
 * A checkpoint remembers the fixed parts, so that a sequence can be taken back to it:
 * rows of a cache beyond the position are no state, so caches cost nothing. */
#ifndef QWEN4_STATE_H
#define QWEN4_STATE_H

#include "common/k_cache.h"
#include "model/qwen4_exp/qwen4_config.h"

typedef struct qwen4_part {
  const char *name;     /* "gdn state", "kv cache", ... */
  int32_t layer;        /* -1 outside layers */
  uint8_t *data;        /* of a fixed part */
  size_t fixed_bytes;   /* 0: a cache */
  stk_cache cache;      /* its table has n_pages_max entries, the first n_pages set */
  int32_t tokens_a_row; /* 1, or the indexer's ratio */
  int32_t n_pages, n_pages_max;
} qwen4_part;

/* Views into the parts, for the plan. NULL where a layer has no such part. */
typedef struct qwen4_layer_state {
  float *gdn;                                   /* tiles, see gdn_scan.h */
  float *gdn_history, *gdn_keys;                /* [taps-1][C], [2][Hk][Dk] */
  uint8_t *const *kv_pages, *const *block_pages; /* keys and values, block keys */
  float *open_keys;                             /* [ratio][Di] */
  float *ple_history;                           /* [(taps-1)*ngram_size][S*H] */
} qwen4_layer_state;

typedef struct qwen4_state {
  int32_t position, capacity;
  int32_t kv; /* stk_kv: how keys and values are held */
  qwen4_part *parts;
  int32_t n_parts;
  qwen4_layer_state *layers; /* [n_layers] */
  int32_t *context;          /* [ngram_size - 1] last ids, oldest first; eos before the start */
  float *logits;             /* [vocab] of the last token */
  uint8_t *checkpoint;       /* the fixed parts at checkpoint_position; NULL before the first */
  int32_t checkpoint_position; /* -1: there is none */
} qwen4_state;

strata_status qwen4_state_init(const qwen4_config *config, int32_t capacity, stk_kv kv,
                               qwen4_state *out, strata_error *err);
void qwen4_state_release(qwen4_state *state);
void qwen4_state_reset(const qwen4_config *config, qwen4_state *state);
/* Makes the pages for a sequence of n_tokens <= capacity. NOMEM leaves the state as
 * it was (more pages than it needs are no state). */
strata_status qwen4_state_reserve(qwen4_state *state, int32_t n_tokens, strata_error *err);
/* dst and src are of one config. LIMIT if src does not fit, STATE if the caches are
 * of different kinds; dst is then as it was. dst has no checkpoint afterwards. */
strata_status qwen4_state_copy(qwen4_state *dst, const qwen4_state *src, strata_error *err);

/* Remembers the state as it is now; replaces an earlier checkpoint. The first one
 * allocates qwen4_state_fixed_bytes. NOMEM leaves everything as it was. */
strata_status qwen4_state_checkpoint(qwen4_state *state, strata_error *err);
/* Back to the checkpoint, which stays. There must be one. */
void qwen4_state_rollback(qwen4_state *state);
size_t qwen4_state_fixed_bytes(const qwen4_state *state);

/* fingerprint: of the weights. path is replaced in one step. */
strata_status qwen4_state_save(const qwen4_state *state, uint64_t fingerprint, const char *path,
                               strata_error *err);
/* On failure the state is as it was. */
strata_status qwen4_state_restore(qwen4_state *state, uint64_t fingerprint, const char *path,
                                  strata_error *err);
void qwen4_state_sha256(const qwen4_state *state, char hex[65]);

/* Bytes of a part that are state after `position` tokens, and those it then takes in
 * memory: whole pages. */
size_t qwen4_part_used(const qwen4_part *part, int32_t position);
size_t qwen4_part_memory(const qwen4_part *part, int32_t position);

/* The parts that a config needs, without memory: for the memory plan. gives
 * *parts (st_free). */
strata_status qwen4_state_describe(const qwen4_config *config, int32_t capacity, stk_kv kv,
                                   qwen4_part **parts, int32_t *n_parts, strata_error *err);

#endif
