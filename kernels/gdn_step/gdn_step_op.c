/* gdn_step: one token of gdn_scan. */
#include "gdn_step/gdn_step.h"

#include "common/k_rows.h"

static const char *check(const void *args) {
  const stk_gdn_step_args *a = args;
  if (a->n_tokens != 1) return "gdn_step: n_tokens: 1 expected";
  return stk_gdn_scan_op.check(args);
}

static int32_t tensors(void *args, stk_tensor *tensors) { return stk_gdn_scan_op.tensors(args, tensors); }

static void prepare(void *args, uint64_t seed) { stk_gdn_scan_op.prepare(args, seed); }

/* An even token reads and writes the state, an odd one reads it. */
static void work(const void *args, stk_work *w) {
  const stk_gdn_step_args *a = args;
  double elems = (double)a->v_heads * a->k_dim * a->v_dim;
  int even = a->pos0 % 2 == 0;
  w->flops += (even ? 8.0 : 4.0) * elems;
  w->state_bytes += (even ? 8.0 : 4.0) * elems;
  w->io_bytes += (double)k_rows_bytes(1, a->rows) * (3.0 * a->k_heads * a->k_dim + 2.0 * a->v_heads * a->v_dim);
}

#define CASE(pos, hk, hv, dk, dv, ...) \
  {.n_tokens = 1, .pos0 = pos, .k_heads = hk, .v_heads = hv, .k_dim = dk, .v_dim = dv, __VA_ARGS__}

static const stk_gdn_step_args cases[] = {
    CASE(0, 2, 6, 128, 128), CASE(1, 2, 6, 128, 128),   CASE(8, 1, 1, 32, 96),
    CASE(7, 3, 9, 160, 32),  CASE(6, 16, 48, 128, 128), CASE(5, 16, 64, 128, 128),
    CASE(8, 2, 6, 128, 128, .rows = STK_F16), CASE(7, 3, 9, 160, 32, .rows = STK_F16),
};

static int32_t params(void *args, stk_param *params) {
  stk_gdn_step_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("pos0", a->pos0);
  params[n++] = STK_PARAM("Hk", a->k_heads);
  params[n++] = STK_PARAM("Hv", a->v_heads);
  params[n++] = STK_PARAM("Dk", a->k_dim);
  params[n++] = STK_PARAM("Dv", a->v_dim);
  params[n++] = STK_PARAM("rows", a->rows);
  return n;
}

static const stk_gdn_step_args released = CASE(0, 16, 48, 128, 128);

STK_OP(gdn_step, STK_GDN_STEP_CONTRACT, stk_gdn_step_args, prepare,
       .params = params, .released = &released);
