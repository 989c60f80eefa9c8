/* What is used of the CUDA driver and of NVRTC, in declarations of our own: the
 * program is built without their headers and opens their libraries if they are there.
 *
 * The numbers are those of the libraries' binary interface, which does not change. */
#ifndef ST_CUDA_API_H
#define ST_CUDA_API_H

#include "core/st_error.h"

typedef int cu_result; /* 0 is success */
typedef int cu_device;
typedef unsigned long long cu_pointer;
typedef struct cu_context_st *cu_context;
typedef struct cu_module_st *cu_module;
typedef struct cu_function_st *cu_function;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_graph_st *cu_graph;
typedef struct cu_graph_exec_st *cu_graph_exec;
typedef struct nvrtc_program_st *nvrtc_program;

enum {
  CU_OUT_OF_MEMORY = 2,
  CU_SHARED_BYTES_MAX = 97, /* device attributes */
  CU_PROCESSORS = 16,
  CU_L2_BYTES = 38,
  CU_MAJOR = 75,
  CU_MINOR = 76,
  CU_FUNCTION_SHARED_BYTES = 1, /* function attributes */
  CU_FUNCTION_LOCAL_BYTES = 3,
  CU_FUNCTION_REGISTERS = 4,
  CU_FUNCTION_SHARED_BYTES_MAX = 8,
  CU_LAUNCH_OVERLAPPED = 6, /* launch attribute: programmatic stream serialization */
  CU_STREAM_NON_BLOCKING = 1,
  CU_CAPTURE_THREAD_LOCAL = 1
};

typedef struct cu_launch_attribute {
  int id, unused;
  union {
    int flag;
    unsigned long long bytes[8];
  } value;
} cu_launch_attribute;

typedef struct cu_launch {
  unsigned grid[3], block[3], shared_bytes;
  cu_stream stream;
  cu_launch_attribute *attributes;
  unsigned n_attributes;
} cu_launch;

/* CU(name as called here, exported symbol, arguments) */
#define ST_CUDA_DRIVER_CALLS(CU)                                                                     \
  CU(init, "cuInit", (unsigned flags))                                                               \
  CU(version, "cuDriverGetVersion", (int *version))                                                  \
  CU(error_string, "cuGetErrorString", (cu_result result, const char **text))                        \
  CU(count, "cuDeviceGetCount", (int *count))                                                        \
  CU(device, "cuDeviceGet", (cu_device * device, int ordinal))                                       \
  CU(name, "cuDeviceGetName", (char *name, int n_bytes, cu_device device))                           \
  CU(attribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device device))               \
  CU(total_memory, "cuDeviceTotalMem_v2", (size_t *n_bytes, cu_device device))                       \
  CU(context_retain, "cuDevicePrimaryCtxRetain", (cu_context * context, cu_device device))           \
  CU(context_release, "cuDevicePrimaryCtxRelease_v2", (cu_device device))                            \
  CU(context_use, "cuCtxSetCurrent", (cu_context context))                                           \
  CU(memory_info, "cuMemGetInfo_v2", (size_t *n_free, size_t *n_total))                              \
  CU(alloc, "cuMemAlloc_v2", (cu_pointer * out, size_t n_bytes))                                     \
  CU(free, "cuMemFree_v2", (cu_pointer memory))                                                      \
  CU(upload, "cuMemcpyHtoDAsync_v2", (cu_pointer to, const void *from, size_t n_bytes, cu_stream s)) \
  CU(download, "cuMemcpyDtoHAsync_v2", (void *to, cu_pointer from, size_t n_bytes, cu_stream s))     \
  CU(copy, "cuMemcpyDtoDAsync_v2", (cu_pointer to, cu_pointer from, size_t n_bytes, cu_stream s))    \
  CU(fill, "cuMemsetD8Async", (cu_pointer to, unsigned char value, size_t n_bytes, cu_stream s))     \
  CU(stream_create, "cuStreamCreate", (cu_stream * out, unsigned flags))                             \
  CU(stream_destroy, "cuStreamDestroy_v2", (cu_stream stream))                                       \
  CU(stream_wait, "cuStreamSynchronize", (cu_stream stream))                                         \
  CU(event_create, "cuEventCreate", (cu_event * out, unsigned flags))                                \
  CU(event_destroy, "cuEventDestroy_v2", (cu_event event))                                           \
  CU(event_record, "cuEventRecord", (cu_event event, cu_stream stream))                              \
  CU(event_wait, "cuEventSynchronize", (cu_event event))                                             \
  CU(event_elapsed, "cuEventElapsedTime", (float *milliseconds, cu_event begin, cu_event end))       \
  CU(module_load, "cuModuleLoadData", (cu_module * out, const void *image))                          \
  CU(module_unload, "cuModuleUnload", (cu_module module))                                            \
  CU(function, "cuModuleGetFunction", (cu_function * out, cu_module module, const char *name))       \
  CU(function_set, "cuFuncSetAttribute", (cu_function function, int attribute, int value))           \
  CU(function_get, "cuFuncGetAttribute", (int *value, int attribute, cu_function function))          \
  CU(launch, "cuLaunchKernelEx",                                                                     \
     (const cu_launch *launch, cu_function function, void **parameters, void **extra))               \
  CU(capture_begin, "cuStreamBeginCapture_v2", (cu_stream stream, int mode))                         \
  CU(capture_end, "cuStreamEndCapture", (cu_stream stream, cu_graph * out))                          \
  CU(graph_instantiate, "cuGraphInstantiateWithFlags",                                               \
     (cu_graph_exec * out, cu_graph graph, unsigned long long flags))                                \
  CU(graph_launch, "cuGraphLaunch", (cu_graph_exec graph, cu_stream stream))                         \
  CU(graph_exec_destroy, "cuGraphExecDestroy", (cu_graph_exec graph))                                \
  CU(graph_destroy, "cuGraphDestroy", (cu_graph graph))

#define ST_CUDA_NVRTC_CALLS(CU)                                                               \
  CU(version, "nvrtcVersion", (int *major, int *minor))                                       \
  CU(n_archs, "nvrtcGetNumSupportedArchs", (int *n))                                          \
  CU(archs, "nvrtcGetSupportedArchs", (int *archs))                                           \
  CU(create, "nvrtcCreateProgram",                                                            \
     (nvrtc_program * out, const char *text, const char *name, int n_headers,                 \
      const char *const *headers, const char *const *include_names))                          \
  CU(destroy, "nvrtcDestroyProgram", (nvrtc_program * program))                               \
  CU(compile, "nvrtcCompileProgram", (nvrtc_program program, int n_options, const char *const *options)) \
  CU(log_size, "nvrtcGetProgramLogSize", (nvrtc_program program, size_t *n_bytes))            \
  CU(log, "nvrtcGetProgramLog", (nvrtc_program program, char *log))                           \
  CU(cubin_size, "nvrtcGetCUBINSize", (nvrtc_program program, size_t *n_bytes))               \
  CU(cubin, "nvrtcGetCUBIN", (nvrtc_program program, char *cubin))

#define ST_CUDA_MEMBER(name, symbol, arguments) cu_result(*name) arguments;
typedef struct st_cuda_driver {
  struct st_library *library;
  ST_CUDA_DRIVER_CALLS(ST_CUDA_MEMBER)
} st_cuda_driver;
typedef struct st_cuda_nvrtc {
  struct st_library *library;
  ST_CUDA_NVRTC_CALLS(ST_CUDA_MEMBER)
} st_cuda_nvrtc;
#undef ST_CUDA_MEMBER

/* Opens the library, finds every call in it, and for the driver starts it.
 * UNSUPPORTED with the reason if that fails. The library stays open; close frees
 * nothing that others use. */
strata_status st_cuda_driver_open(st_cuda_driver *out, strata_error *err);
void st_cuda_driver_close(st_cuda_driver *driver);
strata_status st_cuda_nvrtc_open(st_cuda_nvrtc *out, strata_error *err);
void st_cuda_nvrtc_close(st_cuda_nvrtc *nvrtc);

/* ---- compiling -------------------------------------------------------------------- */

struct st_cuda_source;

/* A compiled kernel. */
typedef struct st_cuda_cubin {
  char *bytes;
  size_t n_bytes;
} st_cuda_cubin;

/* arch: "sm_90a". headers are the embedded ones, but for source's. FORMAT if it does not
 * compile: the message has the first error, with its file and line. */
strata_status st_cuda_compile(const st_cuda_nvrtc *nvrtc, const struct st_cuda_source *source,
                              const char *arch, st_cuda_cubin *out, strata_error *err);
void st_cuda_cubin_release(st_cuda_cubin *cubin);

/* The exact name of a chip: 9, 0 gives "sm_90a", the form with its own instructions. */
void st_cuda_arch_name(int major, int minor, char *out, size_t n_bytes);
/* Whether this compiler knows sm_<major><minor>. */
bool st_cuda_nvrtc_knows(const st_cuda_nvrtc *nvrtc, int major, int minor);

/* Adds to hash everything besides the source that decides about its code: the
 * compiler's version, the flags, and all headers. */
strata_status st_cuda_compile_key(const st_cuda_nvrtc *nvrtc, const struct st_cuda_source *source,
                                  const char *arch, char hex[65], strata_error *err);

#endif
