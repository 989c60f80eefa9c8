/* isa: scalar avx2 avx512 neon
 * moe_down -- a part owns columns of y and adds the experts to them one after
 * the other, in ascending id. */
#include "moe_down/moe_down.h"

#include "common/k_gemm.h"
#include "common/k_moe.h"

/* y = weight * out, or += as one fused multiply-add. */
static void add_weighted(float *y, float weight, const float *out, int64_t n, int first) {
  int64_t d = 0;
  for (; d + VW <= n; d += VW) {
    vf v = vf_load(out + d), w = vf_set1(weight);
    vf_store(y + d, first ? vf_mul(w, v) : vf_fma(w, v, vf_load(y + d)));
  }
  for (; d < n; ++d) y[d] = first ? weight * out[d] : ks_fma(weight, out[d], y[d]);
}

/* Columns r0 .. r1 - 1 of y for the one token. */
static void one_token(const stk_moe_down_args *a, int64_t r0, int64_t r1) {
  float out[K_GEMV_ROWS];
  for (int64_t r = r0; r < r1; r += K_GEMV_ROWS) {
    int64_t end = r + K_GEMV_ROWS < r1 ? r + K_GEMV_ROWS : r1;
    for (int64_t i = 0; i < a->n_used; ++i) {
      k_gemv(&a->down[a->expert[i]], a->h + i * a->expert_ff, r, end, out);
      add_weighted(a->y + r, a->weight[i], out, end - r, i == 0);
    }
    k_gemv(&a->down[a->n_experts], a->h_shared, r, end, out);
    add_weighted(a->y + r, a->shared[0], out, end - r, 0);
  }
}

/* At most K_NR columns of y, for all tokens. */
static void panel(const stk_moe_down_args *a, int64_t r0, int64_t r1) {
  float out[K_MOE_RUN * K_NR];
  k_moe_run run;
  for (int32_t e = 0; e <= a->n_experts; ++e) {
    const int shared = e == a->n_experts;
    for (int32_t t = 0; t < a->n_tokens;) {
      t = shared ? k_moe_next_shared(a->n_tokens, t, &run)
                 : k_moe_next(a->expert, a->n_tokens, a->n_used, e, t, &run);
      if (run.n == 0) continue;
      k_rows rows = {shared ? a->h_shared : a->h, shared ? a->shared_ff : a->expert_ff, run.slot};
      k_gemm(&a->down[e], &rows, run.n, r0, r1, out, K_NR);
      for (int32_t i = 0; i < run.n; ++i) {
        float weight = shared ? a->shared[run.token[i]] : a->weight[run.slot[i]];
        int first = !shared && run.slot[i] % a->n_used == 0;
        add_weighted(a->y + (int64_t)run.token[i] * a->hidden + r0, weight, out + i * K_NR, r1 - r0,
                     first);
      }
    }
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_moe_down_args *a = args;
  int64_t begin, end;
  stk_slice(a->hidden, a->n_tokens == 1 ? VW : K_NR, part, n_parts, &begin, &end);
  if (a->n_tokens == 1) {
    one_token(a, begin, end);
    return;
  }
  for (int64_t r = begin; r < end; r += K_NR) panel(a, r, r + K_NR < end ? r + K_NR : end);
}

STK_KERNEL_LEVEL(moe_down, STK_MOE_DOWN_CONTRACT, stk_moe_down_args, STK_EXACT, run);
