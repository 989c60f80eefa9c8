/* Sets in the device's memory, graphs, and the rounds' view of them. */
#include "lab/lab_cuda_bench.h"

#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "kreg/st_source.h"
#include "lab/lab_cuda.h"
#include "os/st_child.h"
#include "os/st_process.h"

#define WARM_SECONDS 0.05

/* A stage of a set: what the host filled it with, and the device's buffers. */
typedef struct set_stage {
  lab_case host;
  lab_cuda_case device;
} set_stage;

typedef struct bench_set {
  set_stage stages[LAB_STAGES_MAX];
} bench_set;

struct lab_cuda_bench {
  st_cuda *cuda;
  const lab_cuda_stage *stages;
  int32_t n_stages, n_sets, n_calls;
  size_t n_bytes;
  bench_set *sets; /* [LAB_SETS_MAX] */
  lab_expected expected;
  lab_case got[LAB_STAGES_MAX]; /* what was downloaded last */
  st_cuda_module *modules[LAB_STAGES_MAX][LAB_ARMS];
  stk_cuda_launch launches[LAB_STAGES_MAX][LAB_ARMS];
  st_cuda_graph *graphs[LAB_STAGES_MAX + 1][LAB_ARMS]; /* the last row: all stages */
};

/* ---- sets ----------------------------------------------------------------------- */

/* Where a tensor's pointer lies in the args. */
static size_t place_of(const lab_case *c, int32_t i) {
  return (size_t)((const uint8_t *)(const void *)c->tensors[i].slot - (const uint8_t *)c->args);
}

static void link_stages(bench_set *set, int32_t stage) {
  set_stage *to = &set->stages[stage];
  for (int32_t i = 0; i < to->host.n; ++i)
    for (int32_t s = 0; s < stage && to->host.tensors[i].role == STK_IN; ++s) {
      const set_stage *from = &set->stages[s];
      int32_t source = lab_bench_output(&from->host, &to->host.tensors[i]);
      if (source >= 0)
        memcpy(to->device.args.bytes + place_of(&to->host, i), from->device.args.bytes + place_of(&from->host, source),
               sizeof(void *));
    }
}

static strata_status set_init(lab_cuda_bench *b, bench_set *set, uint64_t seed, strata_error *err) {
  const lab_fill fill = {.seed = seed, .poison = LAB_POISON, .guard = 0x5e};
  for (int32_t s = 0; s < b->n_stages; ++s) {
    set_stage *stage = &set->stages[s];
    ST_TRY(lab_case_init(&stage->host, b->stages[s].op, b->stages[s].args->bytes, fill, err));
    ST_TRY(lab_cuda_case_init(b->cuda, &stage->host, &stage->device, err));
    link_stages(set, s);
    for (int32_t i = 0; i < stage->host.n; ++i) b->n_bytes += stage->host.buffers[i].n_bytes;
  }
  return STRATA_OK;
}

/* Uploads again what kernels update, the host's copy of which was never run, and poisons
 * the outputs of what will be timed: those of the batch before would be right, whoever
 * wrote them. */
static strata_status put_back_stage(const lab_cuda_bench *b, const set_stage *stage, bool timed, strata_error *err) {
  for (int32_t i = 0; i < stage->host.n; ++i) {
    const st_guarded *host = &stage->host.buffers[i];
    uint8_t *to = (uint8_t *)stage->device.memory[i] + LAB_GUARD_BYTES;
    if (stage->host.tensors[i].role == STK_INOUT) ST_TRY(st_cuda_upload(b->cuda, to, host->data, host->n_bytes, err));
    if (stage->host.tensors[i].role == STK_OUT && timed && host->n_bytes)
      ST_TRY(st_cuda_fill(b->cuda, to, LAB_POISON, host->n_bytes, err));
  }
  return STRATA_OK;
}

static strata_status put_back(const lab_cuda_bench *b, int32_t stage, strata_error *err) {
  for (int32_t set = 0; set < b->n_sets; ++set)
    for (int32_t s = 0; s < b->n_stages; ++s)
      ST_TRY(put_back_stage(b, &b->sets[set].stages[s], stage < 0 || s == stage, err));
  return STRATA_OK;
}

/* ---- batches -------------------------------------------------------------------- */

static strata_status launch(const lab_cuda_bench *b, int32_t s, lab_arm arm, int32_t set, strata_error *err) {
  return st_cuda_launch(b->cuda, b->modules[s][arm], &b->launches[s][arm], b->sets[set].stages[s].device.args.bytes, err);
}

/* One dispatch of a stage, or of all (-1), on a set. */
static strata_status dispatch(const lab_cuda_bench *b, int32_t stage, lab_arm arm, int32_t set, strata_error *err) {
  for (int32_t s = 0; s < b->n_stages; ++s)
    if (stage < 0 || s == stage) ST_TRY(launch(b, s, arm, set, err));
  return STRATA_OK;
}

static strata_status record(lab_cuda_bench *b, int32_t stage, lab_arm arm, strata_error *err) {
  st_cuda_graph **graph = &b->graphs[stage < 0 ? LAB_STAGES_MAX : stage][arm];
  if (*graph) return STRATA_OK;
  /* The first launch of a kernel sets its attributes, outside of a recording. */
  ST_TRY(dispatch(b, stage, arm, 0, err));
  ST_TRY(st_cuda_wait(b->cuda, err));
  ST_TRY(st_cuda_graph_begin(b->cuda, err));
  strata_status status = STRATA_OK;
  for (int32_t i = 0; i < b->n_calls && status == STRATA_OK; ++i) status = dispatch(b, stage, arm, i % b->n_sets, err);
  strata_status ended = st_cuda_graph_end(b->cuda, graph, status == STRATA_OK ? err : NULL);
  return status == STRATA_OK ? ended : status;
}

static strata_status run_batch(lab_cuda_bench *b, int32_t stage, lab_arm arm, double *seconds, strata_error *err) {
  ST_TRY(record(b, stage, arm, err));
  ST_TRY(put_back(b, stage, err));
  ST_TRY(st_cuda_time_begin(b->cuda, err));
  ST_TRY(st_cuda_graph_run(b->cuda, b->graphs[stage < 0 ? LAB_STAGES_MAX : stage][arm], err));
  return st_cuda_time_end(b->cuda, seconds, err);
}

/* ---- what rounds need ----------------------------------------------------------- */

typedef struct timed {
  lab_cuda_bench *bench;
  int32_t stage;
} timed;

static strata_status time_batch(void *self, lab_arm arm, double *seconds, strata_error *err) {
  const timed *t = self;
  return run_batch(t->bench, t->stage, arm, seconds, err);
}

static strata_status warm(void *self, lab_arm arm, strata_error *err) {
  const timed *t = self;
  const double end = st_clock_seconds() + WARM_SECONDS;
  double ignored;
  do ST_TRY(time_batch(self, arm, &ignored, err));
  while (st_clock_seconds() < end);
  ST_TRY(time_batch(self, arm, &ignored, err));
  return arm == LAB_CAND ? lab_expected_keep(&t->bench->expected, t->stage, LAB_BY_FAST_CAND, err) : STRATA_OK;
}

/* Downloads a stage of a set. */
static strata_status case_at(void *self, int32_t set, int32_t stage, const lab_case **out, strata_error *err) {
  lab_cuda_bench *b = self;
  const set_stage *from = &b->sets[set].stages[stage];
  lab_case *to = &b->got[stage];
  if (!to->op) ST_TRY(lab_case_init(to, from->host.op, b->stages[stage].args->bytes, from->host.fill, err));
  *out = to;
  return lab_cuda_case_download(b->cuda, &from->device, to, err);
}

static strata_status keep(void *self, strata_error *err) {
  const timed *t = self;
  return lab_expected_keep(&t->bench->expected, t->stage, LAB_BY_BASE, err);
}

static strata_status same(void *self, lab_arm arm, bool *same, strata_error *err) {
  const timed *t = self;
  return lab_expected_check(&t->bench->expected, t->stage, arm, same, err);
}

/* ---- the bench ------------------------------------------------------------------ */

static strata_status open_modules(lab_cuda_bench *b, strata_error *err) {
  for (int32_t s = 0; s < b->n_stages; ++s)
    for (int arm = 0; arm < LAB_ARMS; ++arm)
      if (b->stages[s].kernel[arm].plan)
        ST_TRY(lab_cuda_kernel_module(&b->stages[s].kernel[arm], b->stages[s].args->bytes, &b->modules[s][arm],
                                      &b->launches[s][arm], err));
  return STRATA_OK;
}

strata_status lab_cuda_bench_new(st_cuda *cuda, const lab_cuda_stage *stages, int32_t n_stages, int32_t calls,
                                 uint64_t seed, lab_cuda_bench **out, strata_error *err) {
  strata_status status = STRATA_OK;
  const size_t cache_bytes = (size_t)st_cuda_info_of(cuda)->l2_bytes;
  void *memory;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "a benchmark", err));
  lab_cuda_bench *b = memory;
  *b = (lab_cuda_bench){.cuda = cuda, .stages = stages, .n_stages = n_stages};
  ST_TRY_OUT(st_calloc(&memory, LAB_SETS_MAX, sizeof *b->sets, "a benchmark", err));
  b->sets = memory;
  ST_TRY_OUT(open_modules(b, err));
  while (b->n_sets < 2 || (b->n_sets < LAB_SETS_MAX && b->n_bytes < 2 * cache_bytes)) {
    ST_TRY_OUT(set_init(b, &b->sets[b->n_sets], seed + (uint64_t)b->n_sets, err));
    ST_TRY_OUT(dispatch(b, -1, LAB_BASE, b->n_sets++, err)); /* later stages get their inputs */
  }
  b->n_calls = calls > b->n_sets ? calls : b->n_sets;
  b->expected = (lab_expected){.sets = {b, case_at}, .n_sets = b->n_sets, .n_stages = n_stages, .n_calls = b->n_calls};
  for (int32_t s = 0; s < n_stages; ++s) b->expected.fast[s] = stages[s].bound > 0;
  ST_TRY_OUT(st_cuda_wait(cuda, err));
out:
  if (status != STRATA_OK) lab_cuda_bench_free(&b);
  *out = b;
  return status;
}

void lab_cuda_bench_free(lab_cuda_bench **bench) {
  lab_cuda_bench *b = *bench;
  if (!b) return;
  for (int32_t row = 0; row <= LAB_STAGES_MAX; ++row)
    for (int arm = 0; arm < LAB_ARMS; ++arm) st_cuda_graph_close(b->cuda, &b->graphs[row][arm]);
  for (int32_t s = 0; s < LAB_STAGES_MAX; ++s) {
    lab_case_release(&b->got[s]);
    for (int arm = 0; arm < LAB_ARMS; ++arm) st_cuda_module_close(b->cuda, &b->modules[s][arm]);
    for (int32_t set = 0; b->sets && set < LAB_SETS_MAX; ++set) {
      lab_cuda_case_release(b->cuda, &b->sets[set].stages[s].device);
      lab_case_release(&b->sets[set].stages[s].host);
    }
  }
  st_free(b->sets);
  st_free(b);
  *bench = NULL;
}

int32_t lab_cuda_bench_sets(const lab_cuda_bench *b) { return b->n_sets; }
int32_t lab_cuda_bench_calls(const lab_cuda_bench *b) { return b->n_calls; }
size_t lab_cuda_bench_bytes(const lab_cuda_bench *b) { return b->n_bytes; }

stk_work lab_cuda_bench_work(const lab_cuda_bench *b, int32_t stage) {
  stk_work w = {0};
  for (int32_t s = 0; s < b->n_stages; ++s)
    for (int i = 0; i < b->n_calls && (stage < 0 || s == stage); ++i)
      b->stages[s].op->work(b->sets[0].stages[s].host.args, &w);
  return w;
}

strata_status lab_cuda_bench_measure(lab_cuda_bench *b, int32_t stage, const lab_rule *rule, double seconds,
                                     lab_samples *samples, strata_error *err) {
  timed t = {b, stage};
  const lab_timer timer = {&t, warm, time_batch, keep, same};
  return lab_rounds(&timer, b->stages[0].kernel[LAB_CAND].plan != NULL, rule, seconds, samples, err);
}

/* ---- ceilings ------------------------------------------------------------------- */

typedef struct fma_args {
  float *out;
  int32_t n;
} fma_args;

enum { FMA_BLOCKS_A_PROCESSOR = 8, FMA_THREADS = 256, FMA_CHAINS = 8, FMA_STEPS = 1 << 16, REPEATS = 5 };

static strata_status measure_fma(st_cuda *cuda, double *flops_per_s, strata_error *err) {
  strata_status status = STRATA_OK;
  st_source text;
  st_cuda_module *module = NULL;
  void *out = NULL;
  const int32_t blocks = st_cuda_info_of(cuda)->chip.n_processors * FMA_BLOCKS_A_PROCESSOR;
  const stk_cuda_launch launch = {.grid = {(uint32_t)blocks, 1, 1}, .block = FMA_THREADS};
  if (!st_source_find("roof/roof_fma_cuda.cu", &text)) ST_FAIL(err, INTERNAL, "roof_fma_cuda.cu: a source of this program expected");
  const st_cuda_source source = {"roof/roof_fma_cuda.cu", text.text, "roof_fma_cuda", "", NULL};
  ST_TRY_OUT(st_cuda_module_open(cuda, &source, &module, err));
  ST_TRY_OUT(st_cuda_alloc(cuda, (size_t)blocks * FMA_THREADS * sizeof(float), "ceilings", &out, err));
  const fma_args args = {out, FMA_STEPS};
  *flops_per_s = 0;
  for (int i = 0; i < REPEATS; ++i) {
    double seconds;
    ST_TRY_OUT(st_cuda_time_begin(cuda, err));
    ST_TRY_OUT(st_cuda_launch(cuda, module, &launch, &args, err));
    ST_TRY_OUT(st_cuda_time_end(cuda, &seconds, err));
    double rate = 2.0 * FMA_CHAINS * FMA_STEPS * FMA_THREADS * blocks / seconds;
    if (rate > *flops_per_s) *flops_per_s = rate;
  }
out:
  st_cuda_free(cuda, &out);
  st_cuda_module_close(cuda, &module);
  return status;
}

static strata_status measure_copy(st_cuda *cuda, double *bytes_per_s, strata_error *err) {
  enum { COPY_BYTES = 1 << 30 };
  strata_status status = STRATA_OK;
  void *from = NULL, *to = NULL;
  *bytes_per_s = 0;
  ST_TRY_OUT(st_cuda_alloc(cuda, COPY_BYTES, "ceilings", &from, err));
  ST_TRY_OUT(st_cuda_alloc(cuda, COPY_BYTES, "ceilings", &to, err));
  ST_TRY_OUT(st_cuda_fill(cuda, from, 1, COPY_BYTES, err));
  for (int i = 0; i < REPEATS; ++i) {
    double seconds;
    ST_TRY_OUT(st_cuda_time_begin(cuda, err));
    ST_TRY_OUT(st_cuda_copy(cuda, to, from, COPY_BYTES, err));
    ST_TRY_OUT(st_cuda_time_end(cuda, &seconds, err));
    if (2.0 * COPY_BYTES / seconds > *bytes_per_s) *bytes_per_s = 2.0 * COPY_BYTES / seconds;
  }
out:
  st_cuda_free(cuda, &from);
  st_cuda_free(cuda, &to);
  return status;
}

static strata_status describe(const st_cuda_info *info, lab_ceilings *out, strata_error *err) {
  strata_sha256 *hash;
  snprintf(out->machine.cpu, sizeof out->machine.cpu, "%s, %d processors, driver %d.%d", info->name, info->chip.n_processors,
           info->driver_version / 1000, info->driver_version % 1000 / 10);
  out->machine.cache[1].n_bytes = info->l2_bytes;
  out->machine.n_cpus = 1;
  out->n_threads = 1;
  ST_TRY(strata_sha256_new(&hash, err));
  strata_sha256_update(hash, out->machine.cpu, strlen(out->machine.cpu));
  strata_sha256_finish(&hash, out->id);
  return STRATA_OK;
}

static strata_status ceilings_child(void *user, strata_error *err) {
  lab_ceilings *out = user;
  strata_status status = STRATA_OK;
  st_cuda *cuda = NULL;
  double bytes_per_s;
  ST_TRY_OUT(st_cuda_open(0, NULL, &cuda, err));
  ST_TRY_OUT(describe(st_cuda_info_of(cuda), out, err));
  ST_TRY_OUT(measure_fma(cuda, &out->all.flops_per_s, err));
  ST_TRY_OUT(measure_copy(cuda, &bytes_per_s, err));
  out->all.capacity[LAB_DRAM] = INT64_MAX;
  for (int traffic = 0; traffic < ST_TRAFFICS; ++traffic) out->all.bytes_per_s[LAB_DRAM][traffic] = bytes_per_s;
out:
  st_cuda_close(&cuda);
  return status;
}

strata_status lab_cuda_ceilings(lab_ceilings *out, strata_error *err) {
  enum { SECONDS = 120 };
  void *shared;
  st_child_result end;
  ST_TRY(st_shared_new(&shared, sizeof *out, "ceilings", err));
  strata_status status = st_child_run(ceilings_child, shared, SECONDS, &end, err);
  if (status == STRATA_OK && end.end != ST_CHILD_DONE)
    status = st_error_set(err, STRATA_DEVICE, "measuring the GPU: %s", end.end == ST_CHILD_HUNG ? "hung" : end.name);
  memcpy(out, shared, sizeof *out);
  st_shared_free(shared, sizeof *out);
  return status;
}
