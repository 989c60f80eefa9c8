/* gdn_pre: shapes, operation counts and test cases. */
#include "gdn_pre/gdn_pre.h"

#include "common/k_rows.h"

static const char *check(const void *args) {
  const stk_gdn_pre_args *a = args;
  if (a->n_tokens < 1 || a->pos0 < 0 || a->pos0 > INT32_MAX - a->n_tokens)
    return "gdn_pre: n_tokens, pos0: a window below 2^31 expected";
  if (a->kinds < 1 || a->kinds > STK_GDN_ALL) return "gdn_pre: kinds: 1 to 7 expected";
  if (a->k_heads < 1 || a->v_heads < 1 || a->v_heads % a->k_heads)
    return "gdn_pre: v_heads: a multiple of k_heads expected";
  if (a->k_dim < 32 || a->k_dim % 32 || a->v_dim < 32 || a->v_dim % 32)
    return "gdn_pre: k_dim, v_dim: multiples of 32 expected";
  if (a->k_dim > STK_GDN_PRE_K_DIM_MAX) return "gdn_pre: k_dim: at most 512 expected";
  if (!k_rows_are_known(a->rows)) return "gdn_pre: rows: f32 or f16 expected";
  if (a->n_taps < 2 || a->n_taps > STK_CONV_TAPS_MAX) return "gdn_pre: n_taps: 2 to 16 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_gdn_pre_args *a = args;
  size_t T = (size_t)a->n_tokens, hk = (size_t)a->k_heads, hv = (size_t)a->v_heads;
  size_t dk = (size_t)a->k_dim, dv = (size_t)a->v_dim, taps = (size_t)a->n_taps;
  size_t channels = 2 * hk * dk + hv * dv;
  const stk_dtype rows = (stk_dtype)a->rows;
  int32_t n = 0;
  tensors[n++] = STK_TENSOR("qkv", a->qkv, T * channels, rows, STK_IN, STK_FILL_UNIFORM, -3, 3);
  tensors[n++] = STK_TENSOR("ab", a->ab, T * 2 * hv, STK_F32, STK_IN, STK_FILL_UNIFORM, -6, 6);
  tensors[n++] =
      STK_TENSOR("conv_w", a->conv_w, channels * taps, STK_F32, STK_IN, STK_FILL_UNIFORM, -1, 1);
  tensors[n++] = STK_TENSOR("a_log", a->a_log, hv, STK_F32, STK_IN, STK_FILL_UNIFORM, -6, 2);
  tensors[n++] = STK_TENSOR("dt_bias", a->dt_bias, hv, STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 19);
  tensors[n++] = STK_TENSOR("history", a->history, (taps - 1) * channels, rows, STK_INOUT,
                            STK_FILL_UNIFORM, -3, 3);
  tensors[n++] =
      STK_TENSOR("k_tail", a->k_tail, 2 * hk * dk, rows, STK_INOUT, STK_FILL_UNIFORM, -0.2, 0.2);
  tensors[n++] = STK_TENSOR("qn", a->qn, T * hk * dk, rows, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("kn", a->kn, (T + 2) * hk * dk, rows, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("vc", a->vc, T * hv * dv, rows, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("gb", a->gb, T * hv * 2, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  tensors[n++] = STK_TENSOR("kq", a->kq, T * hk * 3, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return n;
}

static void work(const void *args, stk_work *w) {
  const stk_gdn_pre_args *a = args;
  double qk = a->kinds & STK_GDN_KEYS ? 2.0 * a->k_heads * a->k_dim : 0.0;
  double channels = qk + (a->kinds & STK_GDN_VALUES ? (double)a->v_heads * a->v_dim : 0.0);
  double gates = a->kinds & STK_GDN_GATES ? 2.0 * a->v_heads : 0.0;
  /* A silu is about 24 operations, silu_half 18; norms and dots are seven a q or k element; a decay
   * and a write strength about 60 each. */
  w->flops += a->n_tokens * (channels * (2.0 * a->n_taps + (a->rows == STK_F16 ? 18.0 : 24.0)) + 7.0 * qk + 60.0 * gates);
  w->weight_bytes += 4.0 * channels * a->n_taps;
  const double row_bytes = (double)k_rows_bytes(1, a->rows);
  w->state_bytes += 2.0 * row_bytes * channels * (a->n_taps - 1);
  w->io_bytes += a->n_tokens * (2.0 * row_bytes * channels + 8.0 * gates);
}

#define CASE(T, pos, hk, hv, dk, dv, taps, kinds_, ...)                                           \
  {.n_tokens = T, .pos0 = pos, .k_heads = hk, .v_heads = hv, .k_dim = dk, .v_dim = dv,           \
   .n_taps = taps, .kinds = kinds_, __VA_ARGS__}

static const stk_gdn_pre_args cases[] = {
    CASE(1, 0, 2, 6, 128, 128, 4, STK_GDN_ALL),   CASE(2, 1, 2, 6, 128, 128, 4, STK_GDN_ALL),
    CASE(3, 6, 1, 1, 32, 64, 4, STK_GDN_ALL),     CASE(37, 3, 3, 9, 128, 128, 4, STK_GDN_ALL),
    CASE(5, 0, 2, 4, 96, 32, 2, STK_GDN_ALL),     CASE(4, 9, 1, 2, 64, 160, 7, STK_GDN_ALL),
    CASE(32, 3, 1, 2, 32, 64, 7, STK_GDN_ALL), /* key runs of 7 and 8 tokens on a big GPU */
    CASE(3, 1, 16, 48, 128, 128, 4, STK_GDN_ALL), CASE(9, 4, 2, 6, 128, 128, 4, STK_GDN_KEYS),
    CASE(9, 4, 2, 6, 128, 128, 4, STK_GDN_VALUES), CASE(9, 4, 2, 6, 128, 128, 4, STK_GDN_GATES),
    CASE(1, 0, 2, 6, 128, 128, 4, STK_GDN_ALL, .rows = STK_F16),
    CASE(37, 3, 9, 9, 128, 128, 4, STK_GDN_ALL, .rows = STK_F16),
    CASE(4, 9, 1, 2, 96, 160, 7, STK_GDN_ALL, .rows = STK_F16),
    CASE(9, 4, 2, 6, 128, 128, 4, STK_GDN_KEYS, .rows = STK_F16),
};

static int32_t params(void *args, stk_param *params) {
  stk_gdn_pre_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("pos0", a->pos0);
  params[n++] = STK_PARAM("Hk", a->k_heads);
  params[n++] = STK_PARAM("Hv", a->v_heads);
  params[n++] = STK_PARAM("Dk", a->k_dim);
  params[n++] = STK_PARAM("Dv", a->v_dim);
  params[n++] = STK_PARAM("taps", a->n_taps);
  params[n++] = STK_PARAM("rows", a->rows);
  return n;
}

static const stk_gdn_pre_args released = CASE(512, 0, 16, 48, 128, 128, 4, STK_GDN_ALL);

STK_OP(gdn_pre, STK_GDN_PRE_CONTRACT, stk_gdn_pre_args, NULL,
       .params = params, .released = &released);
