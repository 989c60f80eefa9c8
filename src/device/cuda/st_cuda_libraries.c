/* Opening libcuda and libnvrtc. */
#include <stdio.h>

#include "device/cuda/st_cuda_api.h"
#include "os/st_library.h"

/* Names without a folder are looked up where the system looks; the toolkit's usual
 * folders come after. */
static const char *const driver_names[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", NULL};
static const char *const nvrtc_names[] = {
    "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13",
    "/usr/local/cuda/lib64/libnvrtc.so.12", "/usr/local/cuda/lib/libnvrtc.so.13",
    "/usr/local/cuda/lib/libnvrtc.so.12", NULL};

static strata_status open_first(const char *const *names, const char *what, st_library **out, strata_error *err) {
  strata_error first = {0}, why;
  for (int i = 0; names[i]; ++i)
    if (st_library_open(names[i], out, i ? &why : &first) == STRATA_OK) return STRATA_OK;
  ST_FAIL(err, UNSUPPORTED, "%s: %s", what, first.message);
}

static strata_status missing(const char *what, const char *symbol, strata_error *err) {
  ST_FAIL(err, UNSUPPORTED, "%s: it has no %s: a newer one expected", what, symbol);
}

/* An object pointer into a function pointer, as POSIX has it. */
#define FIND(call, symbol, arguments)                             \
  *(void **)(void *)&out->call = st_library_symbol(out->library, symbol); \
  if (!out->call) return missing(what, symbol, err);

static strata_status find_driver(st_cuda_driver *out, strata_error *err) {
  static const char what[] = "the CUDA driver";
  ST_TRY(open_first(driver_names, what, &out->library, err));
  ST_CUDA_DRIVER_CALLS(FIND)
  cu_result result = out->init(0);
  if (result == 0) return STRATA_OK;
  const char *text = NULL;
  out->error_string(result, &text);
  ST_FAIL(err, UNSUPPORTED, "%s: it does not start: %s (%d)", what, text ? text : "unknown error", result);
}

static strata_status find_nvrtc(st_cuda_nvrtc *out, strata_error *err) {
  static const char what[] = "CUDA's run-time compiler";
  ST_TRY(open_first(nvrtc_names, what, &out->library, err));
  ST_CUDA_NVRTC_CALLS(FIND)
  return STRATA_OK;
}

strata_status st_cuda_driver_open(st_cuda_driver *out, strata_error *err) {
  *out = (st_cuda_driver){0};
  strata_status status = find_driver(out, err);
  if (status != STRATA_OK) st_cuda_driver_close(out);
  return status;
}

void st_cuda_driver_close(st_cuda_driver *driver) { st_library_close(&driver->library); }

strata_status st_cuda_nvrtc_open(st_cuda_nvrtc *out, strata_error *err) {
  *out = (st_cuda_nvrtc){0};
  strata_status status = find_nvrtc(out, err);
  if (status != STRATA_OK) st_cuda_nvrtc_close(out);
  return status;
}

void st_cuda_nvrtc_close(st_cuda_nvrtc *nvrtc) { st_library_close(&nvrtc->library); }

void st_cuda_arch_name(int major, int minor, char *out, size_t n_bytes) {
  snprintf(out, n_bytes, "sm_%d%d%s", major, minor, major >= 9 ? "a" : "");
}

bool st_cuda_nvrtc_knows(const st_cuda_nvrtc *nvrtc, int major, int minor) {
  int n = 0, archs[128];
  if (nvrtc->n_archs(&n) != 0 || n > 128 || nvrtc->archs(archs) != 0) return false;
  for (int i = 0; i < n; ++i)
    if (archs[i] == 10 * major + minor) return true;
  return false;
}
