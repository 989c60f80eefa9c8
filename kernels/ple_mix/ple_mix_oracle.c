/* ple_mix, the oracle. gv and nv hold key and query until they are needed. */
#include "common/k_oracle.h"
#include "ple_mix/ple_mix.h"

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_ple_mix_args *a = args;
  const int64_t H = a->hidden;
  int64_t begin, end;
  stk_slice((int64_t)a->n_tokens * a->n_streams, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    int64_t t = i / a->n_streams, c = i % a->n_streams;
    float *gv = a->gv + i * H, *nv = a->nv + i * H;
    ko_rms_norm(a->key_raw + i * H, a->key_gain + c * H, a->eps, H, gv);
    ko_rms_norm(a->r + i * H, a->query_gain + c * H, a->eps, H, nv);
    float s = ko_tree32(gv, nv, H) * (float)(1.0 / sqrt((double)H));
    float root = sqrtf(fabsf(s) < 1e-6f ? 1e-6f : fabsf(s));
    float gate = ks_sigmoid(s < 0.0f ? -root : s == 0.0f ? 0.0f : root);
    for (int64_t d = 0; d < H; ++d) gv[d] = gate * a->val[t * H + d];
    ko_rms_norm(gv, a->conv_gain + c * H, a->eps, H, nv);
  }
}

STK_KERNEL(ple_mix, oracle, "scalar", STK_PLE_MIX_CONTRACT, stk_ple_mix_args, STK_EXACT, run);
