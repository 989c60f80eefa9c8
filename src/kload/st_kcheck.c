/* What a module must be. */
#include "kload/st_kcheck.h"

#include <string.h>

#include "core/st_mem.h"
#include "kreg/st_kreg.h"
#include "os/st_file.h"
#include "os/st_fpmode.h"

/* The mode belongs to the thread, and loading runs what the object wants run in this
 * one. */
static strata_status load(const char *path, const char *source, st_library **library,
                          strata_error *err) {
  const st_fpmode before = st_fpmode_get();
  strata_status status = st_library_open(path, library, err);
  const st_fpmode after = st_fpmode_get();
  if (st_fpmode_equal(before, after)) return status;
  st_library_close(library);
  st_fpmode_set(before);
  if (status != STRATA_OK) return status;
  ST_FAIL(err, UNSUPPORTED,
          "%s: floating-point mode: loading changes it from %04x/%04x to %04x/%04x: "
          "a module that leaves it alone expected (-Ofast and -ffast-math do not)",
          source, (unsigned)before.main, (unsigned)before.x87, (unsigned)after.main,
          (unsigned)after.x87);
}

/* Fields in the order in which they can be trusted: the first two say what the rest
 * is. */
static strata_status check_descriptor(const stk_kernel *k, const st_kcheck_expected *expected,
                                      strata_error *err) {
  const char *source = expected->source;
  if (!k)
    ST_FAIL(err, FORMAT, "%s: no descriptor: STK_KERNEL_LEVEL or the like expected", source);
  if (k->abi != STK_ABI)
    ST_FAIL(err, FORMAT, "%s: ABI %u: %u expected", source, k->abi, STK_ABI);
  if (k->struct_bytes != sizeof *k)
    ST_FAIL(err, FORMAT, "%s: descriptor of %u bytes: %zu expected", source, k->struct_bytes,
            sizeof *k);
  if (!k->op || !k->variant || !k->isa || !k->run)
    ST_FAIL(err, FORMAT, "%s: descriptor: an empty field: op, variant, isa and run expected", source);
  if (expected->op && strcmp(k->op, expected->op) != 0)
    ST_FAIL(err, ARG, "%s: op %s: %s expected", source, k->op, expected->op);
  int op = st_kreg_op_by_name(k->op);
  if (op < 0) ST_FAIL(err, FORMAT, "%s: op %s: an op of this program expected", source, k->op);
  const stk_op *contract = st_kreg_op((st_op)op);
  if (k->contract != contract->contract)
    ST_FAIL(err, FORMAT, "%s: contract %u of %s: %u expected", source, k->contract, k->op,
            contract->contract);
  if (k->args_bytes != contract->args_bytes)
    ST_FAIL(err, FORMAT, "%s: args of %u bytes: %zu expected", source, k->args_bytes,
            contract->args_bytes);
  if (strcmp(k->isa, expected->level) != 0)
    ST_FAIL(err, FORMAT, "%s: isa %s: %s, for which it was compiled, expected", source, k->isa,
            expected->level);
  if (k->numerics != STK_EXACT && k->numerics != STK_FAST)
    ST_FAIL(err, FORMAT, "%s: numerics %d: STK_EXACT or STK_FAST expected", source, (int)k->numerics);
  return STRATA_OK;
}

strata_status st_kcheck_load(const char *path, const st_kcheck_expected *expected,
                             st_library **library, const stk_kernel **kernel, strata_error *err) {
  *kernel = NULL;
  *library = NULL;
  ST_TRY(load(path, expected->source, library, err));
  const stk_kernel *found = st_library_symbol(*library, "stk_module_kernel");
  strata_status status = check_descriptor(found, expected, err);
  if (status == STRATA_OK) *kernel = found;
  else st_library_close(library);
  return status;
}

strata_status st_kcheck_load_copy(const char *path, const st_kcheck_expected *expected,
                                  st_library **library, const stk_kernel **kernel, strata_error *err) {
  char *bytes;
  size_t n_bytes;
  st_writer *writer = NULL;
  *kernel = NULL;
  *library = NULL;
  ST_TRY(st_file_read(path, ST_KMODULE_BYTES_MAX, &bytes, &n_bytes, err));
  strata_status status = st_writer_open(path, &writer, err);
  if (status == STRATA_OK) status = st_writer_write(writer, bytes, n_bytes, err);
  if (status == STRATA_OK) status = st_kcheck_load(st_writer_path(writer), expected, library, kernel, err);
  st_writer_close(&writer);
  st_free(bytes);
  return status;
}
