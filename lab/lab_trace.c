/* Binding a trace to its op, and cases from it. */
#include "lab/lab_trace.h"

#include <string.h>

#include "core/st_mem.h"
#include "kreg/st_kreg.h"

/* A table is not in the file, so its size would not be bounded by the file's. */
enum { TABLE_BYTES_MAX = 1 << 24 };

/* ---- binding -------------------------------------------------------------------- */

static strata_status find_op(const char *name, lab_trace *t, strata_error *err) {
  const st_trace_head *head = t->call.head;
  const int op = st_kreg_op_by_name(head->op);
  if (op < 0) ST_FAIL(err, UNSUPPORTED, "%s: op %s: one that this program has (strata lab list) expected", name, head->op);
  t->op = st_kreg_op((st_op)op);
  if (head->contract != t->op->contract)
    ST_FAIL(err, UNSUPPORTED, "%s: contract %u of %s: %u expected", name, head->contract, head->op, t->op->contract);
  if (head->args_bytes != t->op->args_bytes)
    ST_FAIL(err, UNSUPPORTED, "%s: args of %u bytes of %s: %zu expected", name, head->args_bytes, head->op,
            t->op->args_bytes);
  return STRATA_OK;
}

static strata_status check_rows(const char *name, const lab_trace *t, strata_error *err) {
  stk_tensor tensors[STK_TENSORS_MAX];
  const int32_t n = t->op->tensors(t->shape, tensors);
  if ((uint32_t)n != t->call.head->n_tensors)
    ST_FAIL(err, FORMAT, "%s: %u tensors of %s: %d expected", name, t->call.head->n_tensors, t->op->name, n);
  for (int32_t i = 0; i < n; ++i) {
    const st_trace_row *row = &t->call.rows[i];
    if (*tensors[i].slot) ST_FAIL(err, FORMAT, "%s: %s: a NULL pointer in the args expected", name, tensors[i].name);
    if (strcmp(row->name, tensors[i].name) != 0 || row->dtype != tensors[i].dtype || row->role != tensors[i].role)
      ST_FAIL(err, FORMAT, "%s: tensor %s of %s: %s expected, with its type and role", name, row->name,
              t->op->name, tensors[i].name);
    const bool absent = row->n == 0 && row->dtype != STK_U8;
    if (!absent && (row->n != tensors[i].n || (row->dtype == STK_U8 && row->n > TABLE_BYTES_MAX)))
      ST_FAIL(err, FORMAT, "%s: %s: %llu elements: %zu expected", name, row->name,
              (unsigned long long)row->n, tensors[i].n);
  }
  return STRATA_OK;
}

strata_status lab_trace_read(const char *name, const uint8_t *data, size_t n_bytes, lab_trace *out,
                             strata_error *err) {
  strata_status status = STRATA_OK;
  const char *wrong;
  *out = (lab_trace){0};
  ST_TRY(st_trace_parse(name, data, n_bytes, &out->call, err));
  ST_TRY_OUT(find_op(name, out, err));
  ST_TRY_OUT(st_calloc_aligned(&out->shape, 1, out->op->args_bytes, "a trace", err));
  memcpy(out->shape, out->call.args, out->op->args_bytes);
  wrong = out->op->check(out->shape);
  if (wrong) ST_FAIL_OUT(err, UNSUPPORTED, "%s: %s", name, wrong);
  ST_TRY_OUT(check_rows(name, out, err));
out:
  if (status != STRATA_OK) lab_trace_close(out);
  return status;
}

strata_status lab_trace_open(const char *path, lab_trace *out, strata_error *err) {
  st_mapping file;
  *out = (lab_trace){0};
  ST_TRY(st_mapping_open(path, &file, err));
  strata_status status = lab_trace_read(path, file.data, file.n_bytes, out, err);
  if (status == STRATA_OK) out->file = file;
  else st_mapping_close(&file);
  return status;
}

void lab_trace_close(lab_trace *t) {
  st_free(t->shape);
  if (t->file.data) st_mapping_close(&t->file);
  *t = (lab_trace){0};
}

/* ---- cases ---------------------------------------------------------------------- */

static strata_status fill_tensor(const lab_trace *t, lab_case *c, int32_t i, strata_error *err) {
  const st_trace_row *row = &t->call.rows[i];
  stk_tensor *tensor = &c->tensors[i];
  st_guarded *b = &c->buffers[i];
  tensor->n = (size_t)row->n;
  ST_TRY(st_guarded_new(b, (size_t)st_trace_row_bytes(row), LAB_GUARD_BYTES, tensor->name, err));
  memset(b->front, c->fill.guard, b->front_bytes);
  memset(b->back, c->fill.guard, b->back_bytes);
  if (row->before) memcpy(b->data, t->call.bytes + row->before, b->n_bytes);
  if (tensor->role == STK_OUT) memset(b->data, c->fill.poison, b->n_bytes);
  *tensor->slot = b->data;
  return STRATA_OK;
}

static bool inside_a_buffer(const lab_case *c, const uint8_t *data, size_t n_bytes) {
  for (int32_t i = 0; i < c->n; ++i) {
    const st_guarded *b = &c->buffers[i];
    if (data >= b->data && data < b->data + b->n_bytes) return n_bytes <= b->n_bytes - (size_t)(data - b->data);
  }
  return false;
}

/* Tables of pointers may lead nowhere else than into the call's tensors. */
static strata_status link_tables(lab_case *c, strata_error *err) {
  void *data;
  size_t n_bytes;
  if (!c->op->link) return STRATA_OK;
  c->op->link(c->args);
  for (int32_t i = 0; (n_bytes = c->op->piece(c->args, i, &data)); ++i)
    if (!inside_a_buffer(c, data, n_bytes))
      ST_FAIL(err, UNSUPPORTED, "a trace of %s: stretch %d: %zu bytes in a tensor expected", c->op->name, i, n_bytes);
  return STRATA_OK;
}

strata_status lab_trace_case(const lab_trace *t, lab_fill fill, lab_case *c, strata_error *err) {
  strata_status status = STRATA_OK;
  *c = (lab_case){.op = t->op, .fill = fill};
  ST_TRY_OUT(st_calloc(&c->args, 1, t->op->args_bytes, "a test case", err));
  memcpy(c->args, t->shape, t->op->args_bytes);
  const int32_t n = t->op->tensors(c->args, c->tensors);
  for (; c->n < n; ++c->n) ST_TRY_OUT(fill_tensor(t, c, c->n, err));
  ST_TRY_OUT(link_tables(c, err));
  for (int32_t i = 0; i < n; ++i)
    if (t->call.rows[i].n == 0) *c->tensors[i].slot = NULL;
out:
  if (status != STRATA_OK) lab_case_release(c);
  return status;
}

static bool all_bytes(const uint8_t *p, size_t n, uint8_t value) {
  size_t i = 0;
  while (i < n && p[i] == value) ++i;
  return i == n;
}

void lab_trace_put_outputs(const lab_trace *t, lab_case *c, const lab_case *other) {
  for (int32_t i = 0; i < c->n; ++i) {
    const st_trace_row *row = &t->call.rows[i];
    const size_t elem = stk_dtype_bytes(c->tensors[i].dtype);
    const bool over_poison = row->role == STK_OUT;
    for (size_t at = 0; row->after && at < c->buffers[i].n_bytes; at += elem) {
      uint8_t *to = c->buffers[i].data + at;
      bool left = over_poison && all_bytes(to, elem, c->fill.poison) &&
                  all_bytes(other->buffers[i].data + at, elem, other->fill.poison);
      if (!left) memcpy(to, t->call.bytes + row->after + at, elem);
    }
  }
}
