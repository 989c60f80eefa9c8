/* linear, the oracle: every output by itself. */
#include "common/k_oracle.h"
#include "linear/linear.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_linear_args *a = args;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t)
    for (int32_t o = 0; o < a->n_outs; ++o) {
      const stk_linear_out *out = &a->out[o];
      for (int64_t r = 0; r < out->w.n_rows; ++r) {
        float y = ko_seg256(&out->w, r, a->x + t * a->x_stride);
        if (out->scale != 1.0f) y = out->scale * y;
        out->y[t * out->y_stride + r] = out->act == STK_ACT_SILU ? ks_silu(y) : y;
      }
    }
}

STK_KERNEL(linear, oracle, "scalar", STK_LINEAR_CONTRACT, stk_linear_args, STK_EXACT, run);
