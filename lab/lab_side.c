/* Freezing, compiling and loading a side's kernel. */
#include "lab/lab_side.h"

#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "kload/st_kcheck.h"
#include "kload/st_kload.h"
#include "kreg/st_kreg.h"
#include "kreg/st_source.h"
#include "lab/lab_cuda_side.h"
#include "lab/lab_files.h"
#include "lab/lab_seal.h"
#include "os/st_child.h"
#include "os/st_dir.h"
#include "os/st_file.h"

enum { SOURCE_BYTES_MAX = 4 << 20 };

static bool is_path(const char *given) {
  size_t n = strlen(given);
  return strchr(given, '/') || (n > 2 && strcmp(given + n - 2, ".c") == 0) ||
         (n > 3 && strcmp(given + n - 3, ".cu") == 0);
}

static const stk_kernel *variant_of(const stk_op *op, const char *name) {
  const stk_kernel *kernel;
  st_op index = (st_op)st_kreg_op_by_name(op->name);
  for (int32_t i = 0; (kernel = st_kreg_variant(index, i)); ++i)
    if (strcmp(kernel->variant, name) == 0) return kernel;
  return NULL;
}

static strata_status freeze_text(lab_side *side, const char *text, size_t n_bytes,
                                 const char *directory, const char *place, strata_error *err) {
  char folder[LAB_PATH_MAX];
  int n = snprintf(folder, sizeof folder, "%s/%s", directory, place);
  snprintf(side->file, sizeof side->file, "%s/%s.%s", place, side->op->name, side->cuda ? "cu" : "c");
  int m = snprintf(side->frozen, sizeof side->frozen, "%s/%s", directory, side->file);
  if (n >= (int)sizeof folder || m >= (int)sizeof side->frozen)
    ST_FAIL(err, ARG, "%s: a shorter path expected", directory);
  ST_TRY(st_dir_make(folder, err));
  ST_TRY(lab_seal_hash(text, n_bytes, side->sha256, err));
  return lab_file_write(side->frozen, text, n_bytes, err);
}

/* The source of a built-in variant, and the level that it is one for. */
static bool find_variant(lab_side *side, st_source *source) {
  const stk_kernel *kernel = side->cuda ? NULL : variant_of(side->op, side->given);
  const stk_cuda_kernel *gpu = NULL;
  for (int32_t i = 0; side->cuda && (gpu = st_cuda_kernel_of(side->op->name, i)); ++i)
    if (strcmp(gpu->variant, side->given) == 0) return st_source_find(gpu->source, source);
  if (!kernel || !st_source_of_variant(side->op->name, side->given, source)) return false;
  snprintf(side->wanted_level, sizeof side->wanted_level, "%s", kernel->isa);
  return true;
}

static strata_status freeze_variant(lab_side *side, const char *directory, const char *place,
                                    strata_error *err) {
  st_source source;
  if (!find_variant(side, &source))
    ST_FAIL(err, ARG, "%s: a variant of %s (strata lab list %s) or the path of a %s file expected",
            side->given, side->op->name, side->op->name, side->cuda ? "CUDA C" : "C");
  return freeze_text(side, source.text, source.n_bytes, directory, place, err);
}

static strata_status freeze_file(lab_side *side, const char *directory, const char *place,
                                 strata_error *err) {
  char *text;
  size_t n_bytes;
  if (st_path_probe(side->given) != ST_PATH_FILE) ST_FAIL(err, ARG, "%s: a C file expected", side->given);
  ST_TRY(lab_file_read(side->given, SOURCE_BYTES_MAX, &text, &n_bytes, err));
  strata_status status = freeze_text(side, text, n_bytes, directory, place, err);
  st_free(text);
  return status;
}

strata_status lab_side_freeze(lab_side *side, const stk_op *op, bool cuda, const char *given,
                              const char *directory, const char *place, strata_error *err) {
  *side = (lab_side){.op = op, .cuda = cuda};
  if (snprintf(side->given, sizeof side->given, "%s", given) >= (int)sizeof side->given)
    ST_FAIL(err, ARG, "%s: a shorter path expected", given);
  return is_path(given) ? freeze_file(side, directory, place, err)
                        : freeze_variant(side, directory, place, err);
}

/* ---- compiling ---------------------------------------------------------------- */

static void note_module(lab_side *side, const st_module *module) {
  const char *end = strchr(module->compiler, '\n'); /* the first line says enough */
  size_t length = end ? (size_t)(end - module->compiler) : strlen(module->compiler);
  snprintf(side->key, sizeof side->key, "%s", module->key);
  snprintf(side->variant, sizeof side->variant, "%s", module->kernel->variant);
  snprintf(side->level, sizeof side->level, "%s", module->kernel->isa);
  snprintf(side->compiler, sizeof side->compiler, "%.*s", (int)length, module->compiler);
  snprintf(side->flags, sizeof side->flags, "%s", module->flags);
  side->numerics = module->kernel->numerics;
  side->relaxed_math = module->relaxed_math;
}

/* What the child is to do; side lies in shared memory. */
typedef struct compile_job {
  lab_side *side;
  const lab_toolchain *tools;
} compile_job;

static strata_status compile_child(void *user, strata_error *err) {
  const compile_job *job = user;
  if (job->side->cuda) return lab_cuda_side_compile(job->side, err);
  lab_side *side = job->side;
  const st_kload_request request = {
      .source = side->frozen, .op = side->op->name, .level = side->wanted_level[0] ? side->wanted_level : NULL,
      .cache_dir = job->tools->cache_dir, .compiler = job->tools->compiler, .seconds = job->tools->seconds};
  st_module *module;
  ST_TRY(st_kload_open(&request, &module, err));
  const int n = snprintf(side->module, sizeof side->module, "%s", module->path);
  note_module(side, module);
  st_kload_close(&module);
  if (n >= LAB_PATH_MAX) ST_FAIL(err, LIMIT, "%s: a shorter path of the cache expected", side->given);
  return STRATA_OK;
}

strata_status lab_side_compile(lab_side *side, const lab_toolchain *tools, strata_error *err) {
  void *shared;
  st_child_result end;
  ST_TRY(st_shared_new(&shared, sizeof *side, "a child process", err));
  memcpy(shared, side, sizeof *side);
  compile_job job = {shared, tools};
  strata_status status = st_child_run(compile_child, &job, 8 * tools->seconds, &end, err);
  /* A source that cannot be used is a bad argument; the message is about the copy. */
  if (status == STRATA_FORMAT && err) {
    strata_error copy = *err;
    status = st_error_set(err, STRATA_ARG, "%s: %s", side->given, copy.message);
  }
  if (status == STRATA_OK && end.end != ST_CHILD_DONE)
    status = st_error_set(err, STRATA_ARG, "%s: %s as it was loaded", side->given,
                          end.end == ST_CHILD_HUNG ? "hung" : end.name);
  if (status == STRATA_OK) memcpy(side, shared, sizeof *side);
  st_shared_free(shared, sizeof *side);
  return status;
}

/* ---- loading ------------------------------------------------------------------ */

strata_status lab_side_load(const lab_side *side, int32_t n, lab_loaded *out, strata_error *err) {
  const st_kcheck_expected expected = {.source = side->given, .op = side->op->name, .level = side->level};
  *out = (lab_loaded){0};
  for (int32_t i = 0; i < n; ++i) {
    ST_TRY(st_kcheck_load_copy(side->module, &expected, &out->library[i], &out->kernels.kernel[i], err));
    ++out->kernels.n;
  }
  return STRATA_OK;
}

void lab_side_unload(lab_loaded *loaded) {
  for (int32_t i = 0; i < LAB_COPIES; ++i) st_library_close(&loaded->library[i]);
  loaded->kernels.n = 0;
}
