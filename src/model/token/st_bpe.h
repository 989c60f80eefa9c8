/* Byte-pair merges over token ids, and the vocabulary that names them. */
#ifndef ST_BPE_H
#define ST_BPE_H

#include "core/st_mem.h"

/* Strings to ids: open addressing, at most half full. Zero to begin with. */
typedef struct st_vocab_row {
  uint32_t key_off, key_bytes;
  int32_t id; /* -1: free */
} st_vocab_row;

typedef struct st_vocab {
  st_string keys;
  st_vocab_row *rows; /* [n_rows], a power of two */
  size_t n_rows, n_used;
} st_vocab;

/* Makes room for n_keys keys, once. */
strata_status st_vocab_init(st_vocab *vocab, size_t n_keys, strata_error *err);
void st_vocab_release(st_vocab *vocab);
/* Adds a key; INTERNAL if the room is used up. A key that is there keeps its
 * id. All keys together are below 4 GiB: the caller sees to it. */
strata_status st_vocab_add(st_vocab *vocab, const char *key, size_t n_bytes, int32_t id,
                           strata_error *err);
/* The id, or -1. */
int32_t st_vocab_find(const st_vocab *vocab, const char *key, size_t n_bytes);

/* Pairs of ids to the merged id and the rank, the lower the earlier. */
typedef struct st_merge_row {
  int32_t left, right; /* left -1: free */
  int32_t rank, id;
} st_merge_row;

typedef struct st_merges {
  st_merge_row *rows; /* [n_rows], a power of two */
  size_t n_rows;
} st_merges;

strata_status st_merges_init(st_merges *merges, size_t n_merges, strata_error *err);
void st_merges_release(st_merges *merges);
/* Adds or, for a pair that is there, replaces; as many calls as there is room. */
void st_merges_put(st_merges *merges, st_merge_row row);
const st_merge_row *st_merges_find(const st_merges *merges, int32_t left, int32_t right);

typedef struct st_ids {
  int32_t *items;
  size_t n, capacity;
} st_ids;
strata_status st_ids_push(st_ids *ids, int32_t id, strata_error *err);

/* Memory that merging reuses from piece to piece. Zero to begin with. */
typedef struct st_bpe_symbol {
  int32_t id; /* -1: merged into the one before */
  int32_t previous, next; /* -1: none */
} st_bpe_symbol;

typedef struct st_bpe_candidate {
  int32_t rank, at, id;
} st_bpe_candidate;

typedef struct st_bpe {
  st_bpe_symbol *symbols;
  size_t symbols_capacity;
  st_bpe_candidate *heap; /* a binary heap, the first to merge on top */
  size_t n_heap, heap_capacity;
} st_bpe;
void st_bpe_release(st_bpe *bpe);

/* Appends to ids what merging the n < 2^31 bytes of a piece gives: always the
 * pair of lowest rank, the leftmost of equals. O(n log n). */
strata_status st_bpe_run(st_bpe *bpe, const st_merges *merges, const uint8_t *piece, size_t n,
                         const int32_t byte_ids[256], st_ids *ids, strata_error *err);

#endif
