/* The machine as its owner would name it: its CPU and its caches. */
#ifndef ST_MACHINE_H
#define ST_MACHINE_H

#include <stdint.h>

typedef struct st_cache {
  int64_t n_bytes;   /* 0: there is none, or it is not known */
  int32_t n_sharing; /* CPUs that share one of it, at least 1 */
} st_cache;

enum { ST_CACHES = 3 };

typedef struct st_machine {
  char cpu[256]; /* "AMD EPYC 9575F, family 26, model 2, stepping 1" */
  st_cache cache[ST_CACHES]; /* of data: the first, second and third level */
  int32_t n_cpus;            /* that this process may run on */
} st_machine;

void st_machine_get(st_machine *out);

#endif
