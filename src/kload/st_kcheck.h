/* Loading a module and looking at it before anybody runs it. */
#ifndef ST_KCHECK_H
#define ST_KCHECK_H

#include <strata/kernel.h>

#include "os/st_library.h"

enum { ST_KMODULE_BYTES_MAX = 1 << 28 }; /* a larger shared object is refused */

typedef struct st_kcheck_expected {
  const char *source; /* for messages */
  const char *op;     /* NULL: any op of this program */
  const char *level;  /* the CPU level it was compiled for */
} st_kcheck_expected;

/* Loads the shared object and finds its descriptor: ABI, op, contract, size of the
 * args and CPU level must be this program's. One that changes the floating-point
 * mode as it is loaded is refused, and the mode restored. On failure nothing stays
 * loaded; statuses as in st_kload.h. */
strata_status st_kcheck_load(const char *path, const st_kcheck_expected *expected,
                             st_library **library, const stk_kernel **kernel, strata_error *err);

/* The same with a copy of the file, which is gone from the disk when this returns: the
 * loader takes two files for two modules, and their code lies in different memory. The
 * copy is made beside the file. LIMIT for one too large, IO, NOMEM; else as above. */
strata_status st_kcheck_load_copy(const char *path, const st_kcheck_expected *expected,
                                  st_library **library, const stk_kernel **kernel, strata_error *err);

#endif
