/* The rotary frequencies of a model. */
#ifndef QWEN4_ROPE_H
#define QWEN4_ROPE_H

#include <stdint.h>

/* inv_freq[i] = 1 / theta^(2i / rotary_dim), i < rotary_dim / 2: the power
 * rounded to f32, then one f32 division, as the reference has it. Computed
 * without the C library's functions, so that every machine gets the same bits.
 * theta in [1, 1e15]. */
void qwen4_inv_freq(double theta, int32_t rotary_dim, float *inv_freq);

#endif
