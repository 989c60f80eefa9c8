/* isa: scalar avx2 avx512 neon
 * ple_mix -- gv and nv hold the normalised key and query of their row until they
 * are written. */
#include "ple_mix/ple_mix.h"

#include <math.h>

#include "common/k_norm.h"

static void scale_row(const float *x, float factor, int64_t n, float *y) {
  int64_t d = 0;
  for (; d + VW <= n; d += VW) vf_store(y + d, vf_mul(vf_set1(factor), vf_load(x + d)));
  for (; d < n; ++d) y[d] = factor * x[d];
}

static float signed_root(float s) {
  float size = s < 0.0f ? -s : s;
  float root = ks_sqrt(size < 1e-6f ? 1e-6f : size);
  return s < 0.0f ? -root : s == 0.0f ? 0.0f : root;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_ple_mix_args *a = args;
  const int64_t H = a->hidden;
  const float scale = (float)(1.0 / sqrt((double)H));
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->n_streams, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    int64_t t = i / a->n_streams, c = i % a->n_streams;
    float *gv = a->gv + i * H, *nv = a->nv + i * H;
    k_rms_norm(a->key_raw + i * H, a->key_gain + c * H, a->eps, H, gv);
    k_rms_norm(a->r + i * H, a->query_gain + c * H, a->eps, H, nv);
    float gate = ks_sigmoid(signed_root(k_dot(gv, nv, H) * scale));
    scale_row(a->val + t * H, gate, H, gv);
    k_rms_norm(gv, a->conv_gain + c * H, a->eps, H, nv);
  }
}

STK_KERNEL_LEVEL(ple_mix, STK_PLE_MIX_CONTRACT, stk_ple_mix_args, STK_EXACT, run);
