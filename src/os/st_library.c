/* dlopen and its family. */
#include "os/st_library.h"

#include <dlfcn.h>

strata_status st_library_open(const char *path, st_library **out, strata_error *err) {
  *out = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (*out) return STRATA_OK;
  const char *why = dlerror();
  ST_FAIL(err, FORMAT, "%s: a shared object that can be loaded expected", why ? why : path);
}

void *st_library_symbol(st_library *library, const char *name) { return dlsym(library, name); }

void st_library_close(st_library **library) {
  if (*library) dlclose(*library);
  *library = NULL;
}
