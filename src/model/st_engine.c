/* strata_engine: see strata.h. */
#include "model/st_engine.h"

#include <stdio.h>

#include "core/st_mem.h"
#include "device/cpu/st_roof.h"
#include "os/st_process.h"

static strata_status choose_level(const char *name, st_cpu_level *level, strata_error *err) {
  if (!name) name = st_env_isa();
  if (!name) {
    *level = st_cpu_best();
    return STRATA_OK;
  }
  int found = st_cpu_level_by_name(name);
  if (found < 0) {
    char known[128];
    size_t used = 0;
    for (int i = 0; i < ST_CPU_LEVELS; ++i)
      used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                               st_cpu_level_name((st_cpu_level)i));
    ST_FAIL(err, ARG, "STRATA_ISA: %s: one of %s expected", name, known);
  }
  if (!st_cpu_has((st_cpu_level)found))
    ST_FAIL(err, UNSUPPORTED, "STRATA_ISA: %s: this CPU has only %s", name,
            st_cpu_level_name(st_cpu_best()));
  *level = (st_cpu_level)found;
  return STRATA_OK;
}

strata_status strata_engine_new(const strata_engine_options *options, strata_engine **out,
                                strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory = NULL;
  strata_engine *engine = NULL;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof *engine, "the engine", err));
  engine = memory;
  ST_TRY_OUT(choose_level(options ? options->isa : NULL, &engine->level, err));
  st_kernel_set_choose(&engine->kernels, engine->level);
  int32_t n_threads = options && options->n_threads ? options->n_threads : st_cpu_count();
  ST_TRY_OUT(st_pool_new(n_threads, &engine->pool, err));
  engine->code_bytes = st_process_file_bytes();
  *out = engine;
  engine = NULL;
out:
  strata_engine_free(&engine);
  return status;
}

void strata_engine_free(strata_engine **engine) {
  if (!*engine) return;
  st_pool_free(&(*engine)->pool);
  st_free(*engine);
  *engine = NULL;
}

const char *strata_engine_isa(const strata_engine *engine) {
  return st_cpu_level_name(engine->level);
}

int32_t strata_engine_threads(const strata_engine *engine) {
  return st_pool_threads(engine->pool);
}

strata_status strata_engine_roof(strata_engine *engine, int64_t working_set, strata_roof *out,
                                 strata_error *err) {
  *out = (strata_roof){0};
  out->flops_per_s = st_roof_flops(engine->pool, engine->level);
  return st_roof_memory(engine->pool, engine->level, ST_TRAFFIC_READ, working_set,
                        &out->read_bytes_per_s, err);
}
