/* The ceilings of this machine, as tables and as JSON. */
#include <stdio.h>
#include <time.h>

#include "cli_lab.h"
#include "cli_term.h"
#include "core/st_error.h"

strata_status cli_lab_level(st_cpu_level *out, strata_error *err) {
  st_cpu_level best = st_cpu_best();
  int named = st_env_isa() ? st_cpu_level_by_name(st_env_isa()) : (int)best;
  if (named < 0 || named > (int)best)
    ST_FAIL(err, ARG, "STRATA_ISA: %s: a level of this CPU expected", st_env_isa());
  *out = (st_cpu_level)named;
  return STRATA_OK;
}

strata_status cli_lab_ceilings(const cli_ceilings_args *args, int32_t n_threads, lab_ceilings *out,
                               strata_error *err) {
  st_cpu_level level;
  st_pool *pool;
  ST_TRY(cli_lab_level(&level, err));
  ST_TRY(st_pool_new(n_threads ? n_threads : st_cpu_count(), &pool, err));
  strata_status status = lab_ceilings_get(pool, level, args->cache, args->fresh, out, err);
  st_pool_free(&pool);
  if (status != STRATA_OK) return status;
  if (lab_ceilings_doubtful(out))
    cli_note("%d threads did %.2f times what one did: others seem to use the machine; these "
             "ceilings are not kept", out->n_threads, out->all.flops_per_s / out->one.flops_per_s);
  else if (!out->kept)
    cli_note("the ceilings could not be kept: --cache DIR names a directory for them");
  return STRATA_OK;
}

/* "2026-11-30T00:12:00Z" */
static void format_time(int64_t seconds, char out[32]) {
  time_t at = (time_t)seconds;
  struct tm utc;
  out[0] = 0;
  if (gmtime_r(&at, &utc)) strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

void cli_lab_print_machine(const lab_ceilings *c) {
  char when[32];
  format_time(c->measured_at, when);
  printf("%s; %s, %d threads; measured %s\n", c->machine.cpu, st_cpu_level_name(c->level),
         c->n_threads, when);
}

static void print_rates(const char *title, const lab_rates *r) {
  printf("%s: %.1f GFLOP/s multiply-adds of f32, %.1f GOP/s of bytes\n", title, 1e-9 * r->flops_per_s,
         1e-9 * r->dot8_per_s);
  printf("  %-6s %12s %10s %10s %10s  GB/s\n", "memory", "working set", "read", "copy", "update");
  for (int m = 0; m < LAB_MEMORIES; m++)
    if (r->capacity[m])
      printf("  %-6s %8lld KiB %10.1f %10.1f %10.1f\n", lab_memory_name((lab_memory)m),
             (long long)(r->measured_bytes[m] / 1024), 1e-9 * r->bytes_per_s[m][ST_TRAFFIC_READ],
             1e-9 * r->bytes_per_s[m][ST_TRAFFIC_COPY], 1e-9 * r->bytes_per_s[m][ST_TRAFFIC_UPDATE]);
}

void cli_lab_print_ceilings(const lab_ceilings *c) {
  char title[32];
  print_rates("one thread", &c->one);
  if (c->n_threads == 1) return;
  snprintf(title, sizeof title, "%d threads", c->n_threads);
  print_rates(title, &c->all);
}

static json_t *rates_json(const lab_rates *r) {
  json_t *memory = json_object();
  for (int m = 0; m < LAB_MEMORIES; m++)
    if (r->capacity[m])
      json_object_set_new(
          memory, lab_memory_name((lab_memory)m),
          json_pack("{s:I, s:o, s:o, s:o}", "working_set_bytes", (json_int_t)r->measured_bytes[m],
                    "read_bytes_per_second", cli_json_number(r->bytes_per_s[m][ST_TRAFFIC_READ]),
                    "copy_bytes_per_second", cli_json_number(r->bytes_per_s[m][ST_TRAFFIC_COPY]),
                    "update_bytes_per_second", cli_json_number(r->bytes_per_s[m][ST_TRAFFIC_UPDATE])));
  return json_pack("{s:o, s:o, s:o}", "flops_per_second", cli_json_number(r->flops_per_s),
                   "dot8_per_second", cli_json_number(r->dot8_per_s), "memory", memory);
}

json_t *cli_lab_ceilings_json(const lab_ceilings *c) {
  char when[32];
  format_time(c->measured_at, when);
  return json_pack("{s:s, s:s, s:i, s:s, s:i, s:[I, I, I], s:s, s:b, s:o, s:o}", "cpu",
                   c->machine.cpu, "id", c->id, "cpus", (int)c->machine.n_cpus, "level",
                   st_cpu_level_name(c->level), "threads", (int)c->n_threads, "cache_bytes",
                   (json_int_t)c->machine.cache[0].n_bytes, (json_int_t)c->machine.cache[1].n_bytes,
                   (json_int_t)c->machine.cache[2].n_bytes, "measured", when, "kept", (int)c->kept,
                   "one_thread", rates_json(&c->one), "all_threads", rates_json(&c->all));
}

const char *cli_lab_bound(const lab_floor *floor) {
  return floor->compute_s >= floor->memory_s ? "operations" : lab_memory_name(floor->memory);
}
