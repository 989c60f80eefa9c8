/* Hash tables by linear probing, and merging with a heap of candidates. A
 * candidate that a merge beside it has outdated stays in the heap and is
 * dropped when it comes up. */
#include "model/token/st_bpe.h"

#include <string.h>
#include <xxhash.h>

static size_t table_size(size_t n) {
  size_t size = 16;
  while (size < 2 * n) size *= 2;
  return size;
}

strata_status st_vocab_init(st_vocab *vocab, size_t n_keys, strata_error *err) {
  void *rows;
  size_t n = table_size(n_keys);
  ST_TRY(st_calloc(&rows, n, sizeof *vocab->rows, "a vocabulary", err));
  vocab->rows = rows;
  vocab->n_rows = n;
  for (size_t i = 0; i < n; i++) vocab->rows[i].id = -1;
  return STRATA_OK;
}

void st_vocab_release(st_vocab *vocab) {
  st_string_release(&vocab->keys);
  st_free(vocab->rows);
  *vocab = (st_vocab){0};
}

/* The row that holds the key, or the free one where it would go. */
static st_vocab_row *vocab_row(const st_vocab *vocab, const char *key, size_t n_bytes) {
  size_t mask = vocab->n_rows - 1, i = XXH3_64bits(key, n_bytes) & mask;
  for (;; i = (i + 1) & mask) {
    st_vocab_row *row = &vocab->rows[i];
    if (row->id < 0) return row;
    if (row->key_bytes == n_bytes && memcmp(vocab->keys.text + row->key_off, key, n_bytes) == 0)
      return row;
  }
}

strata_status st_vocab_add(st_vocab *vocab, const char *key, size_t n_bytes, int32_t id,
                           strata_error *err) {
  st_vocab_row *row = vocab_row(vocab, key, n_bytes);
  if (row->id >= 0) return STRATA_OK;
  if (2 * (vocab->n_used + 1) > vocab->n_rows)
    ST_FAIL(err, INTERNAL, "vocabulary: %zu keys: fewer expected", vocab->n_used);
  size_t key_off = vocab->keys.n_bytes;
  ST_TRY(st_string_append(&vocab->keys, key, n_bytes, err));
  *row = (st_vocab_row){(uint32_t)key_off, (uint32_t)n_bytes, id};
  vocab->n_used++;
  return STRATA_OK;
}

int32_t st_vocab_find(const st_vocab *vocab, const char *key, size_t n_bytes) {
  return vocab->n_rows ? vocab_row(vocab, key, n_bytes)->id : -1;
}

strata_status st_merges_init(st_merges *merges, size_t n_merges, strata_error *err) {
  void *rows;
  size_t n = table_size(n_merges);
  ST_TRY(st_calloc(&rows, n, sizeof *merges->rows, "merges", err));
  merges->rows = rows;
  merges->n_rows = n;
  for (size_t i = 0; i < n; i++) merges->rows[i].left = -1;
  return STRATA_OK;
}

void st_merges_release(st_merges *merges) {
  st_free(merges->rows);
  *merges = (st_merges){0};
}

static st_merge_row *merge_row(const st_merges *merges, int32_t left, int32_t right) {
  /* The last steps of splitmix64: every bit of the pair reaches the low ones. */
  uint64_t x = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  size_t mask = merges->n_rows - 1, i = (x ^ (x >> 31)) & mask;
  for (;; i = (i + 1) & mask) {
    st_merge_row *row = &merges->rows[i];
    if (row->left < 0 || (row->left == left && row->right == right)) return row;
  }
}

void st_merges_put(st_merges *merges, st_merge_row row) {
  *merge_row(merges, row.left, row.right) = row;
}

const st_merge_row *st_merges_find(const st_merges *merges, int32_t left, int32_t right) {
  const st_merge_row *row = merge_row(merges, left, right);
  return row->left < 0 ? NULL : row;
}

strata_status st_ids_push(st_ids *ids, int32_t id, strata_error *err) {
  void *items = ids->items;
  ST_TRY(st_grow(&items, &ids->capacity, ids->n + 1, sizeof *ids->items, "token ids", err));
  ids->items = items;
  ids->items[ids->n++] = id;
  return STRATA_OK;
}

void st_bpe_release(st_bpe *bpe) {
  st_free(bpe->symbols);
  st_free(bpe->heap);
  *bpe = (st_bpe){0};
}

static bool sooner(const st_bpe_candidate *a, const st_bpe_candidate *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static strata_status heap_push(st_bpe *bpe, st_bpe_candidate candidate, strata_error *err) {
  void *items = bpe->heap;
  ST_TRY(st_grow(&items, &bpe->heap_capacity, bpe->n_heap + 1, sizeof *bpe->heap,
                 "merge candidates", err));
  bpe->heap = items;
  size_t i = bpe->n_heap++;
  for (; i > 0 && sooner(&candidate, &bpe->heap[(i - 1) / 2]); i = (i - 1) / 2)
    bpe->heap[i] = bpe->heap[(i - 1) / 2];
  bpe->heap[i] = candidate;
  return STRATA_OK;
}

static st_bpe_candidate heap_pop(st_bpe *bpe) {
  st_bpe_candidate *heap = bpe->heap, top = heap[0], last = heap[--bpe->n_heap];
  size_t i = 0, child;
  while ((child = 2 * i + 1) < bpe->n_heap) {
    if (child + 1 < bpe->n_heap && sooner(&heap[child + 1], &heap[child])) child++;
    if (!sooner(&heap[child], &last)) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = last;
  return top;
}

/* Offers the pair that begins with the symbol at, if it is one. */
static strata_status offer(st_bpe *bpe, const st_merges *merges, int32_t at, strata_error *err) {
  if (at < 0 || bpe->symbols[at].next < 0) return STRATA_OK;
  const st_bpe_symbol *symbol = &bpe->symbols[at];
  const st_merge_row *row = st_merges_find(merges, symbol->id, bpe->symbols[symbol->next].id);
  return row ? heap_push(bpe, (st_bpe_candidate){row->rank, at, row->id}, err) : STRATA_OK;
}

/* Whether the pair a candidate stands for is still there. */
static bool is_current(const st_bpe *bpe, const st_merges *merges, st_bpe_candidate candidate) {
  const st_bpe_symbol *symbol = &bpe->symbols[candidate.at];
  if (symbol->id < 0 || symbol->next < 0) return false;
  const st_merge_row *row = st_merges_find(merges, symbol->id, bpe->symbols[symbol->next].id);
  return row && row->id == candidate.id;
}

static void merge_next(st_bpe *bpe, int32_t at, int32_t id) {
  st_bpe_symbol *symbol = &bpe->symbols[at], *next = &bpe->symbols[symbol->next];
  symbol->id = id;
  symbol->next = next->next;
  next->id = -1;
  if (symbol->next >= 0) bpe->symbols[symbol->next].previous = at;
}

strata_status st_bpe_run(st_bpe *bpe, const st_merges *merges, const uint8_t *piece, size_t n,
                         const int32_t byte_ids[256], st_ids *ids, strata_error *err) {
  void *items = bpe->symbols;
  ST_TRY(st_grow(&items, &bpe->symbols_capacity, n, sizeof *bpe->symbols, "merge symbols", err));
  bpe->symbols = items;
  bpe->n_heap = 0;
  for (size_t i = 0; i < n; i++)
    bpe->symbols[i] = (st_bpe_symbol){byte_ids[piece[i]], (int32_t)i - 1,
                                      i + 1 < n ? (int32_t)i + 1 : -1};
  for (size_t i = 0; i < n; i++) ST_TRY(offer(bpe, merges, (int32_t)i, err));
  while (bpe->n_heap) {
    st_bpe_candidate top = heap_pop(bpe);
    if (!is_current(bpe, merges, top)) continue;
    merge_next(bpe, top.at, top.id);
    ST_TRY(offer(bpe, merges, bpe->symbols[top.at].previous, err));
    ST_TRY(offer(bpe, merges, top.at, err));
  }
  for (int32_t at = 0; at >= 0 && n; at = bpe->symbols[at].next)
    ST_TRY(st_ids_push(ids, bpe->symbols[at].id, err));
  return STRATA_OK;
}
