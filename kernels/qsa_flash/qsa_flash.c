/* isa: scalar avx2 avx512 neon
 * qsa_flash -- a unit of work is up to 12 heads of one kv head for one sparse token
 * or up to four neighbouring dense ones, which go through the same tiles. Each tile
 * is staged once a unit; splits are merged as soon as they are done. */
#include "qsa_flash/qsa_flash.h"

#include "common/k_attn.h"

_Static_assert((int)K_ATTN_TILE == STK_ATTN_TILE && (int)K_ATTN_DIM_MAX == STK_HEAD_DIM_MAX, "one contract");

enum { TOKENS = 4 };

/* Tokens t .. t + n_tokens - 1, heads h .. h + n_heads - 1, all of kv head kv. */
typedef struct unit {
  const stk_qsa_flash_args *a;
  int64_t t, kv, h;
  int n_tokens, n_heads;
  const int32_t *ids;        /* NULL: the list is derived */
  int64_t n_cells[TOKENS];   /* of each token's list, ascending */
} unit;

/* What a unit accumulates: the finished splits and the running one of each token. */
typedef struct sums {
  k_soft total[TOKENS], next[TOKENS];
  float acc[2 * TOKENS * K_ATTN_HEADS * K_ATTN_DIM_MAX];
} sums;

static void attend_split(const unit *u, int64_t from, k_soft *soft, k_stage *stage) {
  const stk_qsa_flash_args *a = u->a;
  const stk_cache cache = stk_qsa_attn_kv(a);
  const int64_t longest = u->n_cells[u->n_tokens - 1], dim = a->head_dim;
  const int64_t end = longest - from < STK_ATTN_SPLIT ? longest : from + STK_ATTN_SPLIT;
  for (int64_t at = from; at < end; at += K_ATTN_TILE) {
    k_tile tile;
    int n = (int)(end - at < K_ATTN_TILE ? end - at : K_ATTN_TILE);
    k_ahead ahead;
    const int64_t more = longest - at - K_ATTN_TILE;
    k_attn_stage(&cache, u->kv, u->ids, at, n, stage, &tile);
    k_attn_look_ahead(&cache, u->kv, u->ids, at + K_ATTN_TILE,
                      more < 0 ? 0 : more < K_ATTN_TILE ? (int)more : K_ATTN_TILE,
                      u->n_tokens * k_attn_steps_of(u->n_heads), &ahead);
    for (int i = 0; i < u->n_tokens; ++i) {
      int64_t left = u->n_cells[i] - at;
      const float *q = a->q + ((u->t + i) * a->q_heads + u->h) * dim;
      if (left > 0) k_attn_tile(&tile, left < n ? (int)left : n, q, dim, u->n_heads, at == from, &ahead,
                                &soft[i]);
    }
  }
}

static void finish(const unit *u, int i, const k_soft *total) {
  const stk_qsa_flash_args *a = u->a;
  const int64_t dim = a->head_dim, row = (u->t + i) * a->q_heads + u->h;
  for (int64_t h = 0; h < u->n_heads; ++h)
    k_attn_finish(total->acc + h * dim, u->ids && a->n_ids[u->t] < 0 ? NAN : 1.0f / total->l[h],
                  a->q_raw + (row + h) * 2 * dim + dim, dim,
                  a->outputs & STK_ATTN_F32 ? a->out + (row + h) * dim : NULL,
                  a->outputs & STK_ATTN_F16 ? a->out_half + (row + h) * dim : NULL);
}

static void attend(const unit *u, sums *s, k_stage *stage) {
  const int64_t dim = u->a->head_dim, longest = u->n_cells[u->n_tokens - 1];
  for (int i = 0; i < u->n_tokens; ++i) {
    s->total[i].acc = s->acc + 2 * i * K_ATTN_HEADS * dim;
    s->next[i].acc = s->total[i].acc + K_ATTN_HEADS * dim;
  }
  attend_split(u, 0, s->total, stage);
  for (int64_t from = STK_ATTN_SPLIT; from < longest; from += STK_ATTN_SPLIT) {
    attend_split(u, from, s->next, stage);
    for (int i = 0; i < u->n_tokens; ++i)
      if (u->n_cells[i] > from) k_attn_merge(&s->total[i], &s->next[i], u->n_heads, dim);
  }
  for (int i = 0; i < u->n_tokens; ++i) finish(u, i, &s->total[i]);
}

/* Tokens block * TOKENS .. of the dense ones, then sparse tokens one by one. */
static void set_tokens(unit *u, int64_t block, int64_t n_dense, int64_t dense_blocks) {
  const stk_qsa_flash_args *a = u->a;
  u->n_tokens = 1;
  u->ids = NULL;
  if (block >= dense_blocks) {
    u->t = n_dense + block - dense_blocks;
    u->ids = a->ids + u->t * a->ids_stride;
    u->n_cells[0] = a->n_ids[u->t] < 0 ? -(int64_t)a->n_ids[u->t] : a->n_ids[u->t];
    return;
  }
  u->t = block * TOKENS;
  u->n_tokens = (int)(n_dense - u->t < TOKENS ? n_dense - u->t : TOKENS);
  for (int i = 0; i < u->n_tokens; ++i) u->n_cells[i] = a->pos0 + u->t + i + 1;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_flash_args *a = args;
  const int64_t per_kv = a->q_heads / a->kv_heads, groups = (per_kv + K_ATTN_HEADS - 1) / K_ATTN_HEADS;
  int64_t n_dense = (int64_t)a->budget + a->ratio - 1 - a->pos0, begin, end;
  n_dense = n_dense < 0 ? 0 : n_dense > a->n_tokens ? a->n_tokens : n_dense;
  const int64_t dense_blocks = (n_dense + TOKENS - 1) / TOKENS;
  const int64_t blocks = dense_blocks + a->n_tokens - n_dense;
  k_stage stage;
  sums s;
  stk_slice(blocks * a->kv_heads * groups, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    unit u = {.a = a, .kv = i / groups % a->kv_heads};
    int64_t first = i % groups * K_ATTN_HEADS;
    u.h = u.kv * per_kv + first;
    u.n_heads = (int)(per_kv - first < K_ATTN_HEADS ? per_kv - first : K_ATTN_HEADS);
    set_tokens(&u, i / groups / a->kv_heads, n_dense, dense_blocks);
    attend(&u, &s, &stage);
  }
}

STK_KERNEL_LEVEL(qsa_flash, STK_QSA_FLASH_CONTRACT, stk_qsa_flash_args, STK_EXACT, run);
