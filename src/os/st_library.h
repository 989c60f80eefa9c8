/* Shared objects opened at run time. Their symbols are seen by nobody else, and
 * everything they need is found at once or the opening fails. */
#ifndef ST_LIBRARY_H
#define ST_LIBRARY_H

#include "core/st_error.h"

typedef struct st_library st_library;

/* path: with a slash in it, that file and no other. */
strata_status st_library_open(const char *path, st_library **out, strata_error *err);
/* A view of the symbol, NULL if there is none. */
void *st_library_symbol(st_library *library, const char *name);
void st_library_close(st_library **library);

#endif
