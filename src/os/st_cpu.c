/* CPU levels by cpuid, CPU count by affinity, one variable. */
#include "os/st_cpu.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
/* gcc 12's __builtin_cpu_supports does not know f16c. */
static bool has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#define ST_CPU_F16C has_f16c()
#endif

const char *st_cpu_level_name(st_cpu_level level) {
  static const char *const names[] = {
#define ST_CPU_LEVEL(name, has) #name,
#include "os/st_cpu_levels.inc"
#undef ST_CPU_LEVEL
  };
  return names[level];
}

int st_cpu_level_by_name(const char *name) {
  for (int level = 0; level < ST_CPU_LEVELS; ++level)
    if (strcmp(name, st_cpu_level_name((st_cpu_level)level)) == 0) return level;
  return -1;
}

bool st_cpu_has(st_cpu_level level) {
  switch (level) {
#define ST_CPU_LEVEL(name, has) \
  case ST_CPU_##name:           \
    return has;
#include "os/st_cpu_levels.inc"
#undef ST_CPU_LEVEL
    case ST_CPU_LEVELS: break;
  }
  return false;
}

st_cpu_level st_cpu_best(void) {
  int best = 0;
  for (int level = 0; level < ST_CPU_LEVELS; ++level)
    if (st_cpu_has((st_cpu_level)level)) best = level;
  return (st_cpu_level)best;
}

int32_t st_cpu_count(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? n : 1;
}

const char *st_env_isa(void) {
  const char *value = getenv("STRATA_ISA");
  return value && *value ? value : NULL;
}
