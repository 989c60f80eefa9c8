/* The engine: threads and the kernels chosen for this CPU. */
#ifndef ST_ENGINE_H
#define ST_ENGINE_H

#include "device/cpu/st_pool.h"
#include "kreg/st_kreg.h"

struct strata_engine {
  st_pool *pool;
  st_cpu_level level;
  st_kernel_set kernels;
  int64_t code_bytes; /* physical memory of code and libraries when the engine was made */
};

#endif
