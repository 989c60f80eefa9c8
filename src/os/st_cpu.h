/* What this CPU can do, how many of them there are, and the environment. */
#ifndef ST_CPU_H
#define ST_CPU_H

#include <stdbool.h>
#include <stdint.h>

typedef enum st_cpu_level {
#define ST_CPU_LEVEL(name, has) ST_CPU_##name,
#include "os/st_cpu_levels.inc"
#undef ST_CPU_LEVEL
  ST_CPU_LEVELS
} st_cpu_level;

const char *st_cpu_level_name(st_cpu_level level);
/* -1 if there is no such level in this build. */
int st_cpu_level_by_name(const char *name);
bool st_cpu_has(st_cpu_level level);
st_cpu_level st_cpu_best(void);
/* CPUs this process may run on, at least 1. */
int32_t st_cpu_count(void);
/* The value of STRATA_ISA, or NULL: the only variable the library reads. */
const char *st_env_isa(void);

#endif
