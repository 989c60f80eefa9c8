/* Kernels from source at run time: one C file anywhere becomes a module, a shared
 * object with one kernel in it.
 *
 * The compiler is the system's. Modules lie in a private folder under the name of
 * their key, a SHA-256 over the source, the preprocessed text (with it every header),
 * the compiler and its version, the flags and the ABI; so a module that is there
 * need not be compiled, and a changed source can never meet the old code. Beside
 * KEY.so lie KEY.c (the source), KEY.cmd (a command that makes it), KEY.log (what
 * the compiler said) and KEY.sha256 (of KEY.so: a damaged one is made anew).
 *
 * A module sees no name of the program or of another module, and none of its names
 * is seen. It runs inside this process: whoever loads a source trusts it. */
#ifndef ST_KLOAD_H
#define ST_KLOAD_H

#include <strata/kernel.h>

#include "core/st_error.h"

typedef struct st_kload_request {
  const char *source;      /* path of the C file */
  const char *op;          /* the op it must be a kernel of; NULL: any */
  const char *level;       /* CPU level; NULL: the best of its first comment that this CPU has */
  const char *cache_dir;   /* NULL: .cache/strata/kernels in the user's home folder */
  const char *include_dir; /* with include/ and kernels/ in it; NULL: the embedded sources */
  const char *compiler;    /* a name or a path; NULL: cc */
  double seconds;          /* for each run of the compiler; 0: 60 */
} st_kload_request;

/* A loaded module; all strings are its own. */
typedef struct st_module {
  const stk_kernel *kernel; /* a view: until close */
  char *path;               /* KEY.so */
  char *command;            /* repeats the compilation */
  char *compiler;           /* what it says about its version */
  char *flags;              /* that decide about the code, with blanks between */
  char key[65];
  char source_sha256[65];
  bool compiled;     /* false: it was there already */
  bool relaxed_math; /* the source asks for flags that may change results (st_kcomment.h) */
  struct st_library *library;
} st_module;

/* Compiles, if need be, and loads. Compiling one module in a cache folder waits for
 * another. On failure *out is NULL:
 *   ARG          the level is not in the source's first comment; another op
 *   UNSUPPORTED  this CPU lacks the level; the module changes the floating-point mode
 *   FORMAT       the source does not compile (the message has the compiler's first
 *                error and the log's path) or its descriptor does not fit: ABI,
 *                contract, args, CPU level
 *   STATE        the cache folder is not private; the source changed meanwhile
 *   LIMIT        the compiler took too long and was killed
 *   IO           no compiler; no such file; no cache folder */
strata_status st_kload_open(const st_kload_request *request, st_module **out, strata_error *err);

/* Unloads it; nobody may run its kernel any more. */
void st_kload_close(st_module **module);

/* gives the cache folder that a request without one uses (st_free). */
strata_status st_kload_default_cache(char **out, strata_error *err);

#endif
