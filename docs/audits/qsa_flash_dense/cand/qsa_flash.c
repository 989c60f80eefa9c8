/* isa: scalar avx2 avx512 neon
 * qsa_flash -- a unit of work is up to 12 heads of one kv head for one sparse token
 * or up to four neighbouring dense ones, which go through the same tiles. Each tile
 * is staged once a unit; splits are merged as soon as they are done. */
#include "qsa_flash/qsa_flash.h"

#include "common/k_attn.h"

_Static_assert((int)K_ATTN_TILE == STK_ATTN_TILE && (int)K_ATTN_DIM_MAX == STK_HEAD_DIM_MAX, "one contract");

/* Tokens t .., heads h .. of one kv head. */
typedef struct unit {
  const stk_qsa_flash_args *a;
  int64_t t, h;
  k_span span;
} unit;

/* What a unit accumulates: the finished splits and the running one of each token. */
typedef struct sums {
  k_soft total[K_ATTN_TOKENS], next[K_ATTN_TOKENS];
  _Alignas(64) float acc[2 * K_ATTN_TOKENS * K_ATTN_HEADS * K_ATTN_DIM_MAX];
} sums;

static void finish(const unit *u, int i, const k_soft *total) {
  const stk_qsa_flash_args *a = u->a;
  const int64_t dim = a->head_dim, row = (u->t + i) * a->q_heads + u->h;
  for (int64_t h = 0; h < u->span.n_heads; ++h)
    k_attn_finish(total->acc + h * dim, u->span.ids && a->n_ids[u->t] < 0 ? NAN : 1.0f / total->l[h],
                  a->q_raw + (row + h) * 2 * dim + dim, dim,
                  a->outputs & STK_ATTN_F32 ? a->out + (row + h) * dim : NULL,
                  a->outputs & STK_ATTN_F16 ? a->out_half + (row + h) * dim : NULL);
}

static void attend(const unit *u, sums *s, k_stage *stage) {
  const k_span *span = &u->span;
  const int64_t dim = u->a->head_dim, longest = span->n_cells[span->n_tokens - 1];
  for (int i = 0; i < span->n_tokens; ++i) {
    s->total[i].acc = s->acc + 2 * i * K_ATTN_HEADS * dim;
    s->next[i].acc = s->total[i].acc + K_ATTN_HEADS * dim;
  }
  for (int64_t from = 0; from < longest; from += STK_ATTN_SPLIT) {
    k_attn_split(span, from, STK_ATTN_SPLIT, from > 0, from ? s->next : s->total, stage);
    for (int i = 0; i < span->n_tokens && from; ++i)
      if (span->n_cells[i] > from) k_attn_merge(&s->total[i], &s->next[i], span->n_heads, dim);
  }
  for (int i = 0; i < span->n_tokens; ++i) finish(u, i, &s->total[i]);
}

/* Block number `block`: of dense tokens, K_ATTN_TOKENS each, then of sparse ones. */
static void set_tokens(unit *u, int64_t block, int64_t n_dense, int64_t dense_blocks) {
  const stk_qsa_flash_args *a = u->a;
  k_span *span = &u->span;
  if (block >= dense_blocks) {
    u->t = n_dense + block - dense_blocks;
    span->ids = a->ids + u->t * a->ids_stride;
    span->n_tokens = 1;
    span->n_cells[0] = a->n_ids[u->t] < 0 ? -(int64_t)a->n_ids[u->t] : a->n_ids[u->t];
    return;
  }
  u->t = block * K_ATTN_TOKENS;
  span->n_tokens = (int)(n_dense - u->t < K_ATTN_TOKENS ? n_dense - u->t : K_ATTN_TOKENS);
  for (int i = 0; i < span->n_tokens; ++i) span->n_cells[i] = a->pos0 + u->t + i + 1;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_flash_args *a = args;
  const int64_t per_kv = a->q_heads / a->kv_heads, groups = (per_kv + K_ATTN_HEADS - 1) / K_ATTN_HEADS;
  const int64_t n_dense = stk_qsa_attn_n_dense(a);
  const int64_t dense_blocks = (n_dense + K_ATTN_TOKENS - 1) / K_ATTN_TOKENS;
  const int64_t blocks = dense_blocks + a->n_tokens - n_dense;
  int64_t begin, end;
  k_stage stage;
  sums s;
  stk_slice(blocks * a->kv_heads * groups, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t kv = i / groups % a->kv_heads, first = i % groups * K_ATTN_HEADS;
    unit u = {.a = a, .h = kv * per_kv + first};
    set_tokens(&u, i / groups / a->kv_heads, n_dense, dense_blocks);
    u.span.cache = stk_qsa_attn_kv(a);
    u.span.kv = kv;
    u.span.q = a->q + (u.t * a->q_heads + u.h) * a->head_dim;
    u.span.q_stride = (int64_t)a->q_heads * a->head_dim;
    u.span.n_heads = (int)(per_kv - first < K_ATTN_HEADS ? per_kv - first : K_ATTN_HEADS);
    attend(&u, &s, &stage);
  }
}

STK_KERNEL_LEVEL(qsa_flash, STK_QSA_FLASH_CONTRACT, stk_qsa_flash_args, STK_EXACT, run);
