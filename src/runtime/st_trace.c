/* Traces: laying out, writing, and reading what anybody may have written. */
#include "runtime/st_trace.h"

#include <string.h>

#include "os/st_file.h"

_Static_assert(sizeof(st_trace_head) == 128 && sizeof(st_trace_row) == 64, "parts begin at multiples of 64");

enum { HASH_BYTES = 64 };

static uint64_t align_up(uint64_t n) { return (n + ST_TRACE_ALIGN - 1) / ST_TRACE_ALIGN * ST_TRACE_ALIGN; }

static uint64_t rows_at(const st_trace_head *head) { return sizeof *head + align_up(head->args_bytes); }

static uint64_t data_at(const st_trace_head *head) {
  return rows_at(head) + head->n_tensors * sizeof(st_trace_row);
}

static bool has_bytes(const st_trace_row *row) { return row->n > 0 && row->dtype != STK_U8; }
static bool has_before(const st_trace_row *row) { return has_bytes(row) && row->role != STK_OUT; }
static bool has_after(const st_trace_row *row) { return has_bytes(row) && row->role != STK_IN; }

/* Where the row's bytes begin if those of the rows before it end at *at; moves *at on. */
static void place(st_trace_row *row, uint64_t *at) {
  const uint64_t n_bytes = align_up(st_trace_row_bytes(row));
  row->before = has_before(row) ? *at : 0;
  *at += has_before(row) ? n_bytes : 0;
  row->after = has_after(row) ? *at : 0;
  *at += has_after(row) ? n_bytes : 0;
}

/* ---- writing -------------------------------------------------------------------- */

typedef struct output {
  st_writer *writer;
  strata_sha256 *hash;
} output;

/* Writes n bytes, and zeros up to the next part. */
static strata_status put(output *o, const void *data, uint64_t n, strata_error *err) {
  static const uint8_t zeros[ST_TRACE_ALIGN];
  const size_t n_zeros = (size_t)(align_up(n) - n);
  strata_sha256_update(o->hash, data, (size_t)n);
  strata_sha256_update(o->hash, zeros, n_zeros);
  ST_TRY(st_writer_write(o->writer, data, (size_t)n, err));
  return st_writer_write(o->writer, zeros, n_zeros, err);
}

static strata_status put_call(output *o, const st_trace_call *c, strata_error *err) {
  ST_TRY(put(o, &c->head, sizeof c->head, err));
  ST_TRY(put(o, c->args, c->head.args_bytes, err));
  ST_TRY(put(o, c->rows, c->head.n_tensors * sizeof *c->rows, err));
  for (uint32_t i = 0; i < c->head.n_tensors; ++i) {
    const uint64_t n_bytes = st_trace_row_bytes(&c->rows[i]);
    if (has_before(&c->rows[i])) ST_TRY(put(o, c->before[i], n_bytes, err));
    if (has_after(&c->rows[i])) ST_TRY(put(o, c->after[i], n_bytes, err));
  }
  return STRATA_OK;
}

static void lay_out(st_trace_call *c) {
  uint64_t at = data_at(&c->head);
  for (uint32_t i = 0; i < c->head.n_tensors; ++i) place(&c->rows[i], &at);
  memcpy(c->head.magic, ST_TRACE_MAGIC, sizeof c->head.magic);
  c->head.version = ST_TRACE_VERSION;
  c->head.n_bytes = at + HASH_BYTES;
}

strata_status st_trace_write(const char *path, st_trace_call *c, strata_error *err) {
  strata_status status = STRATA_OK;
  char hex[HASH_BYTES + 1];
  output o = {0};
  if (st_path_probe(path) != ST_PATH_NONE) ST_FAIL(err, ARG, "%s: it is there already: a new name expected", path);
  lay_out(c);
  ST_TRY_OUT(st_writer_open(path, &o.writer, err));
  ST_TRY_OUT(strata_sha256_new(&o.hash, err));
  ST_TRY_OUT(put_call(&o, c, err));
  strata_sha256_finish(&o.hash, hex);
  ST_TRY_OUT(st_writer_write(o.writer, hex, HASH_BYTES, err));
  ST_TRY_OUT(st_writer_commit(o.writer, err));
out:
  if (o.hash) strata_sha256_finish(&o.hash, hex);
  st_writer_close(&o.writer);
  return status;
}

/* ---- reading -------------------------------------------------------------------- */

static bool is_text(const char *text) { return text[0] && memchr(text, 0, ST_TRACE_NAME_BYTES); }

static strata_status check_head(const char *name, const st_trace_head *h, size_t n_bytes, strata_error *err) {
  if (memcmp(h->magic, ST_TRACE_MAGIC, sizeof h->magic) != 0) ST_FAIL(err, FORMAT, "%s: a trace expected", name);
  if (h->version != ST_TRACE_VERSION)
    ST_FAIL(err, FORMAT, "%s: version %u: %d expected", name, h->version, ST_TRACE_VERSION);
  if (h->n_bytes != n_bytes)
    ST_FAIL(err, FORMAT, "%s: %zu bytes: %llu expected", name, n_bytes, (unsigned long long)h->n_bytes);
  if (h->args_bytes < 1 || h->args_bytes > ST_TRACE_ARGS_MAX)
    ST_FAIL(err, FORMAT, "%s: args of %u bytes: 1 to %d expected", name, h->args_bytes, ST_TRACE_ARGS_MAX);
  if (h->n_tensors < 1 || h->n_tensors > STK_TENSORS_MAX)
    ST_FAIL(err, FORMAT, "%s: %u tensors: 1 to %d expected", name, h->n_tensors, STK_TENSORS_MAX);
  if (data_at(h) + HASH_BYTES > n_bytes)
    ST_FAIL(err, FORMAT, "%s: %zu bytes: a longer file expected", name, n_bytes);
  if (!is_text(h->op) || !is_text(h->variant) || h->numerics > STK_FAST)
    ST_FAIL(err, FORMAT, "%s: names of an op and its variant expected", name);
  return STRATA_OK;
}

static strata_status check_rows(const char *name, const st_trace *t, strata_error *err) {
  uint64_t at = data_at(t->head);
  for (uint32_t i = 0; i < t->head->n_tensors; ++i) {
    const st_trace_row *row = &t->rows[i];
    st_trace_row want = *row;
    if (!is_text(row->name) || row->dtype > STK_U8 || row->role > STK_INOUT)
      ST_FAIL(err, FORMAT, "%s: tensor %u: a name, a type and a role expected", name, i);
    if (row->n > ST_TRACE_BYTES_MAX)
      ST_FAIL(err, FORMAT, "%s: %s: %llu elements: fewer expected", name, row->name, (unsigned long long)row->n);
    place(&want, &at); /* at stays below 2 * 24 * 8 * 2^32 */
    if (row->before != want.before || row->after != want.after)
      ST_FAIL(err, FORMAT, "%s: %s: its bytes at %llu and %llu: %llu and %llu expected", name, row->name,
              (unsigned long long)row->before, (unsigned long long)row->after,
              (unsigned long long)want.before, (unsigned long long)want.after);
  }
  if (at + HASH_BYTES != t->head->n_bytes)
    ST_FAIL(err, FORMAT, "%s: %llu bytes: %llu expected", name, (unsigned long long)t->head->n_bytes,
            (unsigned long long)at + HASH_BYTES);
  return STRATA_OK;
}

static strata_status check_hash(const char *name, const uint8_t *data, size_t n_bytes, strata_error *err) {
  char hex[HASH_BYTES + 1];
  strata_sha256 *hash;
  ST_TRY(strata_sha256_new(&hash, err));
  strata_sha256_update(hash, data, n_bytes - HASH_BYTES);
  strata_sha256_finish(&hash, hex);
  if (memcmp(hex, data + n_bytes - HASH_BYTES, HASH_BYTES) != 0)
    ST_FAIL(err, FORMAT, "%s: its bytes are not those that were written: an unchanged file expected", name);
  return STRATA_OK;
}

strata_status st_trace_parse(const char *name, const uint8_t *data, size_t n_bytes, st_trace *out,
                             strata_error *err) {
  *out = (st_trace){0};
  if (n_bytes < sizeof(st_trace_head)) ST_FAIL(err, FORMAT, "%s: %zu bytes: a trace expected", name, n_bytes);
  const st_trace_head *head = (const void *)data;
  ST_TRY(check_head(name, head, n_bytes, err));
  const st_trace t = {head, data + sizeof *head, (const void *)(data + rows_at(head)), data};
  ST_TRY(check_rows(name, &t, err));
  ST_TRY(check_hash(name, data, n_bytes, err));
  *out = t;
  return STRATA_OK;
}
