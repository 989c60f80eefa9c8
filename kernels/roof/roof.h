/* roof: what this machine can do at most, for the floor beside a speed. Not an
 * op of a model: it has no oracle, only a duration.
 *
 *   roof_fma   each part runs n_rounds rounds of STK_ROOF_FMAS independent fused
 *              multiply-adds of VW lanes
 *   roof_read  each part reads its slice of data n_rounds times
 *
 * sink[part] receives a value, so that no work can be left out. */
#ifndef STK_ROOF_H
#define STK_ROOF_H

#include <strata/kernel.h>

enum { STK_ROOF_FMAS = 12, STK_ROOF_PARTS_MAX = 256 };

typedef struct stk_roof_args {
  const float *data; /* roof_read: aligned to 64 bytes */
  int64_t n_floats;  /* roof_read: a multiple of 256 */
  int64_t n_rounds;
  float *sink; /* [n_parts] */
} stk_roof_args;

#endif
