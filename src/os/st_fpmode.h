/* The floating-point mode of the calling thread: how it rounds, what it does with
 * denormals, what traps. A shared object that was linked with -Ofast changes it as
 * it is loaded, and with it the bytes of everything computed afterwards. */
#ifndef ST_FPMODE_H
#define ST_FPMODE_H

#include <stdbool.h>
#include <stdint.h>

/* x86-64: MXCSR without its exception flags, and the x87 control word.
 * aarch64: FPCR, and 0. Elsewhere both are 0: not known. */
typedef struct st_fpmode {
  uint64_t main, x87;
} st_fpmode;

st_fpmode st_fpmode_get(void);
void st_fpmode_set(st_fpmode mode);
bool st_fpmode_equal(st_fpmode a, st_fpmode b);

#endif
