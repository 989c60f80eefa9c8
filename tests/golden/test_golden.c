/* The engine against recordings of the reference implementation on strata-tiny
 * (tests/golden/strata-tiny.safetensors, made by tools/make_goldens.py from the
 * reference run in f32 on a CPU). Bounds are relative L2 distances; the
 * reference itself is 2e-5 from a double-precision run on the 300-token prompt. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gdn_post/gdn_post.h"
#include "gdn_pre/gdn_pre.h"
#include "gdn_scan/gdn_scan.h"
#include "hc_norm/hc_norm.h"
#include "linear/linear.h"
#include "model/st_session.h"
#include "qsa_attn/qsa_attn.h"
#include "qsa_topk/qsa_topk.h"

static const double HIDDEN_BOUND = 2e-5, LOGITS_BOUND = 5e-5, ARGMAX_MARGIN = 1e-3;
enum { GREEDY = 48, VOCAB = 4096, TAIL = 16 };

typedef struct fixture {
  strata_engine *engine;
  strata_model *model;
  st_safetensors *golden;
} fixture;

static fixture fix;

static void must(strata_status status, const strata_error *err) {
  if (status != STRATA_OK) fail_msg("%s", err->message);
}

static const st_tensor *find(const char *prompt, const char *name) {
  char key[64];
  snprintf(key, sizeof key, "%s.%s", prompt, name);
  const st_tensor *t = st_safetensors_find(fix.golden, key);
  if (!t) fail_msg("no golden %s", key);
  return t;
}

static const float *floats(const char *prompt, const char *name) {
  return (const float *)(const void *)find(prompt, name)->data;
}

static const int32_t *ints(const char *prompt, const char *name) {
  return (const int32_t *)(const void *)find(prompt, name)->data;
}

static double distance(const float *got, const float *want, size_t n) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < n; ++i) {
    difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    size += (double)want[i] * want[i];
  }
  return sqrt(difference / size);
}

static void check_distance(const char *what, const float *got, const float *want, size_t n,
                           double bound) {
  double d = distance(got, want, n);
  print_message("    %-24s %.2e (at most %.0e)\n", what, d, bound);
  if (!(d <= bound)) fail_msg("%s: relative L2 distance %.3e, at most %.0e expected", what, d, bound);
}

static strata_session *new_session(void) {
  strata_session *s;
  strata_error err;
  must(strata_session_new(fix.model, &(strata_session_options){.capacity = 1024}, &s, &err), &err);
  return s;
}

static int32_t argmax(const float *x) {
  int32_t best = 0;
  for (int32_t i = 1; i < VOCAB; ++i)
    if (x[i] > x[best]) best = i;
  return best;
}

/* ---- logits ------------------------------------------------------------------- */

typedef struct collected {
  float *logits; /* [T][VOCAB] */
} collected;

static bool collect(void *user, int32_t pos, int32_t n, const float *logits) {
  collected *c = user;
  memcpy(c->logits + (size_t)pos * VOCAB, logits, (size_t)n * VOCAB * sizeof(float));
  return true;
}

static double log_sum_exp(const float *x) {
  double top = x[argmax(x)], sum = 0;
  for (int32_t i = 0; i < VOCAB; ++i) sum += exp((double)x[i] - top);
  return top + log(sum);
}

static void test_logits(void **state) {
  const char *prompt = *state;
  strata_error err;
  int32_t T = (int32_t)find(prompt, "ids")->n_elems, off = 0;
  strata_session *s = new_session();
  collected c = {malloc((size_t)T * VOCAB * sizeof(float))};
  float *lse = malloc((size_t)T * sizeof *lse);
  must(strata_session_feed(s, ints(prompt, "ids"), T,
                           &(strata_feed_options){.all_logits = true, .on_window = collect, .user = &c}, &err),
       &err);
  for (int32_t t = 0; t < T; ++t) {
    const float *row = c.logits + (size_t)t * VOCAB;
    int32_t want = ints(prompt, "argmax")[t], got = argmax(row);
    lse[t] = (float)log_sum_exp(row);
    if (got == want) continue;
    ++off;
    /* Only a near tie of the top two may fall the other way. */
    if (!(fabsf(row[got] - row[want]) <= ARGMAX_MARGIN))
      fail_msg("%s: position %d: argmax %d (%g), the reference has %d (%g)", prompt, t, got,
               (double)row[got], want, (double)row[want]);
  }
  print_message("    argmax: %d of %d equal\n", T - off, T);
  const st_tensor *tail = find(prompt, "logits_tail");
  check_distance("logits_tail", c.logits + (size_t)(T - (int32_t)tail->shape[0]) * VOCAB,
                 floats(prompt, "logits_tail"), (size_t)tail->n_elems, LOGITS_BOUND);
  check_distance("logsumexp", lse, floats(prompt, "logsumexp"), (size_t)T, LOGITS_BOUND);
  free(c.logits);
  free(lse);
  strata_session_free(&s);
}

static void test_greedy(void **state) {
  const char *prompt = *state;
  strata_error err;
  strata_session *s = new_session();
  must(strata_session_feed(s, ints(prompt, "ids"), (int32_t)find(prompt, "ids")->n_elems, NULL, &err), &err);
  for (int32_t i = 0; i < GREEDY; ++i) {
    int32_t id = argmax(strata_session_logits(s));
    if (id != ints(prompt, "greedy")[i])
      fail_msg("%s: greedy token %d is %d, the reference has %d", prompt, i, id, ints(prompt, "greedy")[i]);
    must(strata_session_feed(s, &id, 1, NULL, &err), &err);
  }
  strata_session_free(&s);
}

/* ---- stages, seen through the plan's watch ------------------------------------- */

typedef struct watcher {
  const char *prompt;
  strata_session *session;
  int32_t T, reads, gdn_linears, qsa_linears;
  float *selected; /* [T][T], from qsa_topk of layer 3 */
} watcher;

/* The rows of [T][width] that the recording of this prompt has: the last ones. */
static void check_last_rows(const watcher *w, const char *name, const float *got, int64_t width) {
  const st_tensor *want = find(w->prompt, name);
  assert_int_equal(want->shape[1], width);
  assert_in_range(want->shape[0], 1, w->T);
  check_distance(name, got + (w->T - want->shape[0]) * width, (const float *)(const void *)want->data,
                 (size_t)want->n_elems, HIDDEN_BOUND);
}

/* The residual streams before layer l are what its first read (after its
 * per-layer embedding) sees without that embedding; the reference records them
 * at the layer's entry. For layer 1, which has the embedding, they are r after
 * the write that precedes it. */
static void watch_hidden(void *user, const st_call *call) {
  watcher *w = user;
  char name[32];
  const qwen4_config *c = &w->session->model->config;
  if (call->kernel->op[0] != 'h' || strcmp(call->kernel->op, "hc_norm") != 0) return;
  bool ple_write = call->layer >= 0 && c->n_ple && c->ple_layer[0] == call->layer && w->reads == 2 * call->layer;
  int32_t read = w->reads;
  if (ple_write && ((const stk_hc_norm_args *)call->args)->y == NULL) {
    ++w->reads; /* the read after the embedding has been added */
    return;
  }
  if (!ple_write) ++w->reads;
  if (read % 2 || call->layer < 0) return;
  snprintf(name, sizeof name, "hidden.%d", call->layer);
  check_last_rows(w, name, w->session->scratch.r, (int64_t)c->hc_count * c->hidden);
}

static bool keep_going(void *user, int32_t pos, int32_t n, const float *logits) {
  (void)user, (void)pos, (void)n, (void)logits;
  return true;
}

static void test_hidden(void **state) {
  watcher w = {.prompt = *state, .session = new_session()};
  strata_error err;
  w.T = (int32_t)find(w.prompt, "ids")->n_elems;
  w.session->plan.watch = watch_hidden;
  w.session->plan.watch_user = &w;
  must(strata_session_feed(w.session, ints(w.prompt, "ids"), w.T,
                           &(strata_feed_options){.all_logits = true, .on_window = keep_going}, &err),
       &err);
  const qwen4_config *c = &w.session->model->config;
  check_last_rows(&w, "hidden.8", w.session->scratch.x, c->hidden);
  assert_int_equal(w.reads, 2 * c->n_layers + 1);
  strata_session_free(&w.session);
}

/* The last TAIL rows of [T][width]. */
static void check_tail(const watcher *w, const char *group, const char *name, const float *got,
                       int64_t width) {
  char what[48];
  const st_tensor *want = find(group, name);
  assert_int_equal(want->n_elems, TAIL * width);
  snprintf(what, sizeof what, "%s.%s", group, name);
  check_distance(what, got + (w->T - TAIL) * width, (const float *)(const void *)want->data,
                 (size_t)want->n_elems, HIDDEN_BOUND);
}

static void copy_columns(const float *from, int64_t stride, int64_t width, int32_t T, float *to) {
  for (int32_t t = 0; t < T; ++t)
    memcpy(to + t * width, from + t * stride, (size_t)width * sizeof(float));
}

/* The state as the reference has it, [Hv][D][D] with D = 128. */
static void check_state(const char *what, const float *state, const float *keys, int32_t position,
                        int32_t k_heads, int32_t v_heads, const float *want) {
  enum { D = 128 };
  const size_t n = (size_t)v_heads * D * D;
  float *got = malloc(n * sizeof *got);
  for (size_t e = 0; e < n; ++e)
    got[e] = stk_gdn_state_at(state, keys, position, k_heads, v_heads, D, D, (int32_t)(e / (D * D)),
                              (int32_t)(e / D % D), (int32_t)(e % D));
  check_distance(what, got, want, n, HIDDEN_BOUND);
  free(got);
}

static void watch_gdn0(const watcher *w, const st_call *call) {
  const qwen4_scratch *s = &w->session->scratch;
  const qwen4_config *c = &w->session->model->config;
  const int64_t heads = c->gdn_v_heads, values = heads * c->gdn_v_dim;
  if (strcmp(call->kernel->op, "gdn_pre") == 0) {
    float *one = malloc((size_t)w->T * (size_t)heads * sizeof *one);
    check_tail(w, "gdn0", "qkv", s->qkv, qwen4_gdn_channels(c));
    check_tail(w, "gdn0", "z", s->z, values);
    copy_columns(s->ab, 2 * heads, heads, w->T, one);
    check_tail(w, "gdn0", "a", one, heads);
    copy_columns(s->ab + heads, 2 * heads, heads, w->T, one);
    check_tail(w, "gdn0", "b", one, heads);
    free(one);
  } else if (strcmp(call->kernel->op, "gdn_scan") == 0) {
    float *o = malloc((size_t)w->T * (size_t)values * sizeof *o);
    for (int32_t t = 0; t < w->T; ++t)
      for (int64_t h = 0; h < heads; ++h)
        memcpy(o + t * values + h * c->gdn_v_dim, s->o + (h * w->T + t) * c->gdn_v_dim,
               (size_t)c->gdn_v_dim * sizeof *o);
    check_tail(w, "gdn0", "o", o, values);
    free(o);
    check_state("gdn0.state", w->session->state.layers[0].gdn, w->session->state.layers[0].gdn_keys,
                w->T, c->gdn_k_heads, c->gdn_v_heads, floats("gdn0", "state"));
  } else if (strcmp(call->kernel->op, "gdn_post") == 0) {
    check_tail(w, "gdn0", "y", s->gdn_y, values);
  } else if (strcmp(call->kernel->op, "linear") == 0 &&
             ((const stk_linear_args *)call->args)->x == s->gdn_y) {
    check_tail(w, "gdn0", "out", s->y, c->hidden);
  }
}

static void watch_qsa3(watcher *w, const st_call *call) {
  const qwen4_scratch *s = &w->session->scratch;
  const qwen4_config *c = &w->session->model->config;
  if (strcmp(call->kernel->op, "qsa_prep") == 0) {
    check_tail(w, "qsa3", "q_tail", s->q_raw, 2 * (int64_t)c->q_heads * c->head_dim);
    check_tail(w, "qsa3", "k", s->k_raw, (int64_t)c->kv_heads * c->head_dim);
    check_tail(w, "qsa3", "v", s->v_raw, (int64_t)c->kv_heads * c->head_dim);
    check_tail(w, "qsa3", "index_qk", s->index_raw, (int64_t)(c->idx_heads + 1) * c->idx_dim);
  } else if (strcmp(call->kernel->op, "qsa_topk") == 0) {
    const stk_qsa_topk_args *a = call->args;
    const uint8_t *want = find("qsa3", "selected")->data;
    int32_t sparse = 0;
    for (int32_t t = 0; t < w->T; ++t) {
      uint8_t *got = calloc((size_t)w->T, 1);
      for (int32_t i = 0; i < a->n_ids[t]; ++i) got[a->ids[t * a->ids_stride + i]] = 1;
      for (int32_t i = 0; i <= t && a->n_ids[t] == 0; ++i) got[i] = 1;
      sparse += a->n_ids[t] > 0;
      if (memcmp(got, want + (size_t)t * (size_t)w->T, (size_t)w->T) != 0)
        fail_msg("qsa3.selected: query %d differs", t);
      free(got);
    }
    print_message("    qsa3.selected            equal, %d of %d queries sparse, no tie differs\n",
                  sparse, w->T);
  } else if (strcmp(call->kernel->op, "qsa_attn") == 0) {
    check_tail(w, "qsa3", "attn_tail", s->attn, (int64_t)c->q_heads * c->head_dim);
  } else if (strcmp(call->kernel->op, "linear") == 0 &&
             ((const stk_linear_args *)call->args)->x == s->attn) {
    check_tail(w, "qsa3", "out_tail", s->y, c->hidden);
    ++w->qsa_linears;
  }
}

static void watch_stages(void *user, const st_call *call) {
  watcher *w = user;
  if (call->layer == 0) watch_gdn0(w, call);
  if (call->layer == 3) watch_qsa3(w, call);
}

static void test_stages(void **state) {
  watcher w = {.prompt = "over_budget", .session = new_session()};
  strata_error err;
  (void)state;
  w.T = (int32_t)find(w.prompt, "ids")->n_elems;
  w.session->plan.watch = watch_stages;
  w.session->plan.watch_user = &w;
  must(strata_session_feed(w.session, ints(w.prompt, "ids"), w.T, NULL, &err), &err);
  assert_int_equal(w.qsa_linears, 1);
  strata_session_free(&w.session);
}

/* ---- the gated delta net at the released head size, 4 key and 12 value heads ---- */

/* The recording starts from a state, at an even position. */
static void import_state(const float *from, float *state, int32_t heads) {
  enum { D = 128, ROWS = D + STK_GDN_TILE_ROWS };
  for (int32_t h = 0; h < heads; ++h)
    for (int32_t i = 0; i < D; ++i)
      for (int32_t j = 0; j < D; ++j)
        state[((h * (D / STK_GDN_TILE) + j / STK_GDN_TILE) * ROWS + i) * STK_GDN_TILE +
              j % STK_GDN_TILE] = from[(h * D + i) * D + j];
}

static void test_gdn_heads(void **state) {
  enum { T = 5, HK = 4, HV = 12, D = 128, C = 2 * HK * D + HV * D, TAPS = 4 };
  static float ab[T * 2 * HV], history[3 * C], qn[T * HK * D], kn[(T + 2) * HK * D], vc[T * HV * D];
  static float gb[T * HV * 2], kq[T * HK * 3], o[T * HV * D], y[T * HV * D], keys[2 * HK * D];
  static float s[HV * D * (D + STK_GDN_TILE_ROWS)], row_major[T * HV * D], g_got[T * HV], beta_got[T * HV];
  st_safetensors *file;
  strata_error err;
  (void)state;
  must(st_safetensors_open("tests/golden/gdn_heads.safetensors", &file, &err), &err);
#define GOLDEN(name) ((const float *)(const void *)st_safetensors_find(file, name)->data)
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < HV; ++h) {
      ab[t * 2 * HV + h] = GOLDEN("a")[t * HV + h];
      ab[t * 2 * HV + HV + h] = GOLDEN("b")[t * HV + h];
    }
  memcpy(history, GOLDEN("history"), sizeof history);
  import_state(GOLDEN("state_in"), s, HV);
  const st_kernel_set *set = &fix.engine->kernels;
  set->kernel[ST_OP_gdn_pre]->run(
      &(stk_gdn_pre_args){GOLDEN("qkv"), ab, GOLDEN("conv_weight"), GOLDEN("A_log"),
                          GOLDEN("dt_bias"), history, keys, qn, kn, vc, gb, kq, T, 0, HK, HV, D, D,
                          TAPS, STK_GDN_ALL, STK_F32}, 0, 1);
  set->kernel[ST_OP_gdn_scan]->run(
      &(stk_gdn_scan_args){qn, kn, vc, gb, kq, s, o, T, 0, HK, HV, D, D, STK_F32}, 0, 1);
  set->kernel[ST_OP_gdn_post]->run(
      &(stk_gdn_post_args){.o = o, .z = GOLDEN("z"), .gain = GOLDEN("gamma"), .y = y, .n_tokens = T,
                           .v_heads = HV, .v_dim = D, .eps = 1e-6f, .outputs = STK_POST_F32}, 0, 1);
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < HV; ++h) {
      g_got[t * HV + h] = logf(gb[2 * (h * T + t)]);
      beta_got[t * HV + h] = gb[2 * (h * T + t) + 1];
      check_distance("conv_out (values)", vc + (h * T + t) * D,
                     GOLDEN("conv_out") + t * C + 2 * HK * D + h * D, D, HIDDEN_BOUND);
      memcpy(row_major + (t * HV + h) * D, o + (h * T + t) * D, D * sizeof(float));
    }
  check_distance("g", g_got, GOLDEN("g"), T * HV, HIDDEN_BOUND);
  check_distance("beta", beta_got, GOLDEN("beta"), T * HV, HIDDEN_BOUND);
  check_distance("o", row_major, GOLDEN("o"), T * HV * D, HIDDEN_BOUND);
  check_distance("y", y, GOLDEN("y"), T * HV * D, HIDDEN_BOUND);
  check_state("state_out", s, keys, T, HK, HV, GOLDEN("state_out"));
#undef GOLDEN
  st_safetensors_close(&file);
}

static int set_up(void **state) {
  strata_error err;
  (void)state;
  must(strata_engine_new(NULL, &fix.engine, &err), &err);
  must(strata_model_open(fix.engine, "models/strata-tiny", &fix.model, &err), &err);
  must(st_safetensors_open("tests/golden/strata-tiny.safetensors", &fix.golden, &err), &err);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  st_safetensors_close(&fix.golden);
  strata_model_close(&fix.model);
  strata_engine_free(&fix.engine);
  return 0;
}

#define TEST(name, function, prompt) {name " " prompt, function, NULL, NULL, (void *)(uintptr_t) prompt}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST("logits", test_logits, "one"),         TEST("logits", test_logits, "short"),
      TEST("logits", test_logits, "chat"),        TEST("logits", test_logits, "two_docs"),
      TEST("logits", test_logits, "over_budget"), TEST("logits", test_logits, "recall"),
      TEST("greedy", test_greedy, "short"),       TEST("greedy", test_greedy, "chat"),
      TEST("greedy", test_greedy, "two_docs"),    TEST("greedy", test_greedy, "over_budget"),
      TEST("greedy", test_greedy, "recall"),      TEST("hidden", test_hidden, "short"),
      TEST("hidden", test_hidden, "two_docs"),    TEST("stages", test_stages, "over_budget"),
      TEST("gdn", test_gdn_heads, "heads"),
  };
  return cmocka_run_group_tests_name("golden", tests, set_up, tear_down);
}
