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
  uint32_t n_parts, reserved;
} file_header;
_Static_assert(sizeof(file_header) == 32, "the state file's header has no padding");

static const char magic[8] = {'S', 'T', 'R', 'A', 'T', 'A', 'S', 'T'};
enum { VERSION = 2 };

size_t qwen4_part_used(const qwen4_part *part, int32_t position) {
  return part->fixed_bytes + (size_t)(position / part->tokens_a_row) * part->row_bytes;
}

/* Appends a part to a list that is big enough. */
static void add_part(qwen4_part *parts, int32_t *n, const char *name, int32_t layer,
                     size_t fixed_floats, size_t row_floats, int32_t tokens_a_row,
                     int32_t capacity) {
  qwen4_part *part = &parts[(*n)++];
  *part = (qwen4_part){.name = name, .layer = layer, .fixed_bytes = fixed_floats * sizeof(float),
                       .row_bytes = row_floats * sizeof(float), .tokens_a_row = tokens_a_row};
  part->reserved_bytes = qwen4_part_used(part, capacity);
}

strata_status qwen4_state_describe(const qwen4_config *c, int32_t capacity, qwen4_part **parts,
                                   int32_t *n_parts, strata_error *err) {
  const size_t channels = (size_t)qwen4_gdn_channels(c);
  const size_t kv = (size_t)c->kv_heads * (size_t)c->head_dim, idx = (size_t)c->idx_dim;
  void *memory;
  int32_t n = 0, ple = 0;
  *parts = NULL;
  *n_parts = 0;
  /* At most six parts a layer, the context and the logits. */
  ST_TRY(st_calloc(&memory, (size_t)c->n_layers * 6 + 2, sizeof **parts, "the state", err));
  qwen4_part *list = memory;
  for (int32_t l = 0; l < c->n_layers; ++l) {
    if (ple < c->n_ple && c->ple_layer[ple] == l) {
      size_t rows = (size_t)(c->ple_taps - 1) * (size_t)c->ngram_size;
      add_part(list, &n, "ple history", l, rows * (size_t)c->hc_count * (size_t)c->hidden, 0, 1, capacity);
      ++ple;
    }
    if (c->layer_kind[l] == QWEN4_GDN) {
      size_t keys = 2 * (size_t)c->gdn_k_heads * (size_t)c->gdn_k_dim;
      add_part(list, &n, "gdn state", l,
               stk_gdn_state_floats(c->gdn_v_heads, c->gdn_k_dim, c->gdn_v_dim), 0, 1, capacity);
      add_part(list, &n, "gdn keys", l, keys, 0, 1, capacity);
      add_part(list, &n, "gdn history", l, (size_t)(c->gdn_taps - 1) * channels, 0, 1, capacity);
    } else {
      add_part(list, &n, "k cache", l, 0, kv, 1, capacity);
      add_part(list, &n, "v cache", l, 0, kv, 1, capacity);
      add_part(list, &n, "block keys", l, 0, idx, c->idx_ratio, capacity);
      add_part(list, &n, "open keys", l, (size_t)c->idx_ratio * idx, 0, 1, capacity);
    }
  }
  if (c->n_ple) add_part(list, &n, "n-gram context", -1, (size_t)c->ngram_size - 1, 0, 1, capacity);
  add_part(list, &n, "logits", -1, (size_t)c->vocab, 0, 1, capacity);
  *parts = list;
  *n_parts = n;
  return STRATA_OK;
}

/* Points the plan's views at the parts' memory. */
static void bind_views(qwen4_state *state) {
  for (int32_t i = 0; i < state->n_parts; ++i) {
    const qwen4_part *part = &state->parts[i];
    float *data = (float *)(void *)part->data;
    qwen4_layer_state *layer = part->layer < 0 ? NULL : &state->layers[part->layer];
    if (strcmp(part->name, "gdn state") == 0) layer->gdn = data;
    else if (strcmp(part->name, "gdn history") == 0) layer->gdn_history = data;
    else if (strcmp(part->name, "gdn keys") == 0) layer->gdn_keys = data;
    else if (strcmp(part->name, "k cache") == 0) layer->k_cache = data;
    else if (strcmp(part->name, "v cache") == 0) layer->v_cache = data;
    else if (strcmp(part->name, "block keys") == 0) layer->block_keys = data;
    else if (strcmp(part->name, "open keys") == 0) layer->open_keys = data;
    else if (strcmp(part->name, "ple history") == 0) layer->ple_history = data;
    else if (strcmp(part->name, "logits") == 0) state->logits = data;
    else state->context = (int32_t *)(void *)part->data;
  }
}

static void fill_context(const qwen4_config *c, qwen4_state *state) {
  for (int32_t i = 0; state->context && i < c->ngram_size - 1; ++i) state->context[i] = c->ple_eos;
}

strata_status qwen4_state_init(const qwen4_config *c, int32_t capacity, qwen4_state *out,
                               strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory = NULL;
  *out = (qwen4_state){.capacity = capacity};
  ST_TRY_OUT(qwen4_state_describe(c, capacity, &out->parts, &out->n_parts, err));
  ST_TRY_OUT(st_calloc(&memory, (size_t)c->n_layers, sizeof *out->layers, "the state", err));
  out->layers = memory;
  for (int32_t i = 0; i < out->n_parts; ++i) {
    ST_TRY_OUT(st_pages_new(&memory, out->parts[i].reserved_bytes, out->parts[i].name, err));
    out->parts[i].data = memory;
  }
  bind_views(out);
  fill_context(c, out);
out:
  if (status != STRATA_OK) qwen4_state_release(out);
  return status;
}

void qwen4_state_release(qwen4_state *state) {
  for (int32_t i = 0; i < state->n_parts && state->parts; ++i)
    st_pages_free(state->parts[i].data, state->parts[i].reserved_bytes);
  st_free(state->parts);
  st_free(state->layers);
  *state = (qwen4_state){0};
}

void qwen4_state_reset(const qwen4_config *c, qwen4_state *state) {
  for (int32_t i = 0; i < state->n_parts; ++i)
    if (state->parts[i].fixed_bytes) memset(state->parts[i].data, 0, state->parts[i].fixed_bytes);
  state->position = 0;
  fill_context(c, state);
}

strata_status qwen4_state_copy(qwen4_state *dst, const qwen4_state *src, strata_error *err) {
  if (src->position > dst->capacity)
    ST_FAIL(err, LIMIT, "session: %d tokens: at most %d fit in the copy", src->position, dst->capacity);
  for (int32_t i = 0; i < dst->n_parts; ++i)
    memcpy(dst->parts[i].data, src->parts[i].data, qwen4_part_used(&src->parts[i], src->position));
  dst->position = src->position;
  return STRATA_OK;
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
                        .fingerprint = fingerprint, .n_parts = (uint32_t)state->n_parts};
  memcpy(header.magic, magic, sizeof magic);
  XXH3_64bits_reset(&hash);
  ST_TRY_OUT(st_writer_open(path, &writer, err));
  ST_TRY_OUT(write_hashed(writer, &hash, &header, sizeof header, err));
  for (int32_t i = 0; i < state->n_parts; ++i) {
    uint64_t n_bytes = qwen4_part_used(&state->parts[i], state->position);
    ST_TRY_OUT(write_hashed(writer, &hash, &n_bytes, sizeof n_bytes, err));
    ST_TRY_OUT(write_hashed(writer, &hash, state->parts[i].data, n_bytes, err));
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
    ST_FAIL(err, FORMAT, "%s: version %u: %d expected", path, header.version, VERSION);
  size_t body = file->n_bytes - sizeof checksum;
  memcpy(&checksum, file->data + body, sizeof checksum);
  if (XXH3_64bits(file->data, body) != checksum)
    ST_FAIL(err, FORMAT, "%s: checksum: the file is damaged", path);
  if (header.fingerprint != fingerprint)
    ST_FAIL(err, STATE, "%s: weights %016llx: the state belongs to other weights, not %016llx", path,
            (unsigned long long)header.fingerprint, (unsigned long long)fingerprint);
  if (header.position < 0 || header.n_parts != (uint32_t)state->n_parts)
    ST_FAIL(err, FORMAT, "%s: header: a position and %d parts expected", path, state->n_parts);
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

strata_status qwen4_state_restore(qwen4_state *state, uint64_t fingerprint, const char *path,
                                  strata_error *err) {
  st_mapping file;
  ST_TRY(st_mapping_open(path, &file, err));
  strata_status status = check_file(state, fingerprint, path, &file, err);
  if (status == STRATA_OK) {
    file_header header;
    memcpy(&header, file.data, sizeof header);
    size_t at = sizeof header;
    for (int32_t i = 0; i < state->n_parts; ++i) {
      size_t n_bytes = qwen4_part_used(&state->parts[i], header.position);
      memcpy(state->parts[i].data, file.data + at + sizeof(uint64_t), n_bytes);
      at += sizeof(uint64_t) + n_bytes;
    }
    state->position = header.position;
  }
  st_mapping_close(&file);
  return status;
}

void qwen4_state_sha256(const qwen4_state *state, char hex[65]) {
  SHA2_CTX context;
  SHA256Init(&context);
  SHA256Update(&context, (const uint8_t *)&state->position, sizeof state->position);
  for (int32_t i = 0; i < state->n_parts; ++i)
    SHA256Update(&context, state->parts[i].data, qwen4_part_used(&state->parts[i], state->position));
  SHA256End(&context, hex);
}
