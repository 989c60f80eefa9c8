/* The ceilings of this machine, measured with a pool's threads. */
#ifndef ST_ROOF_H
#define ST_ROOF_H

#include "device/cpu/st_pool.h"
#include "os/st_cpu.h"

/* f32 multiply-adds a second (each counted as two operations) at a CPU level. */
strata_status st_roof_flops(st_pool *pool, st_cpu_level level, double *flops_per_s,
                            strata_error *err);
/* Bytes a second when n_bytes (at most 1 GiB) are read again and again. */
strata_status st_roof_read(st_pool *pool, st_cpu_level level, int64_t n_bytes, double *bytes_per_s,
                           strata_error *err);

#endif
