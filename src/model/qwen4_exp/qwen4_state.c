/* The state object: parts, their memory, and the state file. */
#include "model/qwen4_exp/qwen4_state.h"

#include <sha256.h>
#include <string.h>

#include "core/st_mem.h"
#include "gdn_scan/gdn_scan.h"
#include "os/st_file.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

/* The file: this header, then for each part its used bytes (u64 count before
 * them), then XXH3-64 of all that came before. Little-endian. */
typedef struct file_header {
  char magic[8];
  uint32_t version;
  int32_t position;
  uint64_t fingerprint;
  uint32_t n_parts, kv; /* kv: stk_kv */
} file_header;
_Static_assert(sizeof(file_header) == 32, "the state file's header has no padding");

static const char magic[8] = {'S', 'T', 'R', 'A', 'T', 'A', 'S', 'T'};
enum { VERSION = 3 };
static const char *const kv_names[] = {"f32", "f16", "q8"};

/* ---- parts ------------------------------------------------------------------- */

static bool is_cache(const qwen4_part *part) { return part->fixed_bytes == 0; }
static int64_t rows_of(const qwen4_part *part, int32_t position) {
  return position / part->tokens_a_row;
}

size_t qwen4_part_used(const qwen4_part *part, int32_t position) {
  if (!is_cache(part)) return part->fixed_bytes;
  return (size_t)rows_of(part, position) * stk_cache_row_bytes(&part->cache);
}

/* A short cache has its pages one by one; behind the first SLAB_BYTES they come in
 * slabs of as many, in huge pages: a sparse query jumps about in a long cache, and
 * looking up addresses costs a sixth of its time at 131072 cells. */
enum { SLAB_BYTES = 4 << 20 };

/* Pages of a slab, and those before the first slab; INT32_MAX: no slabs. */
static int32_t slab_pages(const qwen4_part *part) {
  const size_t n = SLAB_BYTES / stk_cache_page_bytes(&part->cache);
  return n ? (int32_t)n : INT32_MAX;
}

size_t qwen4_part_memory(const qwen4_part *part, int32_t position) {
  if (!is_cache(part)) return part->fixed_bytes;
  const int64_t n = stk_cache_pages(rows_of(part, position)), alone = slab_pages(part);
  if (n <= alone) return (size_t)n * stk_cache_page_bytes(&part->cache);
  return (size_t)alone * stk_cache_page_bytes(&part->cache) +
         (size_t)((n - alone + alone - 1) / alone) * SLAB_BYTES;
}

/* A run of a part's used bytes that lie together. */
typedef struct run {
  uint8_t *data;
  size_t n_bytes;
} run;

/* Run number i in canonical order; false past the last one. Planes of scales follow
 * the planes of data, as they lie in a page. */
static bool part_run(const qwen4_part *part, int32_t position, int64_t i, run *out) {
  const stk_cache *c = &part->cache;
  if (!is_cache(part)) {
    *out = (run){part->data, part->fixed_bytes};
    return i == 0;
  }
  const int64_t runs = c->n_planes * (c->kind == STK_KV_Q8 ? 2 : 1), rows = rows_of(part, position);
  const int64_t first = i / runs * STK_CACHE_PAGE, plane = i % runs;
  if (first >= rows) return false;
  const size_t n = (size_t)(rows - first < STK_CACHE_PAGE ? rows - first : STK_CACHE_PAGE);
  if (plane < c->n_planes)
    *out = (run){stk_cache_data(c, plane, first), n * stk_cache_data_bytes(c)};
  else
    *out = (run){(uint8_t *)stk_cache_scales(c, plane - c->n_planes, first), n * stk_cache_scale_bytes(c)};
  return true;
}

/* Parts are appended to a list that is big enough. */
static void add_fixed(qwen4_part *parts, int32_t *n, const char *name, int32_t layer, size_t floats) {
  parts[(*n)++] = (qwen4_part){.name = name, .layer = layer, .fixed_bytes = floats * sizeof(float),
                               .tokens_a_row = 1};
}

static void add_cache(qwen4_part *parts, int32_t *n, const char *name, int32_t layer, stk_cache cache,
                      int32_t tokens_a_row, int32_t capacity) {
  parts[(*n)++] = (qwen4_part){.name = name, .layer = layer, .cache = cache,
                               .tokens_a_row = tokens_a_row,
                               .n_pages_max = (int32_t)stk_cache_pages(capacity / tokens_a_row)};
}

strata_status qwen4_state_describe(const qwen4_config *c, int32_t capacity, stk_kv kv,
                                   qwen4_part **parts, int32_t *n_parts, strata_error *err) {
  const size_t channels = (size_t)qwen4_gdn_channels(c), idx = (size_t)c->idx_dim;
  const stk_cache kv_cache = {.kind = kv, .n_planes = 2 * c->kv_heads, .dim = c->head_dim};
  const stk_cache blocks = {.kind = STK_KV_F32, .n_planes = 1, .dim = c->idx_dim};
  void *memory;
  int32_t n = 0, ple = 0;
  *parts = NULL;
  *n_parts = 0;
  /* At most five parts a layer, the context and the logits. */
  ST_TRY(st_calloc(&memory, (size_t)c->n_layers * 5 + 2, sizeof **parts, "the state", err));
  qwen4_part *list = memory;
  for (int32_t l = 0; l < c->n_layers; ++l) {
    if (ple < c->n_ple && c->ple_layer[ple] == l) {
      size_t rows = (size_t)(c->ple_taps - 1) * (size_t)c->ngram_size;
      add_fixed(list, &n, "ple history", l, rows * (size_t)c->hc_count * (size_t)c->hidden);
      ++ple;
    }
    if (c->layer_kind[l] == QWEN4_GDN) {
      size_t keys = 2 * (size_t)c->gdn_k_heads * (size_t)c->gdn_k_dim;
      add_fixed(list, &n, "gdn state", l, stk_gdn_state_floats(c->gdn_v_heads, c->gdn_k_dim, c->gdn_v_dim));
      add_fixed(list, &n, "gdn keys", l, keys);
      add_fixed(list, &n, "gdn history", l, (size_t)(c->gdn_taps - 1) * channels);
    } else {
      add_cache(list, &n, "kv cache", l, kv_cache, 1, capacity);
      add_cache(list, &n, "block keys", l, blocks, c->idx_ratio, capacity);
      add_fixed(list, &n, "open keys", l, (size_t)c->idx_ratio * idx);
    }
  }
  if (c->n_ple) add_fixed(list, &n, "n-gram context", -1, (size_t)c->ngram_size - 1);
  add_fixed(list, &n, "logits", -1, (size_t)c->vocab);
  *parts = list;
  *n_parts = n;
  return STRATA_OK;
}

/* ---- life ---------------------------------------------------------------------- */

/* Points the plan's views at the parts' memory. */
static void bind_views(qwen4_state *state) {
  for (int32_t i = 0; i < state->n_parts; ++i) {
    const qwen4_part *part = &state->parts[i];
    float *data = (float *)(void *)part->data;
    qwen4_layer_state *layer = part->layer < 0 ? NULL : &state->layers[part->layer];
    if (strcmp(part->name, "gdn state") == 0) layer->gdn = data;
    else if (strcmp(part->name, "gdn history") == 0) layer->gdn_history = data;
    else if (strcmp(part->name, "gdn keys") == 0) layer->gdn_keys = data;
    else if (strcmp(part->name, "kv cache") == 0) layer->kv_pages = part->cache.pages;
    else if (strcmp(part->name, "block keys") == 0) layer->block_pages = part->cache.pages;
    else if (strcmp(part->name, "open keys") == 0) layer->open_keys = data;
    else if (strcmp(part->name, "ple history") == 0) layer->ple_history = data;
    else if (strcmp(part->name, "logits") == 0) state->logits = data;
    else state->context = (int32_t *)(void *)part->data;
  }
}

static void fill_context(const qwen4_config *c, qwen4_state *state) {
  for (int32_t i = 0; state->context && i < c->ngram_size - 1; ++i) state->context[i] = c->ple_eos;
}

/* The memory of a fixed part, or the table of a cache. */
static strata_status part_init(qwen4_part *part, strata_error *err) {
  void *memory;
  if (is_cache(part)) {
    ST_TRY(st_calloc(&memory, (size_t)part->n_pages_max, sizeof(uint8_t *), part->name, err));
    part->cache.pages = memory;
    return STRATA_OK;
  }
  ST_TRY(st_pages_new(&memory, part->fixed_bytes, part->name, err));
  part->data = memory;
  return STRATA_OK;
}

static void part_release(qwen4_part *part) {
  for (int32_t i = 0, alone = is_cache(part) ? slab_pages(part) : 0; i < part->n_pages; ++i)
    if (i < alone) st_free(part->cache.pages[i]);
    else if (i % alone == 0) st_pages_free(part->cache.pages[i], SLAB_BYTES);
  st_free((void *)(uintptr_t)part->cache.pages);
  st_pages_free(part->data, part->fixed_bytes);
}

strata_status qwen4_state_init(const qwen4_config *c, int32_t capacity, stk_kv kv, qwen4_state *out,
                               strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory = NULL;
  *out = (qwen4_state){.capacity = capacity, .kv = kv, .checkpoint_position = -1};
  ST_TRY_OUT(qwen4_state_describe(c, capacity, kv, &out->parts, &out->n_parts, err));
  ST_TRY_OUT(st_calloc(&memory, (size_t)c->n_layers, sizeof *out->layers, "the state", err));
  out->layers = memory;
  for (int32_t i = 0; i < out->n_parts; ++i) ST_TRY_OUT(part_init(&out->parts[i], err));
  bind_views(out);
  fill_context(c, out);
out:
  if (status != STRATA_OK) qwen4_state_release(out);
  return status;
}

void qwen4_state_release(qwen4_state *state) {
  if (state->checkpoint) st_pages_free(state->checkpoint, qwen4_state_fixed_bytes(state));
  for (int32_t i = 0; i < state->n_parts && state->parts; ++i) part_release(&state->parts[i]);
  st_free(state->parts);
  st_free(state->layers);
  *state = (qwen4_state){0};
}

void qwen4_state_reset(const qwen4_config *c, qwen4_state *state) {
  for (int32_t i = 0; i < state->n_parts; ++i)
    if (state->parts[i].fixed_bytes) memset(state->parts[i].data, 0, state->parts[i].fixed_bytes);
  state->position = 0;
  state->checkpoint_position = -1;
  fill_context(c, state);
}

static strata_status add_page(qwen4_part *part, strata_error *err) {
  const size_t page_bytes = stk_cache_page_bytes(&part->cache);
  const int32_t i = part->n_pages, alone = slab_pages(part);
  void *page;
  if (i < alone) ST_TRY(st_calloc_aligned(&page, 1, page_bytes, part->name, err));
  else if (i % alone == 0) ST_TRY(st_huge_pages_new(&page, SLAB_BYTES, part->name, err));
  else page = part->cache.pages[i - 1] + page_bytes;
  ((uint8_t **)(uintptr_t)part->cache.pages)[i] = page;
  ++part->n_pages;
  return STRATA_OK;
}

strata_status qwen4_state_reserve(qwen4_state *state, int32_t n_tokens, strata_error *err) {
  for (int32_t i = 0; i < state->n_parts; ++i) {
    qwen4_part *part = &state->parts[i];
    if (!is_cache(part)) continue;
    while (part->n_pages < stk_cache_pages(rows_of(part, n_tokens))) ST_TRY(add_page(part, err));
  }
  return STRATA_OK;
}

strata_status qwen4_state_copy(qwen4_state *dst, const qwen4_state *src, strata_error *err) {
  if (src->position > dst->capacity)
    ST_FAIL(err, LIMIT, "session: %d tokens: at most %d fit in the copy", src->position, dst->capacity);
  if (src->kv != dst->kv)
    ST_FAIL(err, STATE, "session: copy: a cache of %s: %s expected", kv_names[src->kv], kv_names[dst->kv]);
  if (dst == src) return STRATA_OK;
  ST_TRY(qwen4_state_reserve(dst, src->position, err));
  for (int32_t i = 0; i < dst->n_parts; ++i) {
    run from, to;
    for (int64_t r = 0; part_run(&src->parts[i], src->position, r, &from); ++r)
      if (part_run(&dst->parts[i], src->position, r, &to)) memcpy(to.data, from.data, from.n_bytes);
  }
  dst->position = src->position;
  dst->checkpoint_position = -1;
  return STRATA_OK;
}

/* ---- checkpoint ------------------------------------------------------------------ */

size_t qwen4_state_fixed_bytes(const qwen4_state *state) {
  size_t n_bytes = 0;
  for (int32_t i = 0; i < state->n_parts; ++i) n_bytes += state->parts[i].fixed_bytes;
  return n_bytes;
}

strata_status qwen4_state_checkpoint(qwen4_state *state, strata_error *err) {
  if (!state->checkpoint) {
    void *memory;
    ST_TRY(st_pages_new(&memory, qwen4_state_fixed_bytes(state), "a checkpoint", err));
    state->checkpoint = memory;
  }
  uint8_t *to = state->checkpoint;
  for (int32_t i = 0; i < state->n_parts; to += state->parts[i++].fixed_bytes)
    if (!is_cache(&state->parts[i])) memcpy(to, state->parts[i].data, state->parts[i].fixed_bytes);
  state->checkpoint_position = state->position;
  return STRATA_OK;
}

void qwen4_state_rollback(qwen4_state *state) {
  const uint8_t *from = state->checkpoint;
  for (int32_t i = 0; i < state->n_parts; from += state->parts[i++].fixed_bytes)
    if (!is_cache(&state->parts[i])) memcpy(state->parts[i].data, from, state->parts[i].fixed_bytes);
  state->position = state->checkpoint_position;
}

/* ---- the file ---------------------------------------------------------------- */

static strata_status write_hashed(st_writer *writer, XXH3_state_t *hash, const void *data,
                                  size_t n_bytes, strata_error *err) {
  XXH3_64bits_update(hash, data, n_bytes);
  return st_writer_write(writer, data, n_bytes, err);
}

strata_status qwen4_state_save(const qwen4_state *state, uint64_t fingerprint, const char *path,
                               strata_error *err) {
  strata_status status = STRATA_OK;
  st_writer *writer = NULL;
  XXH3_state_t hash;
  file_header header = {.version = VERSION, .position = state->position,
                        .fingerprint = fingerprint, .n_parts = (uint32_t)state->n_parts,
                        .kv = (uint32_t)state->kv};
  memcpy(header.magic, magic, sizeof magic);
  XXH3_64bits_reset(&hash);
  ST_TRY_OUT(st_writer_open(path, &writer, err));
  ST_TRY_OUT(write_hashed(writer, &hash, &header, sizeof header, err));
  for (int32_t i = 0; i < state->n_parts; ++i) {
    uint64_t n_bytes = qwen4_part_used(&state->parts[i], state->position);
    run r;
    ST_TRY_OUT(write_hashed(writer, &hash, &n_bytes, sizeof n_bytes, err));
    for (int64_t at = 0; part_run(&state->parts[i], state->position, at, &r); ++at)
      ST_TRY_OUT(write_hashed(writer, &hash, r.data, r.n_bytes, err));
  }
  uint64_t checksum = XXH3_64bits_digest(&hash);
  ST_TRY_OUT(st_writer_write(writer, &checksum, sizeof checksum, err));
  ST_TRY_OUT(st_writer_commit(writer, err));
out:
  st_writer_close(&writer);
  return status;
}

/* Everything that can be wrong with a file, before a byte of the state changes. */
static strata_status check_file(const qwen4_state *state, uint64_t fingerprint, const char *path,
                                const st_mapping *file, strata_error *err) {
  file_header header;
  uint64_t checksum;
  if (file->n_bytes < sizeof header + sizeof checksum)
    ST_FAIL(err, FORMAT, "%s: %zu bytes: a state file expected", path, file->n_bytes);
  memcpy(&header, file->data, sizeof header);
  if (memcmp(header.magic, magic, sizeof magic) != 0)
    ST_FAIL(err, FORMAT, "%s: byte 0: a state file expected", path);
  if (header.version != VERSION)
    ST_FAIL(err, FORMAT, "%s: version %u of the state file: version %d expected", path,
            header.version, VERSION);
  size_t body = file->n_bytes - sizeof checksum;
  memcpy(&checksum, file->data + body, sizeof checksum);
  if (XXH3_64bits(file->data, body) != checksum)
    ST_FAIL(err, FORMAT, "%s: checksum: the file is damaged", path);
  if (header.fingerprint != fingerprint)
    ST_FAIL(err, STATE, "%s: weights %016llx: the state belongs to other weights, not %016llx", path,
            (unsigned long long)header.fingerprint, (unsigned long long)fingerprint);
  if (header.position < 0 || header.n_parts != (uint32_t)state->n_parts)
    ST_FAIL(err, FORMAT, "%s: header: a position and %d parts expected", path, state->n_parts);
  if (header.kv >= STK_KV_KINDS)
    ST_FAIL(err, FORMAT, "%s: kind %u of cache: 0 to %d expected", path, header.kv, STK_KV_KINDS - 1);
  if (header.kv != (uint32_t)state->kv)
    ST_FAIL(err, STATE, "%s: a cache of %s: %s expected", path, kv_names[header.kv], kv_names[state->kv]);
  if (header.position > state->capacity)
    ST_FAIL(err, LIMIT, "%s: %d tokens: at most %d fit in this session", path, header.position,
            state->capacity);
  size_t at = sizeof header;
  for (int32_t i = 0; i < state->n_parts; ++i) {
    uint64_t n_bytes, want = qwen4_part_used(&state->parts[i], header.position);
    if (body - at < sizeof n_bytes) ST_FAIL(err, FORMAT, "%s: byte %zu: the file ends early", path, at);
    memcpy(&n_bytes, file->data + at, sizeof n_bytes);
    at += sizeof n_bytes;
    if (n_bytes != want || body - at < want)
      ST_FAIL(err, FORMAT, "%s: byte %zu: %s: %llu bytes expected", path, at, state->parts[i].name,
              (unsigned long long)want);
    at += want;
  }
  if (at != body) ST_FAIL(err, FORMAT, "%s: byte %zu: nothing more expected", path, at);
  return STRATA_OK;
}

/* Copies the parts out of a checked file. */
static void read_parts(qwen4_state *state, int32_t position, const uint8_t *from) {
  for (int32_t i = 0; i < state->n_parts; ++i) {
    run r;
    from += sizeof(uint64_t);
    for (int64_t at = 0; part_run(&state->parts[i], position, at, &r); ++at) {
      memcpy(r.data, from, r.n_bytes);
      from += r.n_bytes;
    }
  }
  state->position = position;
  state->checkpoint_position = -1;
}

strata_status qwen4_state_restore(qwen4_state *state, uint64_t fingerprint, const char *path,
                                  strata_error *err) {
  st_mapping file;
  file_header header;
  ST_TRY(st_mapping_open(path, &file, err));
  strata_status status = check_file(state, fingerprint, path, &file, err);
  if (status == STRATA_OK) {
    memcpy(&header, file.data, sizeof header);
    status = qwen4_state_reserve(state, header.position, err);
  }
  if (status == STRATA_OK) read_parts(state, header.position, file.data + sizeof header);
  st_mapping_close(&file);
  return status;
}

void qwen4_state_sha256(const qwen4_state *state, char hex[65]) {
  SHA2_CTX context;
  run r;
  SHA256Init(&context);
  SHA256Update(&context, (const uint8_t *)&state->position, sizeof state->position);
  for (int32_t i = 0; i < state->n_parts; ++i)
    for (int64_t at = 0; part_run(&state->parts[i], state->position, at, &r); ++at)
      SHA256Update(&context, r.data, r.n_bytes);
  SHA256End(&context, hex);
}
