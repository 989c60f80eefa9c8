/* isa: scalar avx2 avx512 neon
 * moe_up -- one token: matrix times vector, expert by expert. Several: for each
 * expert, its tokens are gathered and a panel of gate and up rows is multiplied
 * with all of them. */
#include "moe_up/moe_up.h"

#include "common/k_gemm.h"
#include "common/k_moe.h"
#include "common/k_vmath.h"

static void activate(const float *gate, const float *up, int64_t n, float *h) {
  int64_t f = 0;
  for (; f + VW <= n; f += VW)
    vf_store(h + f, vf_mul(kv_silu(vf_load(gate + f)), vf_load(up + f)));
  for (; f < n; ++f) h[f] = ks_silu(gate[f]) * up[f];
}

/* Rows r0 .. r1 - 1 of expert e for the one token. */
static void one_token(const stk_moe_up_args *a, int64_t e, int64_t r0, int64_t r1, float *h) {
  float gate[K_GEMV_ROWS], up[K_GEMV_ROWS];
  for (int64_t r = r0; r < r1; r += K_GEMV_ROWS) {
    int64_t end = r + K_GEMV_ROWS < r1 ? r + K_GEMV_ROWS : r1;
    k_gemv(&a->gate[e], a->x, r, end, gate);
    k_gemv(&a->up[e], a->x, r, end, up);
    activate(gate, up, end - r, h + r);
  }
}

/* A panel of at most K_NR rows of expert e for all its tokens. */
static void panel(const stk_moe_up_args *a, int32_t e, int64_t r0, int64_t r1) {
  float gate[K_MOE_RUN * K_NR], up[K_MOE_RUN * K_NR];
  const int shared = e == a->n_experts;
  const int64_t ff = shared ? a->shared_ff : a->expert_ff;
  float *h = shared ? a->h_shared : a->h;
  k_moe_run run;
  for (int32_t t = 0; t < a->n_tokens;) {
    t = shared ? k_moe_next_shared(a->n_tokens, t, &run)
               : k_moe_next(a->expert, a->n_tokens, a->n_used, e, t, &run);
    if (run.n == 0) continue;
    k_rows rows = {a->x, a->hidden, run.token};
    k_gemm(&a->gate[e], &rows, run.n, r0, r1, gate, K_NR);
    k_gemm(&a->up[e], &rows, run.n, r0, r1, up, K_NR);
    for (int32_t i = 0; i < run.n; ++i)
      activate(gate + i * K_NR, up + i * K_NR, r1 - r0, h + run.slot[i] * ff + r0);
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_moe_up_args *a = args;
  const int one = a->n_tokens == 1;
  const int64_t unit_rows = one ? VW : K_NR, n_routed = one ? a->n_used : a->n_experts;
  const int64_t units = (a->expert_ff + unit_rows - 1) / unit_rows;
  const int64_t shared_units = (a->shared_ff + unit_rows - 1) / unit_rows;
  int64_t begin, end;
  stk_slice(n_routed * units + shared_units, 1, part, n_parts, &begin, &end);
  while (begin < end) {
    const int shared = begin >= n_routed * units;
    const int64_t i = shared ? n_routed : begin / units, first = i * units;
    const int64_t ff = shared ? a->shared_ff : a->expert_ff;
    const int64_t last = first + (shared ? shared_units : units);
    /* One token takes all its rows of an expert at once, many go by panels. */
    int64_t stop = one ? (end < last ? end : last) : begin + 1;
    int64_t r0 = (begin - first) * unit_rows, r1 = (stop - first) * unit_rows;
    if (r1 > ff) r1 = ff;
    if (!one) panel(a, (int32_t)i, r0, r1);
    else if (shared) one_token(a, a->n_experts, r0, r1, a->h_shared);
    else one_token(a, a->expert[i], r0, r1, a->h + i * ff);
    begin = stop;
  }
}

STK_KERNEL_LEVEL(moe_up, STK_MOE_UP_CONTRACT, stk_moe_up_args, STK_EXACT, run);
