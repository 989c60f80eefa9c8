/* Copying what a call reads and writes. */
#include "runtime/st_capture.h"

#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "os/st_dir.h"
#include "os/st_file.h"
#include "runtime/st_trace.h"

/* Captured calls of a layer, by what they are. */
typedef struct tally {
  int32_t several, one;
} tally;

/* A call's tensors in memory of their own. Inputs are copied before the call, outputs
 * after it. */
typedef struct snapshot {
  void *args; /* its pointers lead into memory */
  stk_tensor tensors[STK_TENSORS_MAX];
  void *memory[STK_TENSORS_MAX];
  bool present[STK_TENSORS_MAX]; /* the call has this tensor */
  int32_t n;
} snapshot;

struct st_capture {
  const stk_op *op;
  int32_t layer, calls, count;
  char *directory;
  tally *layers; /* [n_layers], of layer - 1 */
  size_t n_layers, layers_capacity;
  snapshot before;
  strata_status status; /* of the first failure */
  strata_error failure;
};

strata_status st_capture_new(const st_capture_request *request, st_capture **out, strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "a capture", err));
  st_capture *c = memory;
  c->op = st_kreg_op(request->op);
  c->layer = request->layer;
  c->calls = request->calls;
  ST_TRY_OUT(st_strndup(&c->directory, request->directory, strlen(request->directory), err));
  ST_TRY_OUT(st_dir_make(c->directory, err));
out:
  if (status != STRATA_OK) st_capture_free(&c);
  *out = c;
  return status;
}

/* ---- snapshots ------------------------------------------------------------------ */

static void snapshot_release(snapshot *s) {
  for (int32_t i = 0; i < STK_TENSORS_MAX; ++i) st_free(s->memory[i]);
  st_free(s->args);
  *s = (snapshot){0};
}

void st_capture_free(st_capture **capture) {
  st_capture *c = *capture;
  if (!c) return;
  snapshot_release(&c->before);
  st_free(c->layers);
  st_free(c->directory);
  st_free(c);
  *capture = NULL;
}

/* Where slot of the snapshot's args lies in args. */
static void *pointer_in(const snapshot *s, const void *args, int32_t i) {
  const size_t offset = (size_t)((const char *)s->tensors[i].slot - (const char *)s->args);
  void *pointer;
  memcpy(&pointer, (const char *)args + offset, sizeof pointer);
  return pointer;
}

static size_t tensor_bytes(const stk_tensor *t) { return t->n * stk_dtype_bytes(t->dtype); }

/* Args without pointers, and memory for what they should lead to. */
static strata_status snapshot_init(snapshot *s, const stk_op *op, const void *args, strata_error *err) {
  uint64_t n_bytes = 0;
  *s = (snapshot){0};
  ST_TRY(st_calloc_aligned(&s->args, 1, op->args_bytes, "a capture", err));
  if (!op->shape) memcpy(s->args, args, op->args_bytes);
  const char *wrong = op->shape ? op->shape(args, s->args) : NULL;
  if (wrong) ST_FAIL(err, UNSUPPORTED, "capture: %s", wrong);
  s->n = op->tensors(s->args, s->tensors);
  for (int32_t i = 0; i < s->n; ++i) n_bytes += tensor_bytes(&s->tensors[i]);
  if (n_bytes > ST_TRACE_BYTES_MAX)
    ST_FAIL(err, LIMIT, "capture: %s: a call of %llu bytes: at most %llu expected", op->name,
            (unsigned long long)n_bytes, (unsigned long long)ST_TRACE_BYTES_MAX);
  for (int32_t i = 0; i < s->n; ++i) {
    ST_TRY(st_calloc_aligned(&s->memory[i], s->tensors[i].n, stk_dtype_bytes(s->tensors[i].dtype), "a capture", err));
    *s->tensors[i].slot = s->memory[i];
  }
  if (op->link) op->link(s->args);
  return STRATA_OK;
}

/* The tensor that the bytes at p belong to. */
static int32_t tensor_at(const snapshot *s, const uint8_t *p) {
  for (int32_t i = 0; i < s->n; ++i) {
    const uint8_t *begin = s->memory[i];
    if (p >= begin && p < begin + tensor_bytes(&s->tensors[i])) return i;
  }
  return -1;
}

/* What the tables of pointers lead to. */
static strata_status copy_pieces(snapshot *s, const stk_op *op, const void *args, stk_role left_out,
                                 strata_error *err) {
  void *from, *to;
  size_t n_bytes;
  for (int32_t i = 0; op->piece && (n_bytes = op->piece(args, i, &from)); ++i) {
    const size_t room = op->piece(s->args, i, &to);
    const int32_t t = tensor_at(s, to);
    if (room < n_bytes || t < 0)
      ST_FAIL(err, INTERNAL, "capture: %s: stretch %d: room for %zu bytes expected", op->name, i, n_bytes);
    s->present[t] = true;
    if (s->tensors[t].role != left_out) memcpy(to, from, n_bytes);
  }
  return STRATA_OK;
}

/* left_out: the role of the tensors whose bytes are not wanted. */
static strata_status snapshot_take(snapshot *s, const stk_op *op, const void *args, stk_role left_out,
                                   strata_error *err) {
  ST_TRY(snapshot_init(s, op, args, err));
  for (int32_t i = 0; i < s->n; ++i) {
    const stk_tensor *t = &s->tensors[i];
    const void *from = pointer_in(s, args, i);
    s->present[i] = from || t->dtype == STK_U8;
    if (from && t->n && t->dtype != STK_U8 && t->role != left_out) memcpy(s->memory[i], from, tensor_bytes(t));
  }
  return copy_pieces(s, op, args, left_out, err);
}

/* ---- which calls ---------------------------------------------------------------- */

static bool has_several_tokens(const stk_op *op, const void *args) {
  union {
    uint8_t bytes[ST_TRACE_ARGS_MAX];
    void *align;
  } copy;
  stk_param params[STK_PARAMS_MAX];
  memcpy(copy.bytes, args, op->args_bytes);
  int32_t n = op->params ? op->params(copy.bytes, params) : 0;
  for (int32_t i = 0; i < n; ++i)
    if (strcmp(params[i].name, "T") == 0) return stk_param_get(&params[i]) > 1;
  return false;
}

static tally tally_of(const st_capture *c, int32_t layer) {
  const size_t index = (size_t)(layer + 1);
  return index < c->n_layers ? c->layers[index] : (tally){0};
}

bool st_capture_wants(const st_capture *c, const st_call *call) {
  if (c->status != STRATA_OK || st_kreg_op((st_op)call->tag) != c->op) return false;
  if (c->layer >= 0 && call->layer != c->layer) return false;
  const tally t = tally_of(c, call->layer);
  return (has_several_tokens(c->op, call->args) ? t.several : t.one) < c->calls;
}

/* Makes room for the layer's count, so that counting cannot fail. */
static strata_status reserve(st_capture *c, const st_call *call, strata_error *err) {
  const size_t need = (size_t)(call->layer + 2);
  void *items = c->layers;
  ST_TRY(st_grow(&items, &c->layers_capacity, need, sizeof *c->layers, "a capture", err));
  c->layers = items;
  for (; c->n_layers < need; ++c->n_layers) c->layers[c->n_layers] = (tally){0};
  return STRATA_OK;
}

static void count(st_capture *c, const st_call *call) {
  tally *t = &c->layers[call->layer + 1];
  ++*(has_several_tokens(c->op, call->args) ? &t->several : &t->one);
  ++c->count;
}

/* ---- the two halves ------------------------------------------------------------- */

void st_capture_before(st_capture *c, const st_call *call) {
  c->status = reserve(c, call, &c->failure);
  if (c->status == STRATA_OK) c->status = snapshot_take(&c->before, c->op, call->args, STK_OUT, &c->failure);
  if (c->status != STRATA_OK) snapshot_release(&c->before);
}

static void fill_row(st_trace_row *row, const stk_tensor *t, bool present) {
  *row = (st_trace_row){.dtype = t->dtype, .role = t->role, .n = present ? t->n : 0};
  snprintf(row->name, sizeof row->name, "%s", t->name);
}

static strata_status write_trace(st_capture *c, const st_call *call, const snapshot *after, strata_error *err) {
  const snapshot *before = &c->before;
  const tally t = tally_of(c, call->layer);
  char name[96], layer[16] = "outside", *path;
  st_trace_call trace = {.head = {.contract = c->op->contract, .args_bytes = (uint32_t)c->op->args_bytes,
                                  .n_tensors = (uint32_t)before->n, .layer = call->layer,
                                  .call = t.several + t.one, .numerics = call->kernel->numerics},
                         .args = before->args};
  snprintf(trace.head.op, sizeof trace.head.op, "%s", c->op->name);
  snprintf(trace.head.variant, sizeof trace.head.variant, "%s", call->kernel->variant);
  for (int32_t i = 0; i < before->n; ++i) {
    fill_row(&trace.rows[i], &before->tensors[i], before->present[i]);
    trace.before[i] = before->memory[i];
    trace.after[i] = after->memory[i];
    *before->tensors[i].slot = NULL;
  }
  if (call->layer >= 0) snprintf(layer, sizeof layer, "%d", call->layer);
  snprintf(name, sizeof name, "%s-%s-%d.trace", c->op->name, layer, trace.head.call);
  ST_TRY(st_path_join(&path, c->directory, name, err));
  strata_status status = st_trace_write(path, &trace, err);
  st_free(path);
  return status;
}

void st_capture_after(st_capture *c, const st_call *call) {
  snapshot after = {0};
  if (c->status != STRATA_OK) return;
  strata_status status = snapshot_take(&after, c->op, call->args, STK_IN, &c->failure);
  if (status == STRATA_OK) status = write_trace(c, call, &after, &c->failure);
  if (status == STRATA_OK) count(c, call);
  snapshot_release(&after);
  snapshot_release(&c->before);
  c->status = status;
}

strata_status st_capture_failure(const st_capture *c, strata_error *err) {
  if (c->status != STRATA_OK && err) *err = c->failure;
  return c->status;
}

int32_t st_capture_count(const st_capture *c) { return c->count; }
