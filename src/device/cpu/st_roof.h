/* The ceilings of this machine, measured with a pool's threads: each is the best of
 * several short runs, since others share the machine. */
#ifndef ST_ROOF_H
#define ST_ROOF_H

#include "device/cpu/st_pool.h"
#include "os/st_cpu.h"

/* f32 multiply-adds a second (each counted as two operations) at a CPU level. */
double st_roof_flops(st_pool *pool, st_cpu_level level);
/* Multiply-adds of an unsigned and a signed byte a second, counted as two each. */
strata_status st_roof_dot8(st_pool *pool, st_cpu_level level, double *ops_per_s, strata_error *err);

typedef enum st_traffic {
  ST_TRAFFIC_READ,   /* reading */
  ST_TRAFFIC_COPY,   /* from one half to the other; both are counted */
  ST_TRAFFIC_UPDATE, /* reading and writing back in place; both are counted */
  ST_TRAFFICS
} st_traffic;

/* Bytes a second when a working set of n_bytes (at most 1 GiB) is gone through
 * again and again, each thread keeping to its part. */
strata_status st_roof_memory(st_pool *pool, st_cpu_level level, st_traffic traffic, int64_t n_bytes,
                             double *bytes_per_s, strata_error *err);

#endif
