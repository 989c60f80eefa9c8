/* The first comment of a kernel's source says how it is compiled. The file begins
 * with it, and its first lines are
 *
 *   isa: avx2 avx512
 *   flags: -O3 -funroll-loops
 *   gdn_scan -- the idea, ...
 *
 * isa names the CPU levels that it can be built for; levels that another kind of
 * machine has are fine. The line of flags may be missing. Its words are handed to
 * the compiler behind the flags of the level, so they win. They begin with -O, -f,
 * -m, -D or --param=; none of them names a file or leaves the choice to the machine
 * (-march=native), because the module's key would not cover that. The Makefile
 * reads the same two lines. */
#ifndef ST_KCOMMENT_H
#define ST_KCOMMENT_H

#include "os/st_spawn.h"

typedef struct st_kcomment {
  st_argv levels;
  st_argv flags;
  /* Some flag lets the compiler change results: -ffast-math and its parts,
   * contraction, another precision. What the source itself asks for by pragmas and
   * attributes is not seen. */
  bool relaxed_math;
} st_kcomment;

/* Parses the beginning of a source. name is for messages. FORMAT if there is no such
 * comment or a flag is not allowed. fills *out (release it also after a failure). */
strata_status st_kcomment_parse(const char *text, size_t n_bytes, const char *name,
                                st_kcomment *out, strata_error *err);
void st_kcomment_release(st_kcomment *comment);

#endif
