/* Modules: compiled once, kept by the hash of all they are made from.
 *
 * Beside KEY.cubin nothing else is kept; a file under that name is complete, since it
 * appears in one step, and the driver refuses one that is damaged, which is then made
 * anew. */
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "device/cuda/st_cuda_device.h"
#include "kreg/st_source.h"
#include "os/st_dir.h"
#include "os/st_file.h"

enum { CUBIN_BYTES_MAX = 1 << 28 };

static strata_status write_file(const char *path, const st_cuda_cubin *cubin, strata_error *err) {
  st_writer *writer;
  ST_TRY(st_writer_open(path, &writer, err));
  strata_status status = st_writer_write(writer, cubin->bytes, cubin->n_bytes, err);
  if (status == STRATA_OK) status = st_writer_commit(writer, err);
  st_writer_close(&writer);
  return status;
}

/* KC_KERNEL of kernels/common/k_cuda.h puts an empty function <entry>_waits beside a
 * kernel that waits. A kernel of another kind may not be launched early. */
static bool does_wait(const st_cuda *cuda, const st_cuda_module *m) {
  char name[128];
  cu_function found;
  if (cuda->info.major < 9) return false;
  const int n = snprintf(name, sizeof name, "%s_waits", m->entry);
  return n < (int)sizeof name && cuda->driver.function(&found, m->module, name) == 0;
}

/* Loads the image and finds the entry in it. */
static strata_status load(st_cuda *cuda, const st_cuda_source *source, const st_cuda_cubin *cubin,
                          st_cuda_module *out, strata_error *err) {
  const st_cuda_driver *d = &cuda->driver;
  ST_CUDA_TRY(cuda, d->module_load(&out->module, cubin->bytes), source->name);
  ST_CUDA_TRY(cuda, d->function(&out->function, out->module, source->entry), source->entry);
  out->waits = does_wait(cuda, out);
  ST_CUDA_TRY(cuda, d->function_get(&out->info.registers, CU_FUNCTION_REGISTERS, out->function), "cuFuncGetAttribute");
  ST_CUDA_TRY(cuda, d->function_get(&out->info.local_bytes, CU_FUNCTION_LOCAL_BYTES, out->function), "cuFuncGetAttribute");
  ST_CUDA_TRY(cuda, d->function_get(&out->info.shared_bytes, CU_FUNCTION_SHARED_BYTES, out->function), "cuFuncGetAttribute");
  return STRATA_OK;
}

/* From the cache if it is there and loads, else compiled and left there. */
static strata_status find_or_compile(st_cuda *cuda, const st_cuda_source *source, const char *path,
                                     st_cuda_module *out, strata_error *err) {
  st_cuda_cubin cubin = {0};
  strata_status status = st_file_read(path, CUBIN_BYTES_MAX, &cubin.bytes, &cubin.n_bytes, NULL);
  if (status == STRATA_OK) status = load(cuda, source, &cubin, out, NULL);
  if (status != STRATA_OK) {
    st_cuda_cubin_release(&cubin);
    if (out->module) cuda->driver.module_unload(out->module);
    out->module = NULL;
    out->info.compiled = true;
    status = st_cuda_compile(&cuda->nvrtc, source, cuda->info.arch, &cubin, err);
    if (status == STRATA_OK) status = write_file(path, &cubin, err);
    if (status == STRATA_OK) status = load(cuda, source, &cubin, out, err);
  }
  st_cuda_cubin_release(&cubin);
  return status;
}

static strata_status open_in_cache(st_cuda *cuda, const st_cuda_source *source, st_cuda_module *out,
                                   strata_error *err) {
  st_dir cache;
  char key[65], name[80], *path;
  ST_TRY(st_cuda_compile_key(&cuda->nvrtc, source, cuda->info.arch, key, err));
  snprintf(name, sizeof name, "%s.cubin", key);
  ST_TRY(st_dir_open_private(cuda->cache_dir, &cache, err));
  strata_status status = st_path_join(&path, cache.path, name, err);
  if (status == STRATA_OK) {
    status = find_or_compile(cuda, source, path, out, err);
    st_free(path);
  }
  st_dir_close(&cache);
  return status;
}

strata_status st_cuda_module_open(st_cuda *cuda, const st_cuda_source *source, st_cuda_module **out,
                                  strata_error *err) {
  void *memory;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "a module", err));
  *out = memory;
  strata_status status = st_strndup(&(*out)->entry, source->entry, strlen(source->entry), err);
  if (status == STRATA_OK) status = open_in_cache(cuda, source, *out, err);
  if (status != STRATA_OK) st_cuda_module_close(cuda, out);
  return status;
}

strata_status st_cuda_source_of(const stk_cuda_kernel *kernel, const st_cuda_sources *sources, const char *options,
                                st_cuda_source *out, strata_error *err) {
  const st_cuda_replaced *replaced = st_cuda_sources_find(sources, kernel->source);
  st_source embedded;
  if (!st_source_find(kernel->source, &embedded))
    ST_FAIL(err, INTERNAL, "%s: a source of this program expected", kernel->source);
  *out = (st_cuda_source){.name = replaced ? replaced->file : embedded.path,
                          .text = replaced ? replaced->text : embedded.text,
                          .entry = kernel->entry, .options = options, .headers = sources};
  return STRATA_OK;
}

strata_status st_cuda_module_open_kernel(st_cuda *cuda, const stk_cuda_kernel *kernel, const char *options,
                                         st_cuda_module **out, strata_error *err) {
  st_cuda_source source;
  *out = NULL;
  ST_TRY(st_cuda_source_of(kernel, cuda->sources, options, &source, err));
  return st_cuda_module_open(cuda, &source, out, err);
}

void st_cuda_module_close(st_cuda *cuda, st_cuda_module **module) {
  if (!*module) return;
  if ((*module)->module) cuda->driver.module_unload((*module)->module);
  st_free((*module)->entry);
  st_free(*module);
  *module = NULL;
}

st_cuda_module_info st_cuda_module_info_of(const st_cuda_module *module) { return module->info; }
