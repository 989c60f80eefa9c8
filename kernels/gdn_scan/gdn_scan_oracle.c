/* gdn_scan, the oracle: one column at a time. */
#include "common/k_oracle.h"
#include "gdn_scan/gdn_scan.h"

static float rows4(const float *s, int64_t stride, const float *x, int64_t n) {
  float block[4];
  for (int64_t b = 0; b < 4; ++b) {
    float sum = 0.0f;
    for (int64_t i = b * (n / 4); i < (b + 1) * (n / 4); ++i) sum = fmaf(s[i * stride], x[i], sum);
    block[b] = sum;
  }
  return (block[0] + block[1]) + (block[2] + block[3]);
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_gdn_scan_args *a = args;
  const int64_t dk = a->k_dim, dv = a->v_dim, ratio = a->v_heads / a->k_heads;
  int64_t begin, end;
  stk_slice(a->v_heads, 1, part, n_parts, &begin, &end);
  for (int64_t h = begin; h < end; ++h)
    for (int64_t t = 0; t < a->n_tokens; ++t) {
      int64_t key = t * a->k_heads + h / ratio, value = t * a->v_heads + h;
      const float *k = a->kn + key * dk, *q = a->qn + key * dk;
      float d = a->gb[value * 2], beta = a->gb[value * 2 + 1];
      for (int64_t j = 0; j < dv; ++j) {
        float *s = a->state + h * dk * dv + j;
        float p = rows4(s, dv, k, dk), r = rows4(s, dv, q, dk);
        float delta = beta * fmaf(-d, p, a->vc[value * dv + j]);
        a->o[value * dv + j] = fmaf(a->kq[key], delta, d * r);
        for (int64_t i = 0; i < dk; ++i) s[i * dv] = fmaf(k[i], delta, d * s[i * dv]);
      }
    }
}

STK_KERNEL(gdn_scan, oracle, "scalar", STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
