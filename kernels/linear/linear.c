/* isa: scalar avx2 avx512 neon
 * linear -- weights transposed in registers, see common/k_gemm.h. */
#include "linear/linear.h"

#include "common/k_gemm.h"
#include "common/k_vmath.h"

static void finish_row(const stk_linear_out *out, float *y, int64_t n) {
  int64_t r = 0;
  for (; r + VW <= n; r += VW) {
    vf v = vf_load(y + r);
    if (out->scale != 1.0f) v = vf_mul(vf_set1(out->scale), v);
    vf_store(y + r, out->act == STK_ACT_SILU ? kv_silu(v) : v);
  }
  for (; r < n; ++r) {
    float v = y[r];
    if (out->scale != 1.0f) v = out->scale * v;
    y[r] = out->act == STK_ACT_SILU ? ks_silu(v) : v;
  }
}

static void finish(const stk_linear_out *out, int64_t t0, int64_t t1, int64_t r0, int64_t r1) {
  if (out->scale == 1.0f && out->act == STK_ACT_NONE) return;
  for (int64_t t = t0; t < t1; ++t) finish_row(out, out->y + t * out->y_stride + r0, r1 - r0);
}

static int64_t count_panels(const stk_linear_args *a, int64_t rows) {
  int64_t n = 0;
  for (int32_t o = 0; o < a->n_outs; ++o) n += (a->out[o].w.n_rows + rows - 1) / rows;
  return n;
}

/* One token: each part takes a run of VW-row blocks. */
static void run_one(const stk_linear_args *a, int32_t part, int32_t n_parts) {
  int64_t begin, end, first = 0;
  stk_slice(count_panels(a, VW), 1, part, n_parts, &begin, &end);
  for (int32_t o = 0; o < a->n_outs; ++o) {
    const stk_linear_out *out = &a->out[o];
    int64_t n_blocks = (out->w.n_rows + VW - 1) / VW;
    int64_t r0 = (begin > first ? begin - first : 0) * VW;
    int64_t r1 = (end - first < n_blocks ? end - first : n_blocks) * VW;
    if (r1 > out->w.n_rows) r1 = out->w.n_rows;
    if (r0 < r1) {
      k_gemv(&out->w, a->x, r0, r1, out->y + r0);
      finish(out, 0, 1, r0, r1);
    }
    first += n_blocks;
  }
}

/* Several tokens: units are panels of K_NR rows; where there are too few for
 * the parts, each panel is cut into runs of tokens as well. */
static void run_many(const stk_linear_args *a, int32_t part, int32_t n_parts) {
  const int64_t run_tokens = 8 * K_MR;
  int64_t n_panels = count_panels(a, K_NR);
  int64_t n_runs = n_panels >= 4 * n_parts ? 1 : (a->n_tokens + run_tokens - 1) / run_tokens;
  int64_t begin, end, first = 0;
  stk_slice(n_panels * n_runs, 1, part, n_parts, &begin, &end);
  for (int32_t o = 0; o < a->n_outs; ++o) {
    const stk_linear_out *out = &a->out[o];
    int64_t out_panels = (out->w.n_rows + K_NR - 1) / K_NR;
    int64_t out_end = (first + out_panels) * n_runs;
    while (begin < end && begin < out_end) {
      int64_t panel = begin / n_runs - first, run0 = begin % n_runs;
      int64_t r0 = panel * K_NR, r1, t0 = 0, t1 = a->n_tokens;
      if (n_runs == 1) {
        /* Whole panels: up to a group of them shares each copied tile. */
        int64_t last = end < out_end ? end : out_end;
        int64_t n = last - begin < K_NR_GROUP / K_NR ? last - begin : K_NR_GROUP / K_NR;
        r1 = r0 + n * K_NR;
        begin += n;
      } else {
        int64_t run1 = end - begin < n_runs - run0 ? run0 + (end - begin) : n_runs;
        r1 = r0 + K_NR;
        t0 = run0 * run_tokens;
        if (run1 * run_tokens < t1) t1 = run1 * run_tokens;
        begin += run1 - run0;
      }
      if (r1 > out->w.n_rows) r1 = out->w.n_rows;
      k_rows rows = {a->x + t0 * a->x_stride, a->x_stride, NULL};
      k_gemm(&out->w, &rows, t1 - t0, r0, r1, out->y + t0 * out->y_stride + r0, out->y_stride);
      finish(out, t0, t1, r0, r1);
    }
    first += out_panels;
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_linear_args *a = args;
  if (a->n_tokens == 1) run_one(a, part, n_parts);
  else run_many(a, part, n_parts);
}

STK_KERNEL_LEVEL(linear, STK_LINEAR_CONTRACT, stk_linear_args, STK_EXACT, run);
