#include "cli_lab_gpu.h"

#include <string.h>

#include "core/st_error.h"

strata_status cli_lab_sources(const char *dir, const char *backend, st_cuda_sources **out, strata_error *err) {
  *out = NULL;
  if (!dir) return STRATA_OK;
  if (strcmp(backend, "cuda") != 0) ST_FAIL(err, ARG, "--kernels: %s: nothing without --backend cuda expected", dir);
  strata_status status = st_cuda_sources_open(dir, out, err);
  if (status == STRATA_OK || status == STRATA_NOMEM) return status;
  const strata_error why = *err;
  ST_FAIL(err, ARG, "--kernels: %s", why.message);
}

strata_status cli_lab_gpu(const st_cuda_sources *sources, FILE *out, st_cuda **cuda, strata_error *err) {
  const st_cuda_replaced *replaced;
  ST_TRY(st_cuda_open(0, NULL, cuda, err));
  st_cuda_use_sources(*cuda, sources);
  for (int32_t i = 0; out && (replaced = st_cuda_sources_at(sources, i)); ++i)
    fprintf(out, "REPLACED %s by %s\n", replaced->path, replaced->file);
  return STRATA_OK;
}
