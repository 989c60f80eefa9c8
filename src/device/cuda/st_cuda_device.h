/* The inside of a device, for the sources of src/device/cuda. */
#ifndef ST_CUDA_DEVICE_H
#define ST_CUDA_DEVICE_H

#include "device/cuda/st_cuda.h"
#include "device/cuda/st_cuda_api.h"

struct st_cuda {
  st_cuda_driver driver;
  st_cuda_nvrtc nvrtc;
  st_cuda_info info;
  const st_cuda_sources *sources; /* borrowed */
  char *cache_dir;
  cu_device device;
  cu_context context;
  cu_stream stream;
  cu_event begin, end;
};

struct st_cuda_module {
  cu_module module;
  cu_function function;
  char *entry;
  bool waits; /* for the kernels before it, by itself: it may be launched before they have ended */
  st_cuda_module_info info;
};

strata_status st_cuda_try(const st_cuda *cuda, cu_result result, const char *call, strata_error *err);
#define ST_CUDA_TRY(cuda, result, call) ST_TRY(st_cuda_try((cuda), (result), (call), err))

#endif
