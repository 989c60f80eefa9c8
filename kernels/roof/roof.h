/* roof: what this machine can do at most, for the floor beside a speed. Not an
 * op of a model: it has no oracle, only a duration.
 *
 *   roof_fma     each part runs n_rounds rounds of STK_ROOF_FMAS independent fused
 *                multiply-adds of VW lanes
 *   roof_dot8    each part adds the products of bytes with signed bytes up, as the
 *                level does it (pairs in 16 bits, pairs of these in 32): all n_bytes
 *                of data, n_rounds times, STK_ROOF_DOTS products a byte
 *   roof_read    each part reads its slice of data n_rounds times
 *   roof_update  each part reads its slice and writes it back changed, n_rounds
 *                times
 *   roof_copy    each part copies the first half of its slice to the second
 *
 * sink[part] receives a value, so that no work can be left out. */
#ifndef STK_ROOF_H
#define STK_ROOF_H

#include <strata/kernel.h>

enum { STK_ROOF_FMAS = 12, STK_ROOF_DOTS = 4, STK_ROOF_PARTS_MAX = 256 };

typedef struct stk_roof_args {
  float *data;      /* aligned to 64 bytes; roof_dot8: bytes, read only */
  int64_t n_floats; /* a multiple of 256 */
  int64_t n_rounds;
  float *sink; /* [n_parts] */
} stk_roof_args;

#endif
