/* gdn_scan: shapes, operation counts and test cases. */
#include "gdn_scan/gdn_scan.h"

static const char *check(const void *args) {
  const stk_gdn_scan_args *a = args;
  if (a->n_tokens < 1) return "gdn_scan: n_tokens: at least 1 expected";
  if (a->k_heads < 1 || a->v_heads < 1 || a->v_heads % a->k_heads)
    return "gdn_scan: v_heads: a multiple of k_heads expected";
  if (a->k_dim < 32 || a->k_dim % 32 || a->v_dim < 32 || a->v_dim % 32)
    return "gdn_scan: k_dim, v_dim: multiples of 32 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_gdn_scan_args *a = args;
  size_t T = (size_t)a->n_tokens, hk = (size_t)a->k_heads, hv = (size_t)a->v_heads;
  size_t dk = (size_t)a->k_dim, dv = (size_t)a->v_dim;
  /* Unit vectors in dk dimensions have elements of about dk^-1/2. */
  tensors[0] = STK_TENSOR("qn", a->qn, T * hk * dk, STK_F32, STK_IN, STK_FILL_UNIFORM, -0.02, 0.02);
  tensors[1] = STK_TENSOR("kn", a->kn, T * hk * dk, STK_F32, STK_IN, STK_FILL_UNIFORM, -0.2, 0.2);
  tensors[2] = STK_TENSOR("vc", a->vc, T * hv * dv, STK_F32, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[3] = STK_TENSOR("gb", a->gb, T * hv * 2, STK_F32, STK_IN, STK_FILL_UNIFORM, 0, 1);
  tensors[4] = STK_TENSOR("kq", a->kq, T * hk, STK_F32, STK_IN, STK_FILL_UNIFORM, -0.1, 0.1);
  tensors[5] =
      STK_TENSOR("state", a->state, hv * dk * dv, STK_F32, STK_INOUT, STK_FILL_UNIFORM, -1, 1);
  tensors[6] = STK_TENSOR("o", a->o, T * hv * dv, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return 7;
}

static void work(const void *args, stk_work *w) {
  const stk_gdn_scan_args *a = args;
  double elems = (double)a->v_heads * a->k_dim * a->v_dim;
  w->flops += 6.0 * a->n_tokens * elems; /* three fused multiply-adds an element at least */
  w->state_bytes += 8.0 * elems;
  w->io_bytes += 4.0 * a->n_tokens * (2.0 * a->k_heads * a->k_dim + 2.0 * a->v_heads * a->v_dim);
}

#define CASE(T, hk, hv, dk, dv) {.n_tokens = T, .k_heads = hk, .v_heads = hv, .k_dim = dk, .v_dim = dv}

static const stk_gdn_scan_args cases[] = {
    CASE(1, 2, 6, 128, 128), CASE(2, 1, 1, 128, 128),  CASE(3, 3, 9, 32, 96),
    CASE(37, 2, 6, 128, 128), CASE(5, 1, 4, 160, 32), CASE(4, 16, 48, 128, 128),
};

STK_OP(gdn_scan, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, NULL);
