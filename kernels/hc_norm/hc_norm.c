/* isa: scalar avx2 avx512 neon
 * hc_norm -- a row of one stream stays in the first-level cache for its three
 * passes: write, squares, scale. */
#include "hc_norm/hc_norm.h"

#include "common/k_norm.h"

static void add_scaled(float *r, const float *y, float s, int64_t n) {
  int64_t d = 0;
  for (; d + VW <= n; d += VW) vf_store(r + d, vf_fma(vf_set1(s), vf_load(y + d), vf_load(r + d)));
  for (; d < n; ++d) r[d] = ks_fma(s, y[d], r[d]);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_hc_norm_args *a = args;
  const int64_t hidden = a->hidden;
  const float inv_streams = 1.0f / (float)a->n_streams;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->n_streams, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    int64_t t = i / a->n_streams, c = i % a->n_streams;
    float *r = a->r + i * hidden;
    if (a->y) {
      float s = 2.0f * ks_sigmoid(a->inject[t * a->inject_stride + c] * inv_streams);
      add_scaled(r, a->y + t * hidden, s, hidden);
    }
    a->mean_square[i] = k_rms_norm(r, a->gain + c * hidden, a->eps, hidden, a->n + i * hidden);
  }
}

STK_KERNEL_LEVEL(hc_norm, STK_HC_NORM_CONTRACT, stk_hc_norm_args, STK_EXACT, run);
