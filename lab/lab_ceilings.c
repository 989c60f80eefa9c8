/* Measuring the ceilings, keeping them in a file, and floors from them. */
#include "lab/lab_ceilings.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/st_mem.h"
#include "os/st_dir.h"
#include "os/st_file.h"

/* The Makefile hashes the sources that measure, so that what they measured before a
 * change is not taken for what they would measure now. */
#ifndef LAB_ROOF_SOURCES
#error "the Makefile names the hash of the roof's sources"
#endif

static const int64_t MIB = 1024 * 1024;

const char *lab_memory_name(lab_memory memory) {
  static const char *const names[] = {"L1", "L2", "L3", "DRAM"};
  return names[memory];
}

/* ---- which machine ------------------------------------------------------------- */

static strata_status identify(lab_ceilings *c, strata_error *err) {
  char text[640];
  strata_sha256 *hash;
  const st_cache *cache = c->machine.cache;
  int n = snprintf(text, sizeof text, "%s; caches %lld/%d %lld/%d %lld/%d; %d CPUs; %s, %d threads; %s",
                   c->machine.cpu, (long long)cache[0].n_bytes, cache[0].n_sharing,
                   (long long)cache[1].n_bytes, cache[1].n_sharing, (long long)cache[2].n_bytes,
                   cache[2].n_sharing, c->machine.n_cpus, st_cpu_level_name(c->level), c->n_threads,
                   LAB_ROOF_SOURCES);
  ST_TRY(strata_sha256_new(&hash, err));
  strata_sha256_update(hash, text, (size_t)n);
  strata_sha256_finish(&hash, c->id);
  return STRATA_OK;
}

/* ---- working sets --------------------------------------------------------------- */

/* What n_threads threads have of a cache together. */
static int64_t capacity_of(const st_cache *cache, int32_t n_threads) {
  return cache->n_bytes * ((n_threads + cache->n_sharing - 1) / cache->n_sharing);
}

/* A working set that is surely in a level: half of it, so that other data have room,
 * but well above the level before. Main memory: four times the last cache. */
static void choose_sizes(const st_machine *machine, int32_t n_threads, lab_rates *rates) {
  int64_t last = 0;
  for (int m = LAB_L1; m <= LAB_L3; ++m) {
    int64_t capacity = capacity_of(&machine->cache[m], n_threads);
    if (capacity <= last) continue;
    rates->capacity[m] = capacity;
    rates->measured_bytes[m] = capacity / 2 > 2 * last ? capacity / 2 : (capacity + last) / 2;
    last = capacity;
  }
  int64_t size = 4 * last > 256 * MIB ? 4 * last : 256 * MIB;
  rates->measured_bytes[LAB_DRAM] = size < 1024 * MIB ? size : 1024 * MIB;
  rates->capacity[LAB_DRAM] = INT64_MAX;
}

/* ---- measuring ------------------------------------------------------------------ */

static strata_status measure_rates(st_pool *pool, const lab_ceilings *c, lab_rates *rates,
                                   strata_error *err) {
  *rates = (lab_rates){.flops_per_s = st_roof_flops(pool, c->level)};
  ST_TRY(st_roof_dot8(pool, c->level, &rates->dot8_per_s, err));
  choose_sizes(&c->machine, st_pool_threads(pool), rates);
  for (int m = 0; m < LAB_MEMORIES; ++m)
    for (int traffic = 0; traffic < ST_TRAFFICS && rates->capacity[m]; ++traffic)
      ST_TRY(st_roof_memory(pool, c->level, (st_traffic)traffic, rates->measured_bytes[m],
                            &rates->bytes_per_s[m][traffic], err));
  return STRATA_OK;
}

static strata_status measure(st_pool *pool, lab_ceilings *c, strata_error *err) {
  st_pool *single;
  ST_TRY(measure_rates(pool, c, &c->all, err));
  c->measured_at = (int64_t)time(NULL);
  c->one = c->all;
  if (c->n_threads == 1) return STRATA_OK;
  ST_TRY(st_pool_new(1, &single, err));
  strata_status status = measure_rates(single, c, &c->one, err);
  st_pool_free(&single);
  return status;
}

bool lab_ceilings_doubtful(const lab_ceilings *c) {
  return c->n_threads > 1 && c->n_threads <= c->machine.n_cpus &&
         c->all.flops_per_s < 1.5 * c->one.flops_per_s;
}

/* ---- keeping -------------------------------------------------------------------- */

static json_t *rates_json(const lab_rates *r) {
  json_t *memory = json_array();
  for (int m = 0; m < LAB_MEMORIES; ++m)
    json_array_append_new(
        memory, json_pack("[f, f, f]", r->bytes_per_s[m][0], r->bytes_per_s[m][1], r->bytes_per_s[m][2]));
  return json_pack("{s:f, s:f, s:o}", "flops_per_s", r->flops_per_s, "dot8_per_s", r->dot8_per_s,
                   "bytes_per_s", memory);
}

/* One rate of a file: a positive number, or 0 for a level that is not there. */
static bool take_rate(json_t *value, bool there, double *out) {
  *out = json_is_number(value) ? json_number_value(value) : -1;
  return there ? isfinite(*out) && *out > 0 : *out == 0;
}

static bool take_rates(json_t *root, lab_rates *r) {
  json_t *memory = json_object_get(root, "bytes_per_s");
  bool good = take_rate(json_object_get(root, "flops_per_s"), true, &r->flops_per_s) &&
              take_rate(json_object_get(root, "dot8_per_s"), true, &r->dot8_per_s);
  for (size_t m = 0; m < LAB_MEMORIES; ++m)
    for (size_t i = 0; i < ST_TRAFFICS; ++i)
      good = good && take_rate(json_array_get(json_array_get(memory, m), i), r->capacity[m] > 0,
                               &r->bytes_per_s[m][i]);
  return good;
}

/* False: there is no file that fits; the caller measures. */
static bool load(lab_ceilings *c, const char *path) {
  json_error_t error;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  const char *id = json_string_value(json_object_get(root, "id"));
  json_t *at = json_object_get(root, "measured_at");
  choose_sizes(&c->machine, 1, &c->one);
  choose_sizes(&c->machine, c->n_threads, &c->all);
  bool good = id && strcmp(id, c->id) == 0 && json_is_integer(at) && json_integer_value(at) > 0 &&
              take_rates(json_object_get(root, "one"), &c->one) &&
              take_rates(json_object_get(root, "all"), &c->all);
  c->measured_at = json_integer_value(at);
  json_decref(root);
  return good;
}

static strata_status keep(const lab_ceilings *c, const char *directory, const char *path,
                          strata_error *err) {
  strata_status status;
  st_writer *writer = NULL;
  json_t *root = json_pack("{s:s, s:s, s:s, s:i, s:I, s:o, s:o}", "id", c->id, "cpu", c->machine.cpu,
                           "level", st_cpu_level_name(c->level), "threads", c->n_threads,
                           "measured_at", (json_int_t)c->measured_at, "one", rates_json(&c->one),
                           "all", rates_json(&c->all));
  char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
  json_decref(root);
  if (!text) return st_error_nomem(err, "the ceilings", 4096);
  ST_TRY_OUT(st_dir_make_private(directory, err));
  ST_TRY_OUT(st_writer_open(path, &writer, err));
  ST_TRY_OUT(st_writer_write(writer, text, strlen(text), err));
  ST_TRY_OUT(st_writer_commit(writer, err));
out:
  st_writer_close(&writer);
  free(text);
  return status;
}

strata_status lab_ceilings_get(st_pool *pool, st_cpu_level level, const char *directory, bool fresh,
                               lab_ceilings *out, strata_error *err) {
  strata_status status = STRATA_OK;
  char *home = NULL, *own = NULL, *path = NULL, name[32];
  *out = (lab_ceilings){.level = level, .n_threads = st_pool_threads(pool)};
  st_machine_get(&out->machine);
  ST_TRY(identify(out, err));
  snprintf(name, sizeof name, "ceilings-%.16s.json", out->id);
  /* A user without a home has ceilings too; they are not kept. */
  if (!directory && st_cache_path(&home, NULL) == STRATA_OK &&
      st_path_join(&own, home, "ceilings", NULL) == STRATA_OK)
    directory = own;
  if (directory) ST_TRY_OUT(st_path_join(&path, directory, name, err));
  out->kept = path && !fresh && load(out, path);
  if (out->kept) goto out;
  ST_TRY_OUT(measure(pool, out, err));
  out->kept = path && !lab_ceilings_doubtful(out) && keep(out, directory, path, NULL) == STRATA_OK;
out:
  st_free(home);
  st_free(own);
  st_free(path);
  return status;
}

/* ---- floors --------------------------------------------------------------------- */

lab_memory lab_memory_of(const lab_rates *rates, double working_set_bytes) {
  int m = LAB_L1;
  while (m < LAB_DRAM && working_set_bytes > (double)rates->capacity[m]) ++m;
  return (lab_memory)m;
}

/* Seconds for all bytes of some work at one level. */
static double memory_seconds(const double *rate, const stk_work *work) {
  const double state_rate = fmax(rate[ST_TRAFFIC_READ], rate[ST_TRAFFIC_UPDATE]);
  return work->weight_bytes / rate[ST_TRAFFIC_READ] + work->state_bytes / state_rate +
         work->io_bytes / fmax(state_rate, rate[ST_TRAFFIC_COPY]);
}

lab_floor lab_floor_split(const lab_rates *rates, const stk_work *near, double near_bytes,
                          const stk_work *far, double far_bytes) {
  const lab_memory here = lab_memory_of(rates, near_bytes), there = lab_memory_of(rates, far_bytes);
  const double far_s = memory_seconds(rates->bytes_per_s[there], far);
  const double near_s = memory_seconds(rates->bytes_per_s[here], near) +
                        memory_seconds(rates->bytes_per_s[here], far);
  lab_floor floor = {.compute_s = (near->flops + far->flops) / rates->flops_per_s,
                     .memory_s = fmax(near_s, far_s),
                     .memory = far_s > near_s ? there : here};
  floor.seconds = fmax(floor.compute_s, floor.memory_s);
  return floor;
}

lab_floor lab_floor_of(const lab_rates *rates, const stk_work *work, double working_set_bytes) {
  return lab_floor_split(rates, work, working_set_bytes, &(stk_work){0}, 0);
}

strata_status lab_rates_refine(st_pool *pool, st_cpu_level level, int64_t working_set_bytes,
                               lab_rates *rates, strata_error *err) {
  double *rate = rates->bytes_per_s[lab_memory_of(rates, (double)working_set_bytes)];
  if (working_set_bytes < 1 || working_set_bytes > 1024 * MIB) return STRATA_OK;
  ST_TRY(st_roof_memory(pool, level, ST_TRAFFIC_READ, working_set_bytes, &rate[ST_TRAFFIC_READ], err));
  return st_roof_memory(pool, level, ST_TRAFFIC_UPDATE, working_set_bytes, &rate[ST_TRAFFIC_UPDATE], err);
}
