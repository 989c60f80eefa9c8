/* The calls of the driver (fake_driver.h). Everything is done at once. */
#include "tests/cuda/fake_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda/st_cuda_api.h"

/* Under the names that st_cuda_libraries.c looks for. */
#define DECLARE(name, symbol, arguments) FAKE_SHARED cu_result fake_##name arguments __asm__(symbol);
ST_CUDA_DRIVER_CALLS(DECLARE)

enum { FAILED = 719, NOT_FOUND = 500, ARGS_MAX = 1024 };

/* A launch that waits in a graph. */
typedef struct recorded {
  struct recorded *next;
  const fake_kernel *kernel;
  stk_cuda_launch launch;
  unsigned char args[ARGS_MAX];
} recorded;

static struct {
  recorded *first, **last; /* while a graph is recorded */
  const char *wrong;
} fake;

/* Handles are never looked into. */
static void *handle(void) { return &fake; }

cu_result fake_init(unsigned flags) { return (void)flags, 0; }
cu_result fake_version(int *version) { return *version = 13000, 0; }
cu_result fake_error_string(cu_result result, const char **text) {
  *text = fake.wrong ? fake.wrong : "refused";
  return (void)result, 0;
}

cu_result fake_count(int *count) { return *count = 1, 0; }
cu_result fake_device(cu_device *device, int ordinal) { return *device = ordinal, 0; }
cu_result fake_name(char *name, int n_bytes, cu_device device) {
  snprintf(name, (size_t)n_bytes, "an emulated device");
  return (void)device, 0;
}
cu_result fake_attribute(int *value, int attribute, cu_device device) {
  switch (attribute) {
    case CU_SHARED_BYTES_MAX: *value = 227 << 10; break;
    case CU_PROCESSORS: *value = 1; break;
    case CU_L2_BYTES: *value = 1 << 20; break;
    case CU_MAJOR: *value = 9; break;
    default: *value = 0; break;
  }
  return (void)device, 0;
}
cu_result fake_total_memory(size_t *n_bytes, cu_device device) { return *n_bytes = (size_t)1 << 30, (void)device, 0; }
cu_result fake_context_retain(cu_context *context, cu_device device) { return *context = handle(), (void)device, 0; }
cu_result fake_context_release(cu_device device) { return (void)device, 0; }
cu_result fake_context_use(cu_context context) { return (void)context, 0; }

/* ---- memory ---------------------------------------------------------------------- */

cu_result fake_memory_info(size_t *n_free, size_t *n_total) { return *n_free = *n_total = (size_t)1 << 30, 0; }
cu_result fake_alloc(cu_pointer *out, size_t n_bytes) {
  void *memory;
  if (posix_memalign(&memory, 256, n_bytes)) return CU_OUT_OF_MEMORY;
  memset(memory, 0xdd, n_bytes);
  *out = (cu_pointer)(uintptr_t)memory;
  ++fake_open.memories;
  return 0;
}
cu_result fake_free(cu_pointer memory) {
  free((void *)(uintptr_t)memory);
  --fake_open.memories;
  return 0;
}
cu_result fake_upload(cu_pointer to, const void *from, size_t n_bytes, cu_stream s) {
  memcpy((void *)(uintptr_t)to, from, n_bytes);
  return (void)s, 0;
}
cu_result fake_download(void *to, cu_pointer from, size_t n_bytes, cu_stream s) {
  memcpy(to, (const void *)(uintptr_t)from, n_bytes);
  return (void)s, 0;
}
cu_result fake_copy(cu_pointer to, cu_pointer from, size_t n_bytes, cu_stream s) {
  memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, n_bytes);
  return (void)s, 0;
}
cu_result fake_fill(cu_pointer to, unsigned char value, size_t n_bytes, cu_stream s) {
  memset((void *)(uintptr_t)to, value, n_bytes);
  return (void)s, 0;
}

/* ---- time ------------------------------------------------------------------------ */

cu_result fake_stream_create(cu_stream *out, unsigned flags) { return *out = handle(), (void)flags, 0; }
cu_result fake_stream_destroy(cu_stream stream) { return (void)stream, 0; }
cu_result fake_stream_wait(cu_stream stream) { return (void)stream, 0; }

cu_result fake_event_create(cu_event *out, unsigned flags) {
  *out = malloc(sizeof(struct timespec));
  return (void)flags, *out ? 0 : CU_OUT_OF_MEMORY;
}
cu_result fake_event_destroy(cu_event event) { return free(event), 0; }
cu_result fake_event_record(cu_event event, cu_stream stream) {
  clock_gettime(CLOCK_MONOTONIC, (struct timespec *)(void *)event);
  return (void)stream, 0;
}
cu_result fake_event_wait(cu_event event) { return (void)event, 0; }
cu_result fake_event_elapsed(float *milliseconds, cu_event begin, cu_event end) {
  const struct timespec *a = (const void *)begin, *b = (const void *)end;
  *milliseconds = (float)(1e3 * (double)(b->tv_sec - a->tv_sec) + 1e-6 * (double)(b->tv_nsec - a->tv_nsec));
  return 0;
}

/* ---- kernels --------------------------------------------------------------------- */

cu_result fake_module_load(cu_module *out, const void *image) {
  ++fake_open.modules;
  return *out = handle(), (void)image, 0;
}
cu_result fake_module_unload(cu_module module) { return --fake_open.modules, (void)module, 0; }
cu_result fake_function(cu_function *out, cu_module module, const char *name) {
  *out = (cu_function)(uintptr_t)fake_driver_find(name);
  return (void)module, *out ? 0 : NOT_FOUND;
}
cu_result fake_function_set(cu_function function, int attribute, int value) {
  return (void)function, (void)attribute, (void)value, 0;
}
cu_result fake_function_get(int *value, int attribute, cu_function function) {
  return *value = 1, (void)attribute, (void)function, 0;
}

static cu_result run(const fake_kernel *kernel, void *args, const stk_cuda_launch *launch) {
  fake.wrong = fake_driver_run(kernel, args, launch);
  return fake.wrong ? FAILED : 0;
}

cu_result fake_launch(const cu_launch *how, cu_function function, void **parameters, void **extra) {
  const fake_kernel *kernel = (const void *)function;
  const stk_cuda_launch launch = {.grid = {how->grid[0], how->grid[1], how->grid[2]}, .block = how->block[0],
                                  .shared_bytes = how->shared_bytes};
  (void)extra;
  for (unsigned i = 0; i < how->n_attributes; ++i)
    fake_open.overlapped += how->attributes[i].id == CU_LAUNCH_OVERLAPPED && how->attributes[i].value.flag;
  if (!fake.last) return run(kernel, parameters[0], &launch);
  recorded *r = calloc(1, sizeof *r);
  if (!r || kernel->args_bytes > ARGS_MAX) return CU_OUT_OF_MEMORY;
  *r = (recorded){.kernel = kernel, .launch = launch};
  memcpy(r->args, parameters[0], kernel->args_bytes);
  *fake.last = r;
  fake.last = &r->next;
  return 0;
}

/* ---- graphs: a list of launches, the same before and after it is made ready ------------- */

cu_result fake_capture_begin(cu_stream stream, int mode) {
  fake.first = NULL;
  fake.last = &fake.first;
  return (void)stream, (void)mode, 0;
}
cu_result fake_capture_end(cu_stream stream, cu_graph *out) {
  *out = (cu_graph)(void *)fake.first;
  fake.last = NULL;
  ++fake_open.graphs;
  return (void)stream, 0;
}
cu_result fake_graph_instantiate(cu_graph_exec *out, cu_graph graph, unsigned long long flags) {
  return *out = (cu_graph_exec)(void *)graph, (void)flags, 0;
}
cu_result fake_graph_launch(cu_graph_exec graph, cu_stream stream) {
  cu_result result = 0;
  (void)stream;
  for (recorded *r = (void *)graph; r && result == 0; r = r->next) result = run(r->kernel, r->args, &r->launch);
  return result;
}
cu_result fake_graph_exec_destroy(cu_graph_exec graph) {
  for (recorded *r = (void *)graph, *next; r; r = next) {
    next = r->next;
    free(r);
  }
  --fake_open.graphs;
  return 0;
}
cu_result fake_graph_destroy(cu_graph graph) { return (void)graph, 0; }
