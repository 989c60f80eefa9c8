/* Sources, modules and runs of GPU kernels in a comparison. */
#include "lab/lab_cuda_side.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "lab/lab_cuda.h"
#include "os/st_file.h"

enum { SOURCE_BYTES_MAX = 4 << 20 };

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Whether the word stands in the text by itself. */
static bool has_word(const char *text, const char *word) {
  const size_t n = strlen(word);
  for (const char *at = text; (at = strstr(at, word)); at += n)
    if ((at == text || !is_name(at[-1])) && !is_name(at[n])) return true;
  return false;
}

strata_status lab_cuda_kernel_open(st_cuda *cuda, const lab_side *side, lab_cuda_kernel *out, strata_error *err) {
  size_t n_bytes;
  *out = (lab_cuda_kernel){.cuda = cuda, .name = side->file};
  ST_TRY(st_file_read(side->frozen, SOURCE_BYTES_MAX, &out->text, &n_bytes, err));
  const stk_cuda_kernel *kernel;
  for (int32_t i = 0; !out->plan && (kernel = st_cuda_kernel_of(side->op->name, i)); ++i)
    if (has_word(out->text, kernel->entry)) out->plan = kernel;
  if (out->plan) return STRATA_OK;
  lab_cuda_kernel_close(out);
  kernel = st_cuda_kernel_of(side->op->name, 0);
  ST_FAIL(err, ARG, "%s: a GPU kernel of %s whose entry is that of a built-in one, such as %s, expected", side->given,
          side->op->name, kernel ? kernel->entry : "(there is none)");
}

void lab_cuda_kernel_close(lab_cuda_kernel *kernel) {
  st_free(kernel->text);
  *kernel = (lab_cuda_kernel){0};
}

strata_status lab_cuda_kernel_module(const lab_cuda_kernel *kernel, const void *args, st_cuda_module **out,
                                     stk_cuda_launch *launch, strata_error *err) {
  *out = NULL;
  const char *wrong = kernel->plan->plan(args, &st_cuda_info_of(kernel->cuda)->chip, launch);
  if (wrong) ST_FAIL(err, UNSUPPORTED, "%s", wrong);
  const st_cuda_source source = {kernel->name, kernel->text, kernel->plan->entry, launch->options, NULL};
  return st_cuda_module_open(kernel->cuda, &source, out, err);
}

static strata_status run(const void *self, lab_case *c, int32_t n_parts, strata_error *err) {
  const lab_cuda_kernel *kernel = self;
  strata_status status = STRATA_OK;
  lab_cuda_case device = {0};
  st_cuda_module *module = NULL;
  stk_cuda_launch launch;
  (void)n_parts;
  ST_TRY_OUT(lab_cuda_kernel_module(kernel, c->args, &module, &launch, err));
  ST_TRY_OUT(lab_cuda_case_init(kernel->cuda, c, &device, err));
  ST_TRY_OUT(st_cuda_launch(kernel->cuda, module, &launch, device.args.bytes, err));
  ST_TRY_OUT(lab_cuda_case_download(kernel->cuda, &device, c, err));
out:
  lab_cuda_case_release(kernel->cuda, &device);
  st_cuda_module_close(kernel->cuda, &module);
  return status;
}

lab_runner lab_cuda_runner(const lab_cuda_kernel *kernel) { return (lab_runner){run, kernel}; }

/* ---- compiling ------------------------------------------------------------------ */

static strata_status note(lab_side *side, const lab_cuda_kernel *kernel, strata_error *err) {
  strata_status status = STRATA_OK;
  st_cuda_module *module = NULL;
  stk_cuda_launch launch;
  const st_cuda_info *info = st_cuda_info_of(kernel->cuda);
  ST_TRY_OUT(lab_cuda_kernel_module(kernel, side->op->released, &module, &launch, err));
  const st_cuda_module_info compiled = st_cuda_module_info_of(module);
  snprintf(side->key, sizeof side->key, "%s", side->sha256);
  snprintf(side->variant, sizeof side->variant, "%s", kernel->plan->variant);
  snprintf(side->level, sizeof side->level, "%s", info->arch);
  snprintf(side->compiler, sizeof side->compiler, "NVRTC %d.%d, driver %d.%d", info->compiler_version / 1000,
           info->compiler_version % 1000 / 10, info->driver_version / 1000, info->driver_version % 1000 / 10);
  snprintf(side->flags, sizeof side->flags, "%s (at the released shape: grid %ux%ux%u, block %u, %d registers, %d bytes of "
           "local and %u of shared memory)", launch.options, launch.grid[0], launch.grid[1], launch.grid[2], launch.block,
           compiled.registers, compiled.local_bytes, launch.shared_bytes + (uint32_t)compiled.shared_bytes);
  side->numerics = kernel->plan->numerics;
out:
  st_cuda_module_close(kernel->cuda, &module);
  return status;
}

strata_status lab_cuda_side_compile(lab_side *side, strata_error *err) {
  strata_status status = STRATA_OK;
  st_cuda *cuda = NULL;
  lab_cuda_kernel kernel = {0};
  if (!side->op->released) ST_FAIL(err, UNSUPPORTED, "%s: an op that has a released shape expected", side->op->name);
  ST_TRY_OUT(st_cuda_open(0, NULL, &cuda, err));
  ST_TRY_OUT(lab_cuda_kernel_open(cuda, side, &kernel, err));
  ST_TRY_OUT(note(side, &kernel, err));
out:
  lab_cuda_kernel_close(&kernel);
  st_cuda_close(&cuda);
  return status;
}
