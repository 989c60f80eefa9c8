/* Sums over the calls of a session's plans, looked at between passes. */
#include "lab/lab_profile.h"

#include <math.h>

#include "core/st_mem.h"
#include "model/st_session.h"
#include "os/st_process.h"

/* A session being profiled. */
typedef struct run {
  const lab_profile_request *request;
  strata_session *session;
  const lab_rates *rates; /* NULL: only the working set is wanted */
  lab_profile_phase *phase;
  double own_s; /* what the sums themselves took inside of feeds */
  bool full;    /* more kernels than rows */
} run;

/* ---- sums ----------------------------------------------------------------------- */

static lab_profile_row *row_of(run *r, const stk_kernel *kernel) {
  lab_profile_phase *p = r->phase;
  for (int32_t i = 0; i < p->n_rows; ++i)
    if (p->rows[i].kernel == kernel) return &p->rows[i];
  if (p->n_rows == LAB_PROFILE_ROWS_MAX) {
    r->full = true;
    return &p->rows[0];
  }
  p->rows[p->n_rows].kernel = kernel;
  return &p->rows[p->n_rows++];
}

/* Weights and state come from where a whole pass finds them, inputs and outputs at
 * best from the level that holds those of the call. */
static double call_floor(const lab_rates *rates, const stk_work *w, double working_set_bytes) {
  const stk_work near = {.flops = w->flops, .io_bytes = w->io_bytes};
  const stk_work far = {.weight_bytes = w->weight_bytes, .state_bytes = w->state_bytes};
  return lab_floor_split(rates, &near, w->io_bytes, &far, working_set_bytes).seconds;
}

static void add_call(run *r, const st_call *call, double seconds) {
  lab_profile_row *row = row_of(r, call->kernel);
  stk_work w = {0};
  st_kreg_op((st_op)call->tag)->work(call->args, &w);
  ++row->calls;
  row->seconds += seconds;
  row->work.flops += w.flops;
  row->work.weight_bytes += w.weight_bytes;
  row->work.state_bytes += w.state_bytes;
  row->work.io_bytes += w.io_bytes;
  r->phase->kernels_s += seconds;
  if (!r->rates) return;
  double floor_s = call_floor(r->rates, &w, r->phase->working_set_bytes);
  row->floor_s += floor_s;
  r->phase->floor_s += floor_s;
}

/* After a window: its plan still holds the calls. */
static bool on_window(void *user, int32_t pos, int32_t n, const float *logits) {
  run *r = user;
  const st_plan *plan = &r->session->plan;
  double begin = st_clock_seconds();
  (void)pos, (void)n, (void)logits;
  for (int32_t i = 0; i < plan->n_calls; ++i) add_call(r, &plan->calls[i], plan->seconds[i]);
  ++r->phase->n_passes;
  r->own_s += st_clock_seconds() - begin;
  return !r->request->go_on || r->request->go_on(r->request->user);
}

/* ---- running --------------------------------------------------------------------- */

static strata_status feed(run *r, const int32_t *ids, int32_t n, strata_error *err) {
  const strata_feed_options options = {.on_window = on_window, .user = r};
  st_plan *plan = &r->session->plan;
  plan->run_seconds = r->own_s = 0;
  double begin = st_clock_seconds();
  strata_status status = strata_session_feed(r->session, ids, n, &options, err);
  r->phase->passes_s += st_clock_seconds() - begin - r->own_s;
  r->phase->lists_s += plan->run_seconds;
  r->phase->n_tokens += n;
  return status;
}

static int32_t likeliest(const float *logits, int32_t vocab) {
  int32_t best = 0;
  for (int32_t id = 1; id < vocab; ++id)
    if (logits[id] > logits[best]) best = id;
  return best;
}

static strata_status decode(run *r, lab_profile_phase *phase, int32_t n, strata_error *err) {
  r->phase = phase;
  for (int32_t i = 0; i < n; ++i) {
    double begin = st_clock_seconds(), before = phase->passes_s;
    int32_t id = likeliest(strata_session_logits(r->session), r->session->model->config.vocab);
    double choosing = st_clock_seconds() - begin;
    ST_TRY(feed(r, &id, 1, err));
    phase->phase_s += choosing + phase->passes_s - before;
  }
  return STRATA_OK;
}

static strata_status prefill(run *r, lab_profile_phase *phase, int32_t n, strata_error *err) {
  r->phase = phase;
  strata_status status = feed(r, r->request->ids, n, err);
  phase->phase_s = phase->passes_s;
  return status;
}

/* What a pass of a phase goes through, and how fast that can be read. */
static strata_status refine(const run *r, const lab_ceilings *c, const lab_profile_phase *tried,
                            lab_profile_phase *phase, lab_rates *rates, strata_error *err) {
  double sum = 0;
  for (int32_t i = 0; i < tried->n_rows; ++i)
    sum += tried->rows[i].work.weight_bytes + tried->rows[i].work.state_bytes;
  *rates = c->all;
  phase->working_set_bytes = tried->n_passes ? sum / (double)tried->n_passes : 0;
  ST_TRY(lab_rates_refine(r->session->model->engine->pool, c->level, (int64_t)phase->working_set_bytes,
                          rates, err));
  const double *rate = rates->bytes_per_s[lab_memory_of(rates, phase->working_set_bytes)];
  phase->read_bytes_per_s = rate[ST_TRAFFIC_READ];
  phase->update_bytes_per_s = rate[ST_TRAFFIC_UPDATE];
  return STRATA_OK;
}

static strata_status run_all(run *r, const lab_ceilings *c, lab_profile *tried, lab_profile *out,
                             strata_error *err) {
  const lab_profile_request *q = r->request;
  lab_rates prefill_rates, decode_rates;
  ST_TRY(prefill(r, &tried->prefill, q->n_ids < q->window ? q->n_ids : q->window, err));
  ST_TRY(decode(r, &tried->decode, q->n_decode > 0, err));
  ST_TRY(refine(r, c, &tried->prefill, &out->prefill, &prefill_rates, err));
  ST_TRY(refine(r, c, &tried->decode, &out->decode, &decode_rates, err));
  strata_session_reset(r->session);
  r->rates = &prefill_rates;
  ST_TRY(prefill(r, &out->prefill, q->n_ids, err));
  r->rates = &decode_rates;
  ST_TRY(decode(r, &out->decode, q->n_decode, err));
  if (r->full)
    ST_FAIL(err, INTERNAL, "lab profile: more than %d kernels in a phase", LAB_PROFILE_ROWS_MAX);
  return STRATA_OK;
}

strata_status lab_profile_run(strata_model *model, const lab_ceilings *ceilings,
                              const lab_profile_request *q, lab_profile *out, strata_error *err) {
  strata_status status = STRATA_OK;
  const strata_session_options options = {.window = q->window};
  run r = {.request = q};
  void *seconds = NULL, *tried = NULL;
  *out = (lab_profile){0};
  if (q->n_ids < 1) ST_FAIL(err, ARG, "lab profile: %d tokens: at least 1 expected", q->n_ids);
  ST_TRY_OUT(strata_session_new(model, &options, &r.session, err));
  ST_TRY_OUT(st_calloc(&seconds, (size_t)r.session->plan.capacity, sizeof(double), "the profile", err));
  ST_TRY_OUT(st_calloc(&tried, 1, sizeof(lab_profile), "the profile", err));
  r.session->plan.seconds = seconds;
  ST_TRY_OUT(run_all(&r, ceilings, tried, out, err));
out:
  strata_session_free(&r.session);
  st_free(seconds);
  st_free(tried);
  return status;
}
