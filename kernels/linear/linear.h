/* linear: one row of activations a token times up to STK_LINEAR_OUTS_MAX weight
 * matrices that share it (a layer's projections), with an optional activation.
 *
 *   y_o[t][r] = act_o( scale_o * sum_k w_o[r][k] * x[t][k] )
 *
 * Shapes    x    in   f32 [T][K]    row stride x_stride >= K
 *           w_o  in   f32, f16 or bf16 [N_o][K], as stored
 *           y_o  out  f32 [T][N_o]  row stride y_stride >= N_o; what lies
 *                                   between the rows is not written
 * Sum order seg256 (k_gemm.h). The scale is one multiplication, left out when
 *           scale_o is 1; act is the identity or silu.
 * Numerics  exact. A row depends on no other row.
 * Threads   parts cut weight rows, and tokens where there are few rows.
 * Work      2 * T * K * N flops; every weight is read once a call. */
#ifndef STK_LINEAR_H
#define STK_LINEAR_H

#include <strata/kernel.h>

#define STK_LINEAR_CONTRACT 2u
enum { STK_LINEAR_OUTS_MAX = 5 };

typedef enum stk_act { STK_ACT_NONE, STK_ACT_SILU } stk_act;

typedef struct stk_linear_out {
  stk_matrix w;
  float *y;
  int64_t y_stride;
  float scale;
  stk_act act;
} stk_linear_out;

typedef struct stk_linear_args {
  const float *x;
  int64_t x_stride;
  int32_t n_tokens, n_outs;
  stk_linear_out out[STK_LINEAR_OUTS_MAX];
} stk_linear_args;

extern const stk_op stk_linear_op;

#endif
