/* An NVRTC whose machine code says nothing (fake_driver.h). */
#include <string.h>

#include "device/cuda/st_cuda_api.h"
#include "tests/cuda/fake_driver.h"

#define DECLARE(name, symbol, arguments) FAKE_SHARED cu_result fake_##name arguments __asm__(symbol);
ST_CUDA_NVRTC_CALLS(DECLARE)

static const char code[] = "\177ELF";

cu_result fake_version(int *major, int *minor) { return *major = 99, *minor = 0; }
cu_result fake_n_archs(int *n) { return *n = 1, 0; }
cu_result fake_archs(int *archs) { return archs[0] = 90, 0; }
cu_result fake_create(nvrtc_program *out, const char *text, const char *name, int n_headers, const char *const *headers,
                      const char *const *include_names) {
  (void)name, (void)n_headers, (void)headers, (void)include_names;
  return *out = (nvrtc_program)(uintptr_t)text, 0;
}
cu_result fake_destroy(nvrtc_program *program) { return *program = NULL, 0; }
cu_result fake_compile(nvrtc_program program, int n_options, const char *const *options) {
  return (void)program, (void)n_options, (void)options, 0;
}
cu_result fake_log_size(nvrtc_program program, size_t *n_bytes) { return *n_bytes = 0, (void)program, 0; }
cu_result fake_log(nvrtc_program program, char *log) { return (void)log, (void)program, 0; }
cu_result fake_cubin_size(nvrtc_program program, size_t *n_bytes) { return *n_bytes = sizeof code, (void)program, 0; }
cu_result fake_cubin(nvrtc_program program, char *cubin) { return memcpy(cubin, code, sizeof code), (void)program, 0; }
