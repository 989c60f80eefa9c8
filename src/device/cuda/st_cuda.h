/* One NVIDIA GPU: memory, kernels from source, launches, graphs, time.
 *
 * The driver (libcuda) and the run-time compiler (NVRTC) are opened when a device
 * is, so one program runs with and without them. Kernels are CUDA C: a source is
 * compiled for exactly this chip, with the embedded headers and nothing else, and
 * the result is kept in a private folder under the hash of all it was made from.
 *
 * Everything of a device runs in order on one stream. A device is used by one thread
 * at a time. Pointers into its memory are void * that only it can follow.
 *
 * Statuses: DEVICE, a call of the driver failed (the message names call and reason);
 * NOMEM, its memory is full; FORMAT, a source does not compile; UNSUPPORTED, there is
 * no driver, no compiler, no such device. */
#ifndef ST_CUDA_H
#define ST_CUDA_H

#include <strata/kernel.h>

#include "device/cuda/st_cuda_sources.h"

typedef struct st_cuda st_cuda;
typedef struct st_cuda_module st_cuda_module;
typedef struct st_cuda_graph st_cuda_graph;

typedef struct st_cuda_info {
  char name[128];
  char arch[16];             /* what kernels are compiled for: "sm_90a" */
  int32_t major, minor;      /* compute capability */
  stk_cuda_chip chip;        /* what plans ask about */
  int64_t memory_bytes, l2_bytes;
  int32_t driver_version;    /* 13000 is CUDA 13.0 */
  int32_t compiler_version;  /* of NVRTC, likewise */
} st_cuda_info;

/* How many devices there are: 0 with the reason in why if there is no driver or no
 * device. why is never empty then. */
int32_t st_cuda_count(char *why, size_t why_bytes);

/* cache_dir: where compiled kernels are kept; NULL: ~/.cache/strata/cuda. */
strata_status st_cuda_open(int32_t ordinal, const char *cache_dir, st_cuda **out, strata_error *err);
void st_cuda_close(st_cuda **cuda);
const st_cuda_info *st_cuda_info_of(const st_cuda *cuda);
/* Kernels opened from now on, and their headers, are those of sources where it has them.
 * sources is borrowed; NULL: all are the embedded ones. */
void st_cuda_use_sources(st_cuda *cuda, const st_cuda_sources *sources);

/* ---- memory -------------------------------------------------------------------- */

/* what: named if there is not enough. Aligned to 256 bytes. */
strata_status st_cuda_alloc(st_cuda *cuda, size_t n_bytes, const char *what, void **out, strata_error *err);
void st_cuda_free(st_cuda *cuda, void **memory);
strata_status st_cuda_upload(st_cuda *cuda, void *to, const void *from, size_t n_bytes, strata_error *err);
/* Waits for what runs before. */
strata_status st_cuda_download(st_cuda *cuda, void *to, const void *from, size_t n_bytes, strata_error *err);
strata_status st_cuda_copy(st_cuda *cuda, void *to, const void *from, size_t n_bytes, strata_error *err);
strata_status st_cuda_fill(st_cuda *cuda, void *to, uint8_t value, size_t n_bytes, strata_error *err);
/* Waits for all that was asked for; an error of a kernel appears here. */
strata_status st_cuda_wait(st_cuda *cuda, strata_error *err);

/* ---- kernels ------------------------------------------------------------------- */

/* A source and what of it is wanted. */
typedef struct st_cuda_source {
  const char *name; /* for messages and #include: "gdn_scan/gdn_scan_cuda.cu" */
  const char *text;
  const char *entry;
  const char *options; /* "-DGDN_DK=128", separated by blanks */
  const st_cuda_sources *headers; /* in place of embedded ones; NULL: none */
} st_cuda_source;

/* The source of a linked-in kernel: sources' (NULL: none), else the embedded one. Its texts
 * are views. */
strata_status st_cuda_source_of(const stk_cuda_kernel *kernel, const st_cuda_sources *sources, const char *options,
                                st_cuda_source *out, strata_error *err);

/* Compiles or finds in the cache. gives the module, which dies with its device. */
strata_status st_cuda_module_open(st_cuda *cuda, const st_cuda_source *source, st_cuda_module **out,
                                  strata_error *err);
/* The same for a linked-in kernel. */
strata_status st_cuda_module_open_kernel(st_cuda *cuda, const stk_cuda_kernel *kernel, const char *options,
                                         st_cuda_module **out, strata_error *err);
void st_cuda_module_close(st_cuda *cuda, st_cuda_module **module);

typedef struct st_cuda_module_info {
  int32_t registers, local_bytes, shared_bytes;
  bool compiled; /* false: it was in the cache */
} st_cuda_module_info;
st_cuda_module_info st_cuda_module_info_of(const st_cuda_module *module);

/* args is copied. Returns before the kernel has run. Launches run in their order; one that
 * waits for those before it by itself (KC_KERNEL of k_cuda.h) may be set up before they end. */
strata_status st_cuda_launch(st_cuda *cuda, const st_cuda_module *module, const stk_cuda_launch *launch,
                             const void *args, strata_error *err);

/* ---- graphs and time ------------------------------------------------------------- */

/* Between begin and end launches are recorded, not run. */
strata_status st_cuda_graph_begin(st_cuda *cuda, strata_error *err);
strata_status st_cuda_graph_end(st_cuda *cuda, st_cuda_graph **out, strata_error *err);
strata_status st_cuda_graph_run(st_cuda *cuda, const st_cuda_graph *graph, strata_error *err);
void st_cuda_graph_close(st_cuda *cuda, st_cuda_graph **graph);

/* Seconds that the device took for what was asked for between the two calls; the
 * second one waits. */
strata_status st_cuda_time_begin(st_cuda *cuda, strata_error *err);
strata_status st_cuda_time_end(st_cuda *cuda, double *seconds, strata_error *err);

#endif
