/* isa: scalar avx2 avx512 neon
 * hc_mix -- element by element. */
#include "hc_mix/hc_mix.h"

#include "common/k_vmath.h"

/* x[d] for d0 <= d < d1 of one token. */
static void mix_row(const stk_hc_mix_args *a, int64_t t, int64_t d0, int64_t d1) {
  const int64_t hidden = a->hidden;
  const float *u = a->u + t * hidden * a->n_streams, *n = a->n + t * hidden * a->n_streams;
  const float inv_streams = 1.0f / (float)a->n_streams;
  int64_t d = d0;
  for (; d + VW <= d1; d += VW) {
    vf sum = vf_mul(kv_sigmoid(vf_load(u + d)), vf_load(n + d));
    for (int64_t at = d + hidden; at < hidden * a->n_streams; at += hidden)
      sum = vf_fma(kv_sigmoid(vf_load(u + at)), vf_load(n + at), sum);
    vf_store(a->x + t * hidden + d, vf_mul(sum, vf_set1(inv_streams)));
  }
  for (; d < d1; ++d) {
    float sum = ks_sigmoid(u[d]) * n[d];
    for (int64_t at = d + hidden; at < hidden * a->n_streams; at += hidden)
      sum = ks_fma(ks_sigmoid(u[at]), n[at], sum);
    a->x[t * hidden + d] = sum * inv_streams;
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_hc_mix_args *a = args;
  const int64_t hidden = a->hidden;
  int64_t begin, end;
  stk_slice(a->n_tokens * hidden, 16, part, n_parts, &begin, &end);
  while (begin < end) {
    int64_t t = begin / hidden, d = begin % hidden;
    int64_t n = hidden - d < end - begin ? hidden - d : end - begin;
    mix_row(a, t, d, d + n);
    begin += n;
  }
}

STK_KERNEL_LEVEL(hc_mix, STK_HC_MIX_CONTRACT, stk_hc_mix_args, STK_EXACT, run);
