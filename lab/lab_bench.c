/* Buffer sets, batches, and rounds of pairs. */
#include "lab/lab_bench.h"

#include <stdatomic.h>
#include <string.h>

#include "core/st_mem.h"
#include "lab/lab_case.h"
#include "os/st_fpmode.h"
#include "os/st_process.h"

#define WARM_SECONDS 0.05

typedef struct bench_set {
  lab_case stages[LAB_STAGES_MAX];
} bench_set;

/* Bytes that are put back before each batch: of a tensor that kernels update. */
typedef struct original {
  uint8_t *to, *saved;
  size_t n_bytes;
} original;

struct lab_bench {
  const lab_bench_stage *stages;
  int32_t n_stages, n_sets, n_calls;
  int32_t next_copy[LAB_ARMS]; /* which copy of a kernel has the next batch's first call */
  size_t n_bytes;
  st_pool *pool;
  bench_set *sets;
  original *originals; /* of all sets */
  size_t n_originals, originals_capacity;
  st_call *calls; /* room for a batch of all stages */
  st_fpmode mode; /* of all threads, at first */
  lab_expected expected;
};

int32_t lab_bench_output(const lab_case *c, const stk_tensor *like) {
  for (int32_t i = 0; i < c->n; ++i)
    if (c->tensors[i].role != STK_IN && strcmp(c->tensors[i].name, like->name) == 0 &&
        c->tensors[i].n == like->n && c->tensors[i].dtype == like->dtype)
      return i;
  return -1;
}

/* Lets inputs of a stage be the outputs of the stages before it. */
static void link_stages(bench_set *set, int32_t stage) {
  lab_case *c = &set->stages[stage];
  for (int32_t i = 0; i < c->n; ++i)
    for (int32_t s = 0; s < stage && c->tensors[i].role == STK_IN; ++s) {
      int32_t source = lab_bench_output(&set->stages[s], &c->tensors[i]);
      if (source >= 0) *c->tensors[i].slot = set->stages[s].buffers[source].data;
    }
}

static strata_status save_original(lab_bench *b, const st_guarded *buffer, strata_error *err) {
  void *items = b->originals, *copy;
  ST_TRY(st_grow(&items, &b->originals_capacity, b->n_originals + 1, sizeof *b->originals, "a benchmark", err));
  b->originals = items;
  ST_TRY(st_calloc_aligned(&copy, buffer->n_bytes, 1, "a benchmark", err));
  memcpy(copy, buffer->data, buffer->n_bytes);
  b->originals[b->n_originals++] = (original){buffer->data, copy, buffer->n_bytes};
  return STRATA_OK;
}

static strata_status new_case(const lab_bench_stage *stage, lab_fill fill, lab_case *c, strata_error *err) {
  return stage->trace ? lab_trace_case(stage->trace, fill, c, err)
                      : lab_case_init(c, stage->op, stage->args->bytes, fill, err);
}

static strata_status set_init(lab_bench *b, bench_set *set, uint64_t seed, strata_error *err) {
  const lab_fill fill = {.seed = seed, .poison = LAB_POISON, .guard = 0x5e};
  for (int32_t s = 0; s < b->n_stages; ++s) {
    lab_case *c = &set->stages[s];
    ST_TRY(new_case(&b->stages[s], fill, c, err));
    link_stages(set, s);
    for (int32_t i = 0; i < c->n; ++i) {
      b->n_bytes += c->buffers[i].n_bytes;
      if (c->tensors[i].role == STK_INOUT) ST_TRY(save_original(b, &c->buffers[i], err));
    }
  }
  return STRATA_OK;
}

/* Outputs too: those of the batch before would be right, whoever wrote them. */
static void put_back(const lab_bench *b, int32_t stage) {
  for (size_t i = 0; i < b->n_originals; ++i)
    memcpy(b->originals[i].to, b->originals[i].saved, b->originals[i].n_bytes);
  for (int32_t set = 0; set < b->n_sets; ++set)
    for (int32_t s = 0; s < b->n_stages; ++s) {
      const lab_case *c = &b->sets[set].stages[s];
      for (int32_t i = 0; i < c->n && (stage < 0 || s == stage); ++i)
        if (c->tensors[i].role == STK_OUT) memset(c->buffers[i].data, LAB_POISON, c->buffers[i].n_bytes);
    }
}

/* Calls of dispatch number `turn`, for one stage or all (-1). */
static int32_t add_calls(const lab_bench *b, int32_t stage, lab_arm arm, int32_t turn, st_call *calls) {
  int32_t n = 0;
  for (int32_t s = 0; s < b->n_stages; ++s) {
    const lab_case *c = &b->sets[turn % b->n_sets].stages[s];
    const lab_copies *k = &b->stages[s].kernels[arm];
    if (stage >= 0 && s != stage) continue;
    calls[n++] = (st_call){k->kernel[(b->next_copy[arm] + turn) % k->n], c->args, lab_case_parts(c, st_pool_threads(b->pool)), s, -1};
  }
  return n;
}

/* n dispatches from number `turn` on; returns their seconds. */
static double dispatch(lab_bench *b, int32_t stage, lab_arm arm, int32_t turn, int32_t n) {
  int32_t n_calls = 0;
  for (int32_t i = 0; i < n; ++i) n_calls += add_calls(b, stage, arm, turn + i, b->calls + n_calls);
  double begin = st_clock_seconds();
  st_pool_run(b->pool, b->calls, n_calls, NULL, NULL);
  return st_clock_seconds() - begin;
}

static double batch(lab_bench *b, int32_t stage, lab_arm arm) {
  put_back(b, stage);
  double seconds = dispatch(b, stage, arm, 0, b->n_calls);
  b->next_copy[arm] = (b->next_copy[arm] + b->n_calls) % LAB_COPIES;
  return seconds;
}

/* ---- what a batch must leave ------------------------------------------------------ */

static strata_status case_at(void *self, int32_t set, int32_t stage, const lab_case **out, strata_error *err) {
  lab_bench *b = self;
  (void)err;
  *out = &b->sets[set].stages[stage];
  return STRATA_OK;
}

/* A call that looks at the mode of the thread that runs it. */
typedef struct mode_probe {
  st_fpmode expected;
  _Atomic bool changed;
} mode_probe;

static void probe_mode(const void *args, int32_t part, int32_t n_parts) {
  mode_probe *probe = *(mode_probe *const *)args;
  (void)part, (void)n_parts;
  if (!st_fpmode_equal(probe->expected, st_fpmode_get())) atomic_store(&probe->changed, true);
  st_fpmode_set(probe->expected);
}

/* As many parts as threads: each thread has its own. */
static bool kept_mode(const lab_bench *b) {
  static const stk_kernel kernel = {.run = probe_mode};
  mode_probe probe = {.expected = b->mode};
  mode_probe *at = &probe;
  const st_call call = {&kernel, &at, st_pool_threads(b->pool), 0, -1};
  st_pool_run(b->pool, &call, 1, NULL, NULL);
  return !atomic_load(&probe.changed);
}

/* ---- a bench ------------------------------------------------------------------------ */

strata_status lab_bench_new(const lab_bench_stage *stages, int32_t n_stages, st_pool *pool, size_t cache_bytes,
                            int32_t calls, uint64_t seed, lab_bench **out, strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "a benchmark", err));
  lab_bench *b = memory;
  b->stages = stages;
  b->n_stages = n_stages;
  b->pool = pool;
  b->mode = st_fpmode_get();
  ST_TRY_OUT(st_calloc(&memory, LAB_SETS_MAX, sizeof *b->sets, "a benchmark", err));
  b->sets = memory;
  ST_TRY_OUT(st_calloc(&memory, (size_t)LAB_CALLS_MAX * LAB_STAGES_MAX, sizeof *b->calls, "a benchmark", err));
  b->calls = memory;
  while (b->n_sets < 2 || (b->n_sets < LAB_SETS_MAX && b->n_bytes < 2 * cache_bytes)) {
    ST_TRY_OUT(set_init(b, &b->sets[b->n_sets], seed + (uint64_t)b->n_sets, err));
    ++b->n_sets;
  }
  b->n_calls = calls > b->n_sets ? calls : b->n_sets;
  b->expected = (lab_expected){.sets = {b, case_at}, .n_sets = b->n_sets, .n_stages = n_stages, .n_calls = b->n_calls};
  for (int32_t s = 0; s < n_stages; ++s) b->expected.fast[s] = stages[s].bound > 0;
  dispatch(b, -1, LAB_BASE, 0, b->n_sets); /* later stages get their inputs */
out:
  if (status != STRATA_OK) lab_bench_free(&b);
  *out = b;
  return status;
}

void lab_bench_free(lab_bench **bench) {
  lab_bench *b = *bench;
  if (!b) return;
  for (int32_t set = 0; set < LAB_SETS_MAX && b->sets; ++set)
    for (int32_t s = 0; s < LAB_STAGES_MAX; ++s) lab_case_release(&b->sets[set].stages[s]);
  for (size_t i = 0; i < b->n_originals; ++i) st_free(b->originals[i].saved);
  st_free(b->originals);
  st_free(b->sets);
  st_free(b->calls);
  st_free(b);
  *bench = NULL;
}

int32_t lab_bench_sets(const lab_bench *b) { return b->n_sets; }
int32_t lab_bench_calls(const lab_bench *b) { return b->n_calls; }
size_t lab_bench_bytes(const lab_bench *b) { return b->n_bytes; }

stk_work lab_bench_work(const lab_bench *b, int32_t stage) {
  stk_work w = {0};
  for (int32_t s = 0; s < b->n_stages; ++s)
    for (int i = 0; i < b->n_calls && (stage < 0 || s == stage); ++i)
      b->stages[s].op->work(b->sets[0].stages[s].args, &w);
  return w;
}

/* ---- what rounds need ----------------------------------------------------------- */

/* A bench, and which stage of it is timed. */
typedef struct timed {
  lab_bench *bench;
  int32_t stage;
} timed;

static strata_status time_batch(void *self, lab_arm arm, double *seconds, strata_error *err) {
  const timed *t = self;
  (void)err;
  *seconds = batch(t->bench, t->stage, arm);
  return STRATA_OK;
}

static strata_status warm(void *self, lab_arm arm, strata_error *err) {
  const timed *t = self;
  double end = st_clock_seconds() + WARM_SECONDS, ignored;
  int32_t turn = 0; /* all copies, so that what happens after many calls happens to all */
  do dispatch(t->bench, t->stage, arm, turn++ % LAB_CALLS_MAX, 1);
  while (st_clock_seconds() < end);
  ST_TRY(time_batch(self, arm, &ignored, err));
  return arm == LAB_CAND ? lab_expected_keep(&t->bench->expected, t->stage, LAB_BY_FAST_CAND, err) : STRATA_OK;
}

static strata_status keep(void *self, strata_error *err) {
  const timed *t = self;
  return lab_expected_keep(&t->bench->expected, t->stage, LAB_BY_BASE, err);
}

static strata_status same(void *self, lab_arm arm, bool *same, strata_error *err) {
  const timed *t = self;
  *same = kept_mode(t->bench);
  return *same ? lab_expected_check(&t->bench->expected, t->stage, arm, same, err) : STRATA_OK;
}

strata_status lab_bench_measure(lab_bench *b, int32_t stage, const lab_rule *rule, double seconds,
                                lab_samples *samples, strata_error *err) {
  timed t = {b, stage};
  const lab_timer timer = {&t, warm, time_batch, keep, same};
  const bool has_cand = b->stages[stage < 0 ? 0 : stage].kernels[LAB_CAND].n > 0;
  return lab_rounds(&timer, has_cand, rule, seconds, samples, err);
}
