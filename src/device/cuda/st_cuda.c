/* A device: opening it, its memory, launches, graphs, time. */
#include "device/cuda/st_cuda_device.h"

#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "os/st_dir.h"
#include "os/st_file.h"

/* A failed call by its name, with the driver's words for the reason. */
static strata_status failed(const st_cuda_driver *driver, cu_result result, const char *call, strata_error *err) {
  const char *text = NULL;
  driver->error_string(result, &text);
  return st_error_set(err, STRATA_DEVICE, "CUDA: %s: %s (%d)", call, text ? text : "unknown error", result);
}

strata_status st_cuda_try(const st_cuda *cuda, cu_result result, const char *call, strata_error *err) {
  return result == 0 ? STRATA_OK : failed(&cuda->driver, result, call, err);
}

int32_t st_cuda_count(char *why, size_t why_bytes) {
  st_cuda_driver driver;
  strata_error err;
  int n = 0;
  if (st_cuda_driver_open(&driver, &err) != STRATA_OK) {
    snprintf(why, why_bytes, "%s", err.message);
    return 0;
  }
  if (driver.count(&n) != 0 || n < 1) snprintf(why, why_bytes, "the CUDA driver finds no device");
  st_cuda_driver_close(&driver);
  return n > 0 ? n : 0;
}

void strata_gpu_describe(char *text, size_t n_bytes) {
  st_cuda *cuda;
  strata_error err;
  int32_t n = st_cuda_count(text, n_bytes);
  if (n == 0) return;
  if (st_cuda_open(0, NULL, &cuda, &err) != STRATA_OK) {
    snprintf(text, n_bytes, "%s", err.message);
    return;
  }
  const st_cuda_info *info = &cuda->info;
  snprintf(text, n_bytes, "%d x %s, %s, %d processors, %lld MiB, CUDA driver %d.%d, NVRTC %d.%d", n, info->name,
           info->arch, info->chip.n_processors, (long long)(info->memory_bytes >> 20), info->driver_version / 1000,
           info->driver_version % 1000 / 10, info->compiler_version / 1000, info->compiler_version % 1000 / 10);
  st_cuda_close(&cuda);
}

static strata_status read_info(st_cuda *cuda, strata_error *err) {
  const st_cuda_driver *d = &cuda->driver;
  st_cuda_info *info = &cuda->info;
  size_t memory = 0;
  int l2 = 0, major = 0, minor = 0;
  ST_CUDA_TRY(cuda, d->name(info->name, sizeof info->name, cuda->device), "cuDeviceGetName");
  ST_CUDA_TRY(cuda, d->total_memory(&memory, cuda->device), "cuDeviceTotalMem");
  ST_CUDA_TRY(cuda, d->attribute(&info->major, CU_MAJOR, cuda->device), "cuDeviceGetAttribute");
  ST_CUDA_TRY(cuda, d->attribute(&info->minor, CU_MINOR, cuda->device), "cuDeviceGetAttribute");
  ST_CUDA_TRY(cuda, d->attribute(&info->chip.n_processors, CU_PROCESSORS, cuda->device), "cuDeviceGetAttribute");
  ST_CUDA_TRY(cuda, d->attribute(&info->chip.shared_bytes_max, CU_SHARED_BYTES_MAX, cuda->device), "cuDeviceGetAttribute");
  ST_CUDA_TRY(cuda, d->attribute(&l2, CU_L2_BYTES, cuda->device), "cuDeviceGetAttribute");
  ST_CUDA_TRY(cuda, d->version(&info->driver_version), "cuDriverGetVersion");
  cuda->nvrtc.version(&major, &minor);
  info->memory_bytes = (int64_t)memory;
  info->l2_bytes = l2;
  info->compiler_version = 1000 * major + 10 * minor;
  st_cuda_arch_name(info->major, info->minor, info->arch, sizeof info->arch);
  if (!st_cuda_nvrtc_knows(&cuda->nvrtc, info->major, info->minor))
    ST_FAIL(err, UNSUPPORTED, "CUDA: NVRTC %d.%d does not know %s (%s): a newer one expected", major, minor,
            info->arch, info->name);
  return STRATA_OK;
}

static strata_status choose_cache(st_cuda *cuda, const char *given, strata_error *err) {
  char *folder;
  if (given) return st_strndup(&cuda->cache_dir, given, strlen(given), err);
  ST_TRY(st_cache_path(&folder, err));
  strata_status status = st_path_join(&cuda->cache_dir, folder, "cuda", err);
  st_free(folder);
  return status;
}

static strata_status start(st_cuda *cuda, int32_t ordinal, const char *cache_dir, strata_error *err) {
  const st_cuda_driver *d = &cuda->driver;
  int n = 0;
  ST_TRY(st_cuda_driver_open(&cuda->driver, err));
  ST_TRY(st_cuda_nvrtc_open(&cuda->nvrtc, err));
  ST_TRY(choose_cache(cuda, cache_dir, err));
  ST_CUDA_TRY(cuda, d->count(&n), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= n) ST_FAIL(err, UNSUPPORTED, "CUDA device %d: one of %d expected", ordinal, n);
  ST_CUDA_TRY(cuda, d->device(&cuda->device, ordinal), "cuDeviceGet");
  ST_TRY(read_info(cuda, err));
  ST_CUDA_TRY(cuda, d->context_retain(&cuda->context, cuda->device), "cuDevicePrimaryCtxRetain");
  ST_CUDA_TRY(cuda, d->context_use(cuda->context), "cuCtxSetCurrent");
  ST_CUDA_TRY(cuda, d->stream_create(&cuda->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  ST_CUDA_TRY(cuda, d->event_create(&cuda->begin, 0), "cuEventCreate");
  ST_CUDA_TRY(cuda, d->event_create(&cuda->end, 0), "cuEventCreate");
  return STRATA_OK;
}

strata_status st_cuda_open(int32_t ordinal, const char *cache_dir, st_cuda **out, strata_error *err) {
  void *memory;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "a device", err));
  *out = memory;
  strata_status status = start(*out, ordinal, cache_dir, err);
  if (status != STRATA_OK) st_cuda_close(out);
  return status;
}

void st_cuda_use_sources(st_cuda *cuda, const st_cuda_sources *sources) { cuda->sources = sources; }

void st_cuda_close(st_cuda **cuda) {
  st_cuda *c = *cuda;
  if (!c) return;
  if (c->end) c->driver.event_destroy(c->end);
  if (c->begin) c->driver.event_destroy(c->begin);
  if (c->stream) c->driver.stream_destroy(c->stream);
  if (c->context) c->driver.context_release(c->device);
  st_cuda_nvrtc_close(&c->nvrtc);
  st_cuda_driver_close(&c->driver);
  st_free(c->cache_dir);
  st_free(c);
  *cuda = NULL;
}

const st_cuda_info *st_cuda_info_of(const st_cuda *cuda) { return &cuda->info; }

/* ---- memory ---------------------------------------------------------------------- */

static cu_pointer address(const void *memory) { return (cu_pointer)(uintptr_t)memory; }

strata_status st_cuda_alloc(st_cuda *cuda, size_t n_bytes, const char *what, void **out, strata_error *err) {
  cu_pointer memory = 0;
  size_t n_free = 0, n_total = 0;
  *out = NULL;
  cu_result result = cuda->driver.alloc(&memory, n_bytes ? n_bytes : 1);
  if (result == CU_OUT_OF_MEMORY) {
    cuda->driver.memory_info(&n_free, &n_total);
    ST_FAIL(err, NOMEM, "CUDA: %s: %zu bytes: at most the %zu free of %zu expected", what, n_bytes, n_free, n_total);
  }
  ST_CUDA_TRY(cuda, result, "cuMemAlloc");
  *out = (void *)(uintptr_t)memory;
  return STRATA_OK;
}

void st_cuda_free(st_cuda *cuda, void **memory) {
  if (*memory) cuda->driver.free(address(*memory));
  *memory = NULL;
}

strata_status st_cuda_upload(st_cuda *cuda, void *to, const void *from, size_t n_bytes, strata_error *err) {
  ST_CUDA_TRY(cuda, cuda->driver.upload(address(to), from, n_bytes, cuda->stream), "cuMemcpyHtoD");
  return st_cuda_wait(cuda, err);
}

strata_status st_cuda_download(st_cuda *cuda, void *to, const void *from, size_t n_bytes, strata_error *err) {
  ST_CUDA_TRY(cuda, cuda->driver.download(to, address(from), n_bytes, cuda->stream), "cuMemcpyDtoH");
  return st_cuda_wait(cuda, err);
}

strata_status st_cuda_copy(st_cuda *cuda, void *to, const void *from, size_t n_bytes, strata_error *err) {
  ST_CUDA_TRY(cuda, cuda->driver.copy(address(to), address(from), n_bytes, cuda->stream), "cuMemcpyDtoD");
  return STRATA_OK;
}

strata_status st_cuda_fill(st_cuda *cuda, void *to, uint8_t value, size_t n_bytes, strata_error *err) {
  ST_CUDA_TRY(cuda, cuda->driver.fill(address(to), value, n_bytes, cuda->stream), "cuMemsetD8");
  return STRATA_OK;
}

strata_status st_cuda_wait(st_cuda *cuda, strata_error *err) {
  ST_CUDA_TRY(cuda, cuda->driver.stream_wait(cuda->stream), "cuStreamSynchronize");
  return STRATA_OK;
}

/* ---- launches, graphs, time ---------------------------------------------------------- */

strata_status st_cuda_launch(st_cuda *cuda, const st_cuda_module *module, const stk_cuda_launch *launch,
                             const void *args, strata_error *err) {
  void *parameters[] = {(void *)(uintptr_t)args};
  if ((int64_t)launch->shared_bytes > cuda->info.chip.shared_bytes_max)
    ST_FAIL(err, UNSUPPORTED, "%s: shared memory: %u bytes a block: at most the device's %d expected",
            module->entry, launch->shared_bytes, cuda->info.chip.shared_bytes_max);
  ST_CUDA_TRY(cuda, cuda->driver.function_set(module->function, CU_FUNCTION_SHARED_BYTES_MAX, (int)launch->shared_bytes),
              module->entry);
  cu_launch_attribute overlapped = {.id = CU_LAUNCH_OVERLAPPED, .value.flag = 1};
  const cu_launch how = {.grid = {launch->grid[0], launch->grid[1], launch->grid[2]}, .block = {launch->block, 1, 1},
                         .shared_bytes = launch->shared_bytes, .stream = cuda->stream, .attributes = &overlapped,
                         .n_attributes = module->waits};
  ST_CUDA_TRY(cuda, cuda->driver.launch(&how, module->function, parameters, NULL), module->entry);
  return STRATA_OK;
}

strata_status st_cuda_graph_begin(st_cuda *cuda, strata_error *err) {
  ST_CUDA_TRY(cuda, cuda->driver.capture_begin(cuda->stream, CU_CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture");
  return STRATA_OK;
}

strata_status st_cuda_graph_end(st_cuda *cuda, st_cuda_graph **out, strata_error *err) {
  cu_graph graph = NULL;
  cu_graph_exec exec = NULL;
  *out = NULL;
  ST_CUDA_TRY(cuda, cuda->driver.capture_end(cuda->stream, &graph), "cuStreamEndCapture");
  cu_result result = cuda->driver.graph_instantiate(&exec, graph, 0);
  cuda->driver.graph_destroy(graph);
  ST_CUDA_TRY(cuda, result, "cuGraphInstantiate");
  *out = (st_cuda_graph *)(void *)exec;
  return STRATA_OK;
}

strata_status st_cuda_graph_run(st_cuda *cuda, const st_cuda_graph *graph, strata_error *err) {
  ST_CUDA_TRY(cuda, cuda->driver.graph_launch((cu_graph_exec)(uintptr_t)graph, cuda->stream), "cuGraphLaunch");
  return STRATA_OK;
}

void st_cuda_graph_close(st_cuda *cuda, st_cuda_graph **graph) {
  if (*graph) cuda->driver.graph_exec_destroy((cu_graph_exec)(uintptr_t)*graph);
  *graph = NULL;
}

strata_status st_cuda_time_begin(st_cuda *cuda, strata_error *err) {
  ST_CUDA_TRY(cuda, cuda->driver.event_record(cuda->begin, cuda->stream), "cuEventRecord");
  return STRATA_OK;
}

strata_status st_cuda_time_end(st_cuda *cuda, double *seconds, strata_error *err) {
  float milliseconds = 0.0f;
  ST_CUDA_TRY(cuda, cuda->driver.event_record(cuda->end, cuda->stream), "cuEventRecord");
  ST_CUDA_TRY(cuda, cuda->driver.event_wait(cuda->end), "cuEventSynchronize");
  ST_CUDA_TRY(cuda, cuda->driver.event_elapsed(&milliseconds, cuda->begin, cuda->end), "cuEventElapsedTime");
  *seconds = milliseconds / 1e3;
  return STRATA_OK;
}
