/* k_weight.h -- one stored weight as f32. */
#ifndef K_WEIGHT_H
#define K_WEIGHT_H

#include <strata/kernel.h>

#include "common/k_math.h"

static inline __attribute__((always_inline, unused)) float k_weight(const uint8_t *p, stk_dtype dtype) {
  if (dtype == STK_F32) {
    float x;
    memcpy(&x, p, 4);
    return x;
  }
  uint16_t h;
  memcpy(&h, p, 2);
  return dtype == STK_BF16 ? ks_from_bf16(h) : ks_from_half(h);
}

#endif
