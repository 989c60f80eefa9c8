/* isa: scalar avx2 avx512 neon
 * qsa_decode -- a unit of work is one split of a token's list for up to 12 heads of
 * one kv head; its sums go where qsa_merge finds them. */
#include "qsa_decode/qsa_decode.h"

#include "common/k_attn.h"

/* Places from .. end - 1 of token t's list. */
static void split(const stk_qsa_decode_args *a, int64_t t, int64_t kv, int64_t h0, int n_heads,
                  int64_t from, int64_t end, k_soft *soft, k_stage *stage) {
  const stk_cache cache = stk_qsa_attn_kv(a);
  const int32_t *ids = stk_qsa_attn_is_dense(a, t) ? NULL : a->ids + t * a->ids_stride;
  for (int64_t at = from; at < end; at += K_ATTN_TILE) {
    k_tile tile;
    int n = (int)(end - at < K_ATTN_TILE ? end - at : K_ATTN_TILE);
    k_ahead ahead;
    const int64_t more = end - at - K_ATTN_TILE;
    k_attn_stage(&cache, kv, ids, at, n, stage, &tile);
    k_attn_look_ahead(&cache, kv, ids, at + K_ATTN_TILE,
                      more < 0 ? 0 : more < K_ATTN_TILE ? (int)more : K_ATTN_TILE,
                      k_attn_steps_of(n_heads), &ahead);
    k_attn_tile(&tile, n, a->q + (t * a->q_heads + h0) * a->head_dim, a->head_dim, n_heads, at == from,
                &ahead, soft);
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_decode_args *a = args;
  const int64_t dim = a->head_dim, splits = stk_qsa_splits_max(a->budget, a->ratio);
  const int64_t per_kv = a->q_heads / a->kv_heads, groups = (per_kv + K_ATTN_HEADS - 1) / K_ATTN_HEADS;
  float acc[K_ATTN_HEADS * K_ATTN_DIM_MAX];
  k_soft soft = {.acc = acc};
  k_stage stage;
  int64_t begin, end;
  stk_slice(a->n_tokens * a->kv_heads * groups * splits, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t number = i % splits, group = i / splits % groups, kv = i / splits / groups % a->kv_heads;
    const int64_t t = i / splits / groups / a->kv_heads, from = number * STK_ATTN_SPLIT;
    const int64_t n = stk_qsa_n_cells(a, t), h0 = kv * per_kv + group * K_ATTN_HEADS;
    const int64_t heads = per_kv - group * K_ATTN_HEADS;
    const int n_heads = (int)(heads < K_ATTN_HEADS ? heads : K_ATTN_HEADS);
    if (from >= n) continue;
    split(a, t, kv, h0, n_heads, from, n - from < STK_ATTN_SPLIT ? n : from + STK_ATTN_SPLIT, &soft, &stage);
    for (int h = 0; h < n_heads; ++h) {
      float *out = stk_qsa_partial(a, t * a->q_heads + h0 + h, number);
      memcpy(out, acc + h * dim, (size_t)dim * sizeof(float));
      out[dim] = soft.m[h];
      out[dim + 1] = soft.l[h];
    }
  }
}

STK_KERNEL_LEVEL(qsa_decode, STK_QSA_DECODE_CONTRACT, stk_qsa_decode_args, STK_EXACT, run);
