/* The C compiler, run to make a module of a kernel's source.
 *
 * In two steps: the preprocessor first, and then its output is compiled. What the
 * key of a module is made from is so exactly what the module is made from,
 * whatever happens to the files meanwhile. */
#ifndef ST_KCOMPILE_H
#define ST_KCOMPILE_H

#include "os/st_spawn.h"

/* What is to be compiled; views of the caller's strings. */
typedef struct st_kjob {
  const char *program;     /* the compiler */
  const char *source;
  const char *level;       /* a CPU level of this build */
  const char *include_dir; /* has include/ and kernels/ */
  const st_argv *asked;    /* flags that the source asks for */
  double seconds;          /* for each run of the compiler */
} st_kjob;

/* gives all that the compiler says about its version (st_free). */
strata_status st_kcompile_version(const st_kjob *job, char **version, strata_error *err);

/* Adds the flags that decide about the code: those of every kernel, of the level,
 * and those asked for. */
strata_status st_kcompile_code_flags(const st_kjob *job, st_argv *argv, strata_error *err);

/* Adds one command that does both steps, for people to repeat. */
strata_status st_kcompile_command(const st_kjob *job, const char *output, st_argv *argv,
                                  strata_error *err);

/* Source to preprocessed text, and that to a shared object. A compiler that runs
 * and fails is OK here: result says so. */
strata_status st_kcompile_preprocess(const st_kjob *job, const char *output,
                                     st_spawn_result *result, strata_error *err);
strata_status st_kcompile_link(const st_kjob *job, const char *preprocessed, const char *output,
                               st_spawn_result *result, strata_error *err);

#endif
