/* strata_session: feeding tokens in windows, and the state's life. See strata.h. */
#include "model/st_session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "os/st_file.h"

enum { DEFAULT_WINDOW = 512 };

strata_status strata_session_new(strata_model *model, const strata_session_options *options,
                                 strata_session **out, strata_error *err) {
  const qwen4_config *c = &model->config;
  int32_t capacity = options && options->capacity ? options->capacity : c->max_positions;
  int32_t window = options && options->window ? options->window : DEFAULT_WINDOW;
  strata_status status = STRATA_OK;
  void *memory = NULL;
  strata_session *s = NULL;
  *out = NULL;
  if (capacity < 1 || capacity > c->max_positions)
    ST_FAIL(err, ARG, "session: capacity %d: 1 to %d tokens expected", capacity, c->max_positions);
  if (window < 1) ST_FAIL(err, ARG, "session: window %d: at least 1 token expected", window);
  if (options && (int)options->kv >= STK_KV_KINDS)
    ST_FAIL(err, ARG, "session: kv %d: 0 to %d expected", (int)options->kv, STK_KV_KINDS - 1);
  if (window > capacity) window = capacity;
  if (!model->program_bytes) model->program_bytes = st_model_program_bytes(model);
  ST_TRY(st_calloc(&memory, 1, sizeof *s, "the session", err));
  s = memory;
  s->model = model;
  s->window = window;
  ST_TRY_OUT(qwen4_state_init(c, capacity, options ? (stk_kv)options->kv : STK_KV_F32, &s->state, err));
  ST_TRY_OUT(qwen4_scratch_init(c, window, capacity, &s->scratch, err));
  ST_TRY_OUT(st_plan_init(&s->plan, &model->engine->kernels, st_pool_threads(model->engine->pool),
                          qwen4_plan_capacity(c), err));
  *out = s;
  s = NULL;
out:
  strata_session_free(&s);
  return status;
}

void strata_session_free(strata_session **session) {
  strata_session *s = *session;
  if (!s) return;
  st_pages_free(s->logits_run, s->logits_run_bytes);
  st_free(s->since);
  st_capture_free(&s->capture);
  st_plan_release(&s->plan);
  qwen4_scratch_release(&s->scratch);
  qwen4_state_release(&s->state);
  st_free(s);
  *session = NULL;
}

void strata_session_reset(strata_session *s) {
  qwen4_state_reset(&s->model->config, &s->state);
  s->damaged = s->has_logits = false;
}

strata_status strata_session_copy(strata_session *dst, const strata_session *src,
                                  strata_error *err) {
  if (dst->model != src->model)
    ST_FAIL(err, STATE, "session: copy: sessions of one model expected");
  if (src->damaged) ST_FAIL(err, STATE, "session: copy: a session whose last feed failed");
  ST_TRY(qwen4_state_copy(&dst->state, &src->state, err));
  dst->damaged = false;
  dst->has_logits = src->has_logits;
  return STRATA_OK;
}

strata_status strata_session_save(const strata_session *s, const char *path, strata_error *err) {
  if (s->damaged) ST_FAIL(err, STATE, "session: save: a session whose last feed failed");
  return qwen4_state_save(&s->state, st_model_fingerprint(s->model), path, err);
}

strata_status strata_session_restore(strata_session *s, const char *path, strata_error *err) {
  ST_TRY(qwen4_state_restore(&s->state, st_model_fingerprint(s->model), path, err));
  s->damaged = false;
  s->has_logits = s->state.position > 0;
  return STRATA_OK;
}

strata_status strata_session_checkpoint(strata_session *s, strata_error *err) {
  if (s->damaged) ST_FAIL(err, STATE, "session: checkpoint: a session whose last feed failed");
  ST_TRY(qwen4_state_checkpoint(&s->state, err));
  s->checkpoint_logits = s->has_logits;
  s->n_since = 0;
  return STRATA_OK;
}

int32_t strata_session_position(const strata_session *s) { return s->state.position; }

const float *strata_session_logits(const strata_session *s) {
  return s->has_logits ? s->state.logits : NULL;
}

void strata_session_state_sha256(const strata_session *s, char hex[65]) {
  qwen4_state_sha256(&s->state, hex);
}

/* ---- feeding ------------------------------------------------------------------ */

/* Names the block whose output a read of the streams shows first. */
static void name_block(const qwen4_config *c, int32_t read, char *name, size_t n_bytes) {
  int32_t layer = read / 2;
  bool ple = false;
  for (int32_t i = 0; i < c->n_ple; ++i) ple |= c->ple_layer[i] == layer;
  if (read % 2)
    snprintf(name, n_bytes, "layer %d (%s)", layer,
             c->layer_kind[layer] == QWEN4_GDN ? "gated delta net" : "sparse attention");
  else if (ple && layer < c->n_layers)
    snprintf(name, n_bytes, "layer %d (n-gram embedding, or the experts before it)", layer);
  else if (layer == 0)
    snprintf(name, n_bytes, "the token embedding");
  else
    snprintf(name, n_bytes, "layer %d (experts)", layer - 1);
}

/* Every read leaves the mean squares of the streams; a value that is not finite
 * shows there in the first block and at the first position where it came in.
 * n_reads does not include the final read unless it was run for all tokens. */
static strata_status check_finite(strata_session *s, int32_t T, int32_t n_reads, strata_error *err) {
  const qwen4_config *c = &s->model->config;
  for (int32_t t = 0; t < T; ++t)
    for (int32_t read = 0; read < n_reads; ++read)
      for (int32_t i = 0; i < c->hc_count; ++i) {
        size_t at = ((size_t)read * (size_t)T + (size_t)t) * (size_t)c->hc_count + (size_t)i;
        if (isfinite(s->scratch.mean_square[at])) continue;
        char block[80];
        name_block(c, read, block, sizeof block);
        s->damaged = true;
        ST_FAIL(err, NUMERICS, "%s: position %d: finite numbers expected", block,
                s->state.position + t);
      }
  return STRATA_OK;
}

static strata_status check_logits(strata_session *s, const float *logits, int32_t position,
                                  strata_error *err) {
  const qwen4_config *c = &s->model->config;
  for (int32_t id = 0; id < c->vocab; ++id)
    if (isnan(logits[id])) {
      s->damaged = true;
      ST_FAIL(err, NUMERICS, "layer %d (experts) or the head: position %d, id %d: a number expected",
              c->n_layers - 1, position, id);
    }
  return STRATA_OK;
}

static strata_status run_plan(strata_session *s, strata_error *err) {
  st_plan_run(&s->plan, s->model->engine->pool);
  if (!s->capture) return STRATA_OK;
  strata_status status = st_capture_failure(s->capture, err);
  if (status != STRATA_OK) s->damaged = true;
  return status;
}

/* Logits of all tokens of the window, a run at a time. */
static strata_status all_logits(strata_session *s, const qwen4_window *w,
                                const strata_feed_options *options, bool *go_on,
                                strata_error *err) {
  const qwen4_config *c = &s->model->config;
  for (int32_t first = 0; first < w->n_tokens; first += QWEN4_LOGITS_RUN) {
    int32_t count = w->n_tokens - first < QWEN4_LOGITS_RUN ? w->n_tokens - first : QWEN4_LOGITS_RUN;
    st_plan_reset(&s->plan);
    ST_TRY(qwen4_plan_logits(w, first, count, s->logits_run, &s->plan, err));
    ST_TRY(run_plan(s, err));
    for (int32_t t = 0; t < count; ++t)
      ST_TRY(check_logits(s, s->logits_run + (size_t)t * (size_t)c->vocab,
                          s->state.position + first + t, err));
    if (options->on_window && *go_on)
      *go_on = options->on_window(options->user, s->state.position + first, count, s->logits_run);
    memcpy(s->state.logits, s->logits_run + (size_t)(count - 1) * (size_t)c->vocab,
           (size_t)c->vocab * sizeof(float));
  }
  return STRATA_OK;
}

/* Runs one window; last: its final logits are wanted. */
static strata_status run_window(strata_session *s, const int32_t *ids, int32_t T, bool last,
                                const strata_feed_options *options, bool *go_on,
                                strata_error *err) {
  strata_model *m = s->model;
  const qwen4_config *c = &m->config;
  const int32_t before = c->n_ple ? c->ngram_size - 1 : 0;
  const bool all = options && options->all_logits;
  ST_TRY(qwen4_state_reserve(&s->state, s->state.position + T, err));
  qwen4_window w = {c, &m->weights, m->inv_freq, &s->state, &s->scratch, T};
  if (before) memcpy(s->scratch.ids, s->state.context, (size_t)before * sizeof *ids);
  memcpy(s->scratch.ids + before, ids, (size_t)T * sizeof *ids);
  st_plan_reset(&s->plan);
  ST_TRY(qwen4_plan_layers(&w, &s->plan, err));
  if (last && !all) ST_TRY(qwen4_plan_logits(&w, T - 1, 1, s->state.logits, &s->plan, err));
  ST_TRY(run_plan(s, err));
  s->has_logits = false;
  ST_TRY(check_finite(s, T, 2 * c->n_layers, err));
  if (all) ST_TRY(all_logits(s, &w, options, go_on, err));
  else if (last) ST_TRY(check_logits(s, s->state.logits, s->state.position + T - 1, err));
  s->has_logits = all || last;
  if (before) memcpy(s->state.context, s->scratch.ids + T, (size_t)before * sizeof *ids);
  s->state.position += T;
  if (s->state.checkpoint_position >= 0) {
    memmove(s->since + s->n_since, ids, (size_t)T * sizeof *ids);
    s->n_since += T;
  }
  if (options && options->on_window && !all)
    *go_on = options->on_window(options->user, s->state.position, 0, NULL);
  if (*go_on || s->has_logits) return STRATA_OK;
  /* The last logits are part of the state, and this window is now the last. */
  st_plan_reset(&s->plan);
  ST_TRY(qwen4_plan_logits(&w, T - 1, 1, s->state.logits, &s->plan, err));
  ST_TRY(run_plan(s, err));
  ST_TRY(check_logits(s, s->state.logits, s->state.position - 1, err));
  s->has_logits = true;
  return STRATA_OK;
}

static strata_status check_feed(const strata_session *s, const int32_t *ids, int32_t n,
                                const strata_feed_options *options, strata_error *err) {
  const qwen4_config *c = &s->model->config;
  if (s->damaged)
    ST_FAIL(err, STATE, "session: feed: the last feed failed: a reset or restored session expected");
  if (n < 1) ST_FAIL(err, ARG, "session: feed: %d tokens: at least 1 expected", n);
  for (int32_t i = 0; i < n; ++i)
    if (ids[i] < 0 || ids[i] >= c->vocab)
      ST_FAIL(err, ARG, "token %d: id %d: 0 to %d expected", i, ids[i], c->vocab - 1);
  if (n > s->state.capacity - s->state.position)
    ST_FAIL(err, LIMIT, "session: %d tokens after %d: at most %d in all expected", n,
            s->state.position, s->state.capacity);
  for (int32_t i = 0; options && i < options->n_windows; ++i)
    if (options->windows[i] < 1 || options->windows[i] > s->window)
      ST_FAIL(err, ARG, "window: %d tokens: 1 to %d expected", options->windows[i], s->window);
  return STRATA_OK;
}

/* Checked tokens, window by window. */
static strata_status run_tokens(strata_session *s, const int32_t *ids, int32_t n,
                                const strata_feed_options *options, strata_error *err) {
  const int32_t n_windows = options ? options->n_windows : 0;
  bool go_on = true;
  for (int32_t done = 0, i = 0; done < n; ++i) {
    int32_t T = n_windows ? options->windows[i < n_windows ? i : n_windows - 1] : s->window;
    if (T > n - done) T = n - done;
    ST_TRY(run_window(s, ids + done, T, done + T == n, options, &go_on, err));
    done += T;
    if (!go_on)
      ST_FAIL(err, CANCELLED, "session: feed: stopped after %d of %d tokens", done, n);
  }
  return STRATA_OK;
}

strata_status strata_session_feed(strata_session *s, const int32_t *ids, int32_t n,
                                  const strata_feed_options *options, strata_error *err) {
  const size_t run_bytes = (size_t)QWEN4_LOGITS_RUN * (size_t)s->model->config.vocab * sizeof(float);
  ST_TRY(check_feed(s, ids, n, options, err));
  if (s->state.checkpoint_position >= 0) {
    void *memory = s->since;
    ST_TRY(st_grow(&memory, &s->since_capacity, (size_t)s->n_since + (size_t)n, sizeof *s->since,
                   "a checkpoint", err));
    s->since = memory;
  }
  if (options && options->all_logits && !s->logits_run) {
    void *memory;
    ST_TRY(st_pages_new(&memory, run_bytes, "logits", err));
    s->logits_run = memory;
    s->logits_run_bytes = run_bytes;
  }
  return run_tokens(s, ids, n, options, err);
}

/* Back to the checkpoint, and from there through what is kept: the same bytes,
 * since windows do not change them. */
strata_status strata_session_rollback(strata_session *s, int32_t n, strata_error *err) {
  if (s->state.checkpoint_position < 0)
    ST_FAIL(err, STATE, "session: rollback: no checkpoint: a checkpoint expected");
  if (n < 0 || n > s->n_since)
    ST_FAIL(err, ARG, "session: rollback: %d tokens: 0 to %d expected", n, s->n_since);
  if (n == 0 && !s->damaged) return STRATA_OK;
  const int32_t kept = s->n_since - n;
  qwen4_state_rollback(&s->state);
  s->damaged = false;
  s->has_logits = s->checkpoint_logits;
  s->n_since = 0;
  return run_tokens(s, s->since, kept, NULL, err);
}

/* ---- profile ------------------------------------------------------------------ */

void strata_session_profile(strata_session *s, bool on) {
  memset(s->profile, 0, sizeof s->profile);
  s->plan.profile = on ? s->profile : NULL;
}

void strata_session_get_profile(const strata_session *s, strata_profile *out) {
  *out = (strata_profile){0};
  for (int op = 0; op < ST_OPS; ++op) {
    const st_op_profile *p = &s->profile[op];
    if (!p->calls) continue;
    out->rows[out->n_rows++] = (strata_profile_row){
        .op = st_kreg_op((st_op)op)->name, .variant = s->plan.kernels->kernel[op]->variant,
        .calls = p->calls, .seconds = p->seconds, .flops = p->work.flops,
        .bytes = p->work.weight_bytes + p->work.state_bytes};
  }
}

/* ---- captures ------------------------------------------------------------------- */

strata_status strata_session_capture(strata_session *s, const strata_capture_options *options,
                                     strata_error *err) {
  st_capture_free(&s->capture);
  s->plan.capture = NULL;
  if (!options) return STRATA_OK;
  const int op = options->op ? st_kreg_op_by_name(options->op) : -1;
  const int32_t n_layers = s->model->config.n_layers;
  if (op < 0)
    ST_FAIL(err, ARG, "capture: %s: the name of an op (strata lab list) expected", options->op ? options->op : "");
  if (options->layer < -1 || options->layer >= n_layers)
    ST_FAIL(err, ARG, "capture: layer %d: 0 to %d expected", options->layer, n_layers - 1);
  if (options->calls < 1) ST_FAIL(err, ARG, "capture: %d calls: at least 1 expected", options->calls);
  if (!options->directory || !options->directory[0]) ST_FAIL(err, ARG, "capture: a directory expected");
  const st_capture_request request = {(st_op)op, options->layer, options->calls, options->directory};
  ST_TRY(st_capture_new(&request, &s->capture, err));
  s->plan.capture = s->capture;
  return STRATA_OK;
}

int32_t strata_session_captured(const strata_session *s) {
  return s->capture ? st_capture_count(s->capture) : 0;
}
