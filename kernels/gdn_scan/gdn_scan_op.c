/* gdn_scan: shapes, operation counts and test cases. */
#include "gdn_scan/gdn_scan.h"

#include <stdbool.h>

#include "common/k_rows.h"

static const char *check(const void *args) {
  const stk_gdn_scan_args *a = args;
  if (a->n_tokens < 1 || a->pos0 < 0 || a->pos0 > INT32_MAX - a->n_tokens)
    return "gdn_scan: n_tokens, pos0: a window below 2^31 expected";
  if (a->k_heads < 1 || a->v_heads < 1 || a->v_heads % a->k_heads)
    return "gdn_scan: v_heads: a multiple of k_heads expected";
  if (a->k_dim < 32 || a->k_dim % 32 || a->v_dim < 32 || a->v_dim % 32)
    return "gdn_scan: k_dim, v_dim: multiples of 32 expected";
  if (a->k_dim > STK_GDN_SCAN_K_DIM_MAX) return "gdn_scan: k_dim: at most 512 expected";
  if (!k_rows_are_known(a->rows)) return "gdn_scan: rows: f32 or f16 expected";
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  stk_gdn_scan_args *a = args;
  size_t T = (size_t)a->n_tokens, hk = (size_t)a->k_heads, hv = (size_t)a->v_heads;
  size_t dk = (size_t)a->k_dim, dv = (size_t)a->v_dim;
  const stk_dtype rows = (stk_dtype)a->rows;
  /* Unit vectors in dk dimensions have elements of about dk^-1/2. */
  tensors[0] = STK_TENSOR("qn", a->qn, hk * T * dk, rows, STK_IN, STK_FILL_UNIFORM, -0.02, 0.02);
  tensors[1] =
      STK_TENSOR("kn", a->kn, hk * (T + 2) * dk, rows, STK_IN, STK_FILL_UNIFORM, -0.15, 0.15);
  tensors[2] = STK_TENSOR("vc", a->vc, hv * T * dv, rows, STK_IN, STK_FILL_UNIFORM, -2, 2);
  tensors[3] = STK_TENSOR("gb", a->gb, hv * T * 2, STK_F32, STK_IN, STK_FILL_UNIFORM, 0, 1);
  tensors[4] = STK_TENSOR("kq", a->kq, hk * T * 3, STK_F32, STK_IN, STK_FILL_UNIFORM, -0.1, 0.1);
  tensors[5] = STK_TENSOR("state", a->state, stk_gdn_state_floats(a->v_heads, a->k_dim, a->v_dim),
                          STK_F32, STK_INOUT, STK_FILL_UNIFORM, -1, 1);
  tensors[6] = STK_TENSOR("o", a->o, hv * T * dv, rows, STK_OUT, STK_FILL_NONE, 0, 0);
  return 7;
}

/* Of a key and another row, at elements k and y of kn and of rows. */
static float dot(const stk_gdn_scan_args *a, int64_t k, const void *rows, int64_t y) {
  float sum = 0.0f;
  for (int64_t i = 0; i < a->k_dim; ++i) sum += k_rows_get(a->kn, k + i, a->rows) * k_rows_get(rows, y + i, a->rows);
  return sum;
}

/* The dots of the keys and queries that are there: a kernel may make its own. */
static void prepare_dots(const stk_gdn_scan_args *a) {
  const int64_t dk = a->k_dim, T = a->n_tokens;
  for (int64_t h = 0; h < a->k_heads; ++h)
    for (int64_t t = 0; t < T; ++t) {
      const int64_t key = (h * (T + 2) + 2 + t) * dk, q = (h * T + t) * dk;
      const bool odd = (a->pos0 + t) % 2;
      float *dots = (float *)(uintptr_t)a->kq + (h * T + t) * 3;
      dots[0] = dot(a, key, a->qn, q);
      dots[1] = odd ? dot(a, key - dk, a->kn, key) : 0.0f;
      dots[2] = odd ? dot(a, key - dk, a->qn, q) : 0.0f;
    }
}

/* Decays of every strength, so that both branches of the rule on c2 are taken;
 * scalars that a real state can have; some heads fresh. */
static void prepare(void *args, uint64_t seed) {
  stk_gdn_scan_args *a = args;
  prepare_dots(a);
  const int64_t tiles = a->v_dim / STK_GDN_TILE;
  for (int64_t h = 0; h < a->v_heads; ++h) {
    float *gb = (float *)(uintptr_t)a->gb + h * a->n_tokens * 2;
    int strong = (int)(((uint64_t)h + seed) % 3);
    for (int64_t t = 0; t < a->n_tokens; ++t) {
      if (strong == 0) gb[2 * t] = 0.9f + 0.1f * gb[2 * t];
      if (strong == 2) gb[2 * t] *= t % 7 == 3 ? 0.0f : 1e-4f;
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      float *scalars = a->state + ((h * tiles + tile) * (a->k_dim + STK_GDN_TILE_ROWS) +
                                   a->k_dim + STK_GDN_ROW_SCALARS) * STK_GDN_TILE;
      for (int i = 0; i < STK_GDN_TILE; ++i) scalars[i] = 0.0f;
      if (strong == 1 && a->pos0 % 2 == 0) continue;
      scalars[STK_GDN_C] = 0.01f;
      scalars[STK_GDN_S] = strong == 2 ? 1e-9f : 1.0f;
      scalars[STK_GDN_C1] = 0.008f;
    }
  }
}

/* The fast kernels leave a state in which nothing waits. */
static void settle(void *args) {
  const stk_gdn_scan_args *a = args;
  const int64_t tiles = a->v_dim / STK_GDN_TILE, dk = a->k_dim, T = a->n_tokens;
  for (int64_t tile = 0; tile < a->v_heads * tiles; ++tile) {
    const int64_t kh = tile / tiles / (a->v_heads / a->k_heads);
    float keys[2 * STK_GDN_SCAN_K_DIM_MAX];
    k_rows_read(a->kn, (kh * (T + 2) + T) * dk, a->rows, 2 * dk, keys);
    stk_gdn_settle_tile(a->state + tile * (dk + STK_GDN_TILE_ROWS) * STK_GDN_TILE, keys, keys + dk,
                        a->pos0 + a->n_tokens, a->k_dim);
  }
}

static void work(const void *args, stk_work *w) {
  const stk_gdn_scan_args *a = args;
  double elems = (double)a->v_heads * a->k_dim * a->v_dim;
  w->flops += 6.0 * a->n_tokens * elems; /* three fused multiply-adds an element at least */
  /* A window reads the state at least once; an even token writes it. */
  bool written = a->n_tokens > 1 || a->pos0 % 2 == 0;
  w->state_bytes += (written ? 8.0 : 4.0) * elems;
  w->io_bytes += (double)k_rows_bytes(a->n_tokens, a->rows) * (2.0 * a->k_heads * a->k_dim + 2.0 * a->v_heads * a->v_dim);
}

#define CASE(T, pos, hk, hv, dk, dv, ...) \
  {.n_tokens = T, .pos0 = pos, .k_heads = hk, .v_heads = hv, .k_dim = dk, .v_dim = dv, __VA_ARGS__}

static const stk_gdn_scan_args cases[] = {
    CASE(1, 0, 2, 6, 128, 128),  CASE(1, 1, 2, 6, 128, 128),  CASE(2, 4, 1, 1, 128, 128),
    CASE(2, 3, 1, 3, 64, 32),    CASE(3, 7, 3, 9, 32, 96),    CASE(37, 1, 2, 6, 128, 128),
    CASE(36, 0, 1, 3, 96, 64),   CASE(5, 2, 1, 4, 160, 32),   CASE(4, 9, 16, 48, 128, 128),
    CASE(64, 6, 1, 2, 64, 32),   CASE(65, 5, 1, 3, 32, 64),   CASE(130, 0, 1, 3, 128, 32),
    CASE(1, 0, 2, 6, 128, 128, .rows = STK_F16),   CASE(2, 3, 1, 3, 64, 32, .rows = STK_F16),
    CASE(37, 1, 2, 6, 128, 128, .rows = STK_F16),  CASE(5, 2, 1, 4, 160, 32, .rows = STK_F16),
    CASE(130, 0, 1, 3, 96, 32, .rows = STK_F16),
};

static int32_t params(void *args, stk_param *params) {
  stk_gdn_scan_args *a = args;
  int32_t n = 0;
  params[n++] = STK_PARAM("T", a->n_tokens);
  params[n++] = STK_PARAM("pos0", a->pos0);
  params[n++] = STK_PARAM("Hk", a->k_heads);
  params[n++] = STK_PARAM("Hv", a->v_heads);
  params[n++] = STK_PARAM("Dk", a->k_dim);
  params[n++] = STK_PARAM("Dv", a->v_dim);
  params[n++] = STK_PARAM("rows", a->rows);
  return n;
}

static const stk_gdn_scan_args released = CASE(512, 0, 16, 48, 128, 128);

STK_OP(gdn_scan, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, prepare,
       .params = params, .released = &released, .fast_bound = STK_GDN_SCAN_FAST_BOUND,
       .settle = settle);
