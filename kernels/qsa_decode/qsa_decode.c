/* isa: scalar avx2 avx512 neon
 * qsa_decode -- a unit of work is one split of a token's list for up to 12 heads of
 * one kv head; its sums go where qsa_merge finds them. */
#include "qsa_decode/qsa_decode.h"

#include "common/k_attn.h"

/* A group of up to K_ATTN_HEADS heads of token t: number `group` of kv head kv. */
static k_span span_of(const stk_qsa_decode_args *a, int64_t t, int64_t kv, int64_t group) {
  const int64_t per_kv = a->q_heads / a->kv_heads, first = group * K_ATTN_HEADS;
  return (k_span){
      .cache = stk_qsa_attn_kv(a), .kv = kv,
      .ids = stk_qsa_attn_is_dense(a, t) ? NULL : a->ids + t * a->ids_stride,
      .q = a->q + (t * a->q_heads + kv * per_kv + first) * a->head_dim,
      .n_heads = (int)(per_kv - first < K_ATTN_HEADS ? per_kv - first : K_ATTN_HEADS),
      .n_tokens = 1, .n_cells = {stk_qsa_n_cells(a, t)}};
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_decode_args *a = args;
  const int64_t dim = a->head_dim, splits = stk_qsa_splits_max(a->budget, a->ratio);
  const int64_t per_kv = a->q_heads / a->kv_heads, groups = (per_kv + K_ATTN_HEADS - 1) / K_ATTN_HEADS;
  _Alignas(64) float acc[K_ATTN_HEADS * K_ATTN_DIM_MAX];
  k_soft soft = {.acc = acc};
  k_stage stage;
  int64_t begin, end;
  stk_slice(a->n_tokens * a->kv_heads * groups * splits, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t number = i % splits, group = i / splits % groups, kv = i / splits / groups % a->kv_heads;
    const int64_t t = i / splits / groups / a->kv_heads;
    const k_span span = span_of(a, t, kv, group);
    if (number * STK_ATTN_SPLIT >= span.n_cells[0]) continue;
    k_attn_split(&span, number * STK_ATTN_SPLIT, STK_ATTN_SPLIT, number > 0 && i > begin, &soft, &stage);
    for (int h = 0; h < span.n_heads; ++h) {
      const int64_t row = t * a->q_heads + kv * per_kv + group * K_ATTN_HEADS + h;
      float *out = stk_qsa_partial(a, row, number);
      memcpy(out, acc + h * dim, (size_t)dim * sizeof(float));
      out[dim] = soft.m[h];
      out[dim + 1] = soft.l[h];
    }
  }
}

STK_KERNEL_LEVEL(qsa_decode, STK_QSA_DECODE_CONTRACT, stk_qsa_decode_args, STK_EXACT, run);
