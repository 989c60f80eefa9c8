/* isa: cuda
 * roof_fma_cuda -- multiply-adds and nothing else: eight chains a thread. */
#include "common/k_cuda.h"

typedef struct stk_roof_fma_args {
  float *out; /* one a thread, so that nothing is left out */
  int32_t n;  /* steps of each chain */
} stk_roof_fma_args;

enum { CHAINS = 8 };

KC_KERNEL(roof_fma_cuda, stk_roof_fma_args, 256, 1) {
  float x[CHAINS];
  const float scale = 0.999f, add = (float)kc_thread;
  KC_UNROLL for (int i = 0; i < CHAINS; ++i) x[i] = (float)i;
  for (int step = 0; step < a->n; ++step)
    KC_UNROLL for (int i = 0; i < CHAINS; ++i) x[i] = ks_fma(x[i], scale, add);
  float sum = 0.0f;
  KC_UNROLL for (int i = 0; i < CHAINS; ++i) sum += x[i];
  a->out[(int64_t)kc_block * 256 + kc_thread] = sum;
}
