/* gdn_post: gated normalisation of the recurrence's output, head by head.
 *
 *   inv = rsqrt(tree32(o^2) * (1/D) + eps)
 *   y   = ((o * inv) * gain) * gate(z)      gate is sigmoid or silu
 *   yh  = y rounded to fp16, nearest even; infinity above 65504
 *
 * Shapes    o     in   rows [Hv][T][D]   head-major, as gdn_scan writes it
 *           z     in   rows [T][Hv*D]
 *           gain  in   f32 [D]           plain, not 1 + w
 *           y     out  f32 [T][Hv*D]     written only if outputs has STK_POST_F32
 *           yh    out  f16 [T][Hv*D]     written only if outputs has STK_POST_F16
 * rows is the type of o and z, f32 or f16 (common/k_rows.h); with f16 D is at most 512.
 * An output that is not asked for keeps every byte it had and may be NULL.
 * Numerics  exact.
 * Threads   parts cut (token, head) pairs. */
#ifndef STK_GDN_POST_H
#define STK_GDN_POST_H

#include <strata/kernel.h>

#define STK_GDN_POST_CONTRACT 5u

enum { STK_POST_F32 = 1, STK_POST_F16 = 2, STK_POST_F16_DIM_MAX = 512 };
typedef enum stk_gate { STK_GATE_SIGMOID, STK_GATE_SILU } stk_gate;

typedef struct stk_gdn_post_args {
  const void *o, *z;
  const float *gain;
  float *y;
  uint16_t *yh;
  int32_t n_tokens, v_heads, v_dim;
  float eps;
  stk_gate gate;
  int32_t outputs; /* STK_POST_F32 | STK_POST_F16 */
  int32_t rows;    /* STK_F32 or STK_F16 */
} stk_gdn_post_args;

extern const stk_op stk_gdn_post_op;

#endif
