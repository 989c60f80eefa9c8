/* Sources of GPU kernels that a folder has another version of.
 *
 * A file of the folder takes the place of the embedded source whose last name it has:
 * gdn_scan_cuda.cu that of gdn_scan/gdn_scan_cuda.cu, k_cuda.h that of common/k_cuda.h.
 * All others stay embedded, and so do the launches, which are linked in. */
#ifndef ST_CUDA_SOURCES_H
#define ST_CUDA_SOURCES_H

#include "core/st_error.h"

typedef struct st_cuda_sources st_cuda_sources;

typedef struct st_cuda_replaced {
  const char *path; /* of the embedded source, as #include names it */
  char *file;       /* that takes its place */
  char *text;       /* n_bytes, and a NUL behind */
  size_t n_bytes;
} st_cuda_replaced;

/* Reads the folder. ARG for a folder without files, and for a file whose name is neither
 * that of a GPU kernel's source nor of a header; FORMAT for a NUL byte; IO for what
 * cannot be read; LIMIT. */
strata_status st_cuda_sources_open(const char *directory, st_cuda_sources **out, strata_error *err);
void st_cuda_sources_close(st_cuda_sources **sources);

/* The index-th one, in the order of their paths; NULL past the end, and for sources NULL. */
const st_cuda_replaced *st_cuda_sources_at(const st_cuda_sources *sources, int32_t index);
/* The one that takes the place of a path; NULL if the embedded one stays. */
const st_cuda_replaced *st_cuda_sources_find(const st_cuda_sources *sources, const char *path);

#endif
