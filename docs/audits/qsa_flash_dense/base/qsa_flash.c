/* isa: scalar avx2 avx512 neon
 * qsa_flash -- a unit of work is up to 12 heads of one kv head for one sparse token
 * or up to four neighbouring dense ones, which go through the same tiles. Each tile
 * is staged once a unit; splits are merged as soon as they are done. */
#include "qsa_flash/qsa_flash.h"

/* k_attn.h -- softmax attention over tiles of 32 cells, for up to 12 query heads
 * that share a kv head: the steps of qsa_attn.h, for the kernels that take them.
 *
 * A tile's keys, then its values, are staged once for all heads (and, while a prompt
 * is dense, for several tokens): a view of the cache where it holds floats, else
 * widened with each cell's scales. Scores are made for GROUP heads and CELLS cells
 * at a time, so a loaded key serves GROUP products; values for GROUP heads and
 * VECTORS vectors of dimensions, whose sums stay in registers over the tile. */
#ifndef K_ATTN_H
#define K_ATTN_H

#include <math.h>

#include "common/k_cache_rows.h"
#include "common/k_tree.h"
#include "common/k_vmath.h"

/* A row as floats: a view of the cache where it holds floats, else y, filled. */
K_INLINE const float *k_cache_widen(int32_t kind, const void *data, const uint16_t *scales, int64_t dim,
                                    float *y) {
  if (kind == STK_KV_F32) return data;
  if (kind == STK_KV_F16) k_cache_read_half(data, dim, y);
  else k_cache_read_q8(data, scales, dim, y);
  return y;
}

enum {
  K_ATTN_TILE = 32,
  K_ATTN_HEADS = 12,
  K_ATTN_TOKENS = 4,
  K_ATTN_DIM_MAX = 512,
  K_ATTN_GROUP = 4,
  K_ATTN_CELLS = VW > 8 ? 2 : 1,
  K_ATTN_VECTORS = VW > 8 ? 4 : 2
};

/* Running softmax of a group of heads; acc has a row of dim floats a head. */
typedef struct k_soft {
  float m[K_ATTN_HEADS], l[K_ATTN_HEADS];
  float *acc;
} k_soft;

/* ---- where a tile's rows lie ------------------------------------------------------- */

/* Found one tile ahead, and asked for bit by bit while the tile before is worked on:
 * lists jump about, so no hardware guesses them. Keys are row[0], values row[1]. */
typedef struct k_found {
  const uint8_t *row[2][K_ATTN_TILE];
  const uint16_t *scales[2][K_ATTN_TILE];
  int n;
  /* Pieces of rows to ask for: how large, how many a row and in all, how many were
   * asked for so far, and how many at a time. */
  int piece_bytes, pieces_a_row, n_pieces, asked, step;
} k_found;

/* Where rows of one plane lie, all but the page. */
typedef struct k_plane {
  size_t data_at, data_bytes, scales_at, scale_bytes;
} k_plane;

K_INLINE k_plane k_attn_plane(const stk_cache *c, int64_t plane) {
  const size_t data_bytes = stk_cache_data_bytes(c), scale_bytes = stk_cache_scale_bytes(c);
  const size_t first = (size_t)plane * STK_CACHE_PAGE;
  return (k_plane){first * data_bytes, data_bytes,
                   (size_t)c->n_planes * STK_CACHE_PAGE * data_bytes + first * scale_bytes, scale_bytes};
}

/* Places at .. at + n - 1 of a list of cells; ids NULL: the cells themselves. n_asks:
 * how often k_attn_ask will be called; 0: the rows are near, or come by themselves. */
K_INLINE void k_attn_find(const stk_cache *c, int64_t kv, const int32_t *ids, int64_t at, int n,
                          int n_asks, k_found *found) {
  const k_plane plane[2] = {k_attn_plane(c, kv), k_attn_plane(c, c->n_planes / 2 + kv)};
  found->n = n;
  found->piece_bytes = plane[0].data_bytes < 512 ? (int)plane[0].data_bytes : 512;
  found->pieces_a_row = ((int)plane[0].data_bytes + found->piece_bytes - 1) / found->piece_bytes;
  found->n_pieces = n_asks ? 2 * n * found->pieces_a_row : 0;
  found->step = n_asks ? (found->n_pieces + n_asks - 1) / n_asks : 0;
  found->asked = 0;
  for (int i = 0; i < n; ++i) {
    const size_t cell = ids ? (size_t)ids[at + i] : (size_t)(at + i), slot = cell % STK_CACHE_PAGE;
    const uint8_t *page = c->pages[cell / STK_CACHE_PAGE];
    K_UNROLL for (int p = 0; p < 2; ++p) {
      found->row[p][i] = page + plane[p].data_at + slot * plane[p].data_bytes;
      found->scales[p][i] =
          (const uint16_t *)(const void *)(page + plane[p].scales_at + slot * plane[p].scale_bytes);
      if (n_asks && c->kind == STK_KV_Q8) __builtin_prefetch(found->scales[p][i], 0, 2);
    }
  }
}

K_INLINE void k_attn_ask(k_found *found) {
  for (int i = 0; i < found->step && found->asked < found->n_pieces; ++i, ++found->asked) {
    const unsigned row = (unsigned)found->asked / (unsigned)found->pieces_a_row;
    const unsigned piece = (unsigned)found->asked % (unsigned)found->pieces_a_row;
    const uint8_t *from = found->row[row & 1][row / 2] + piece * (unsigned)found->piece_bytes;
    for (int at = 0; at < found->piece_bytes; at += 64) __builtin_prefetch(from + at, 0, 2);
  }
}

/* A tile's keys, or its values, as floats: one kind at a time, so that it stays in the
 * first-level cache for all heads and tokens. */
typedef struct k_rows {
  const float *row[K_ATTN_TILE];
} k_rows;

/* Memory for rows that have to be widened, and the tile that comes next. */
typedef struct k_stage {
  float widened[K_ATTN_TILE * K_ATTN_DIM_MAX];
  k_found found[2]; /* this tile and the next one, in turns */
} k_stage;

/* values: 0 for keys, 1 for values. */
K_INLINE void k_attn_widen(const stk_cache *c, const k_found *f, int values, float *widened, k_rows *out) {
  for (int i = 0; i < f->n; ++i)
    out->row[i] = k_cache_widen(c->kind, f->row[values][i], f->scales[values][i], c->dim,
                                widened + i * c->dim);
}

/* ---- scores ------------------------------------------------------------------- */

/* n_steps steps of one vector of lanes, from element e on: products of G heads and
 * K_ATTN_CELLS cells join their chains; first: they begin them. n_steps is a constant. */
K_INLINE void k_attn_steps(const float *q, int64_t dim, const float *const key[K_ATTN_CELLS], int64_t e,
                           int n_steps, int G, int first, vf lanes[K_ATTN_GROUP][K_ATTN_CELLS]) {
  vf k[K_ATTN_CELLS][4];
  K_UNROLL for (int c = 0; c < K_ATTN_CELLS; ++c)
    K_UNROLL for (int s = 0; s < n_steps; ++s) k[c][s] = vf_load(key[c] + e + 32 * s);
  K_UNROLL for (int g = 0; g < G; ++g)
    K_UNROLL for (int s = 0; s < n_steps; ++s) {
      vf x = vf_load(q + g * dim + e + 32 * s);
      K_UNROLL for (int c = 0; c < K_ATTN_CELLS; ++c)
        lanes[g][c] = first && s == 0 ? vf_mul(x, k[c][s]) : vf_fma(x, k[c][s], lanes[g][c]);
    }
}

/* The folded lanes of q_g * k_c, in the order of k_fma_lanes. */
K_INLINE void k_attn_dots(const float *q, int64_t dim, const float *const key[K_ATTN_CELLS], int G,
                          vf fold[K_ATTN_GROUP][K_ATTN_CELLS]) {
  vf lanes[K_TREE_VECTORS][K_ATTN_GROUP][K_ATTN_CELLS];
  K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) {
    int64_t e = i * VW;
    if (dim >= 128) k_attn_steps(q, dim, key, e, 4, G, 1, lanes[i]), e += 128;
    else k_attn_steps(q, dim, key, e, 1, G, 1, lanes[i]), e += 32;
    for (; e + 96 < dim; e += 128) k_attn_steps(q, dim, key, e, 4, G, 0, lanes[i]);
    for (; e < dim; e += 32) k_attn_steps(q, dim, key, e, 1, G, 0, lanes[i]);
  }
  K_UNROLL for (int g = 0; g < G; ++g)
    K_UNROLL for (int c = 0; c < K_ATTN_CELLS; ++c) {
      k_lanes all;
      K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) all.v[i] = lanes[i][g][c];
      fold[g][c] = k_lanes_fold(all);
    }
}

/* score[g][i] = (q_g . k_i) * scale for G heads and the first n keys; the
 * rest of the 32 is filled with any number. */
K_INLINE void k_attn_scores(const float *q, int64_t dim, int G, float scale, const k_rows *keys, int n,
                            k_found *next, float (*score)[K_ATTN_TILE]) {
  for (int at = 0; at < n; at += VW) {
    vf dots[K_ATTN_GROUP][VW];
    for (int c = 0; c < VW; c += K_ATTN_CELLS) {
      vf fold[K_ATTN_GROUP][K_ATTN_CELLS];
      const float *key[K_ATTN_CELLS];
      k_attn_ask(next);
      K_UNROLL for (int j = 0; j < K_ATTN_CELLS; ++j) key[j] = keys->row[at + c + j < n ? at + c + j : n - 1];
      k_attn_dots(q, dim, key, G, fold);
      K_UNROLL for (int g = 0; g < G; ++g)
        K_UNROLL for (int j = 0; j < K_ATTN_CELLS; ++j) dots[g][c + j] = fold[g][j];
    }
    K_UNROLL for (int g = 0; g < G; ++g)
      vf_store(score[g] + at, vf_mul(k_sum_each(dots[g]), vf_set1(scale)));
  }
}

/* ---- weights ------------------------------------------------------------------- */

/* Turns a head's scores into exp(score - m), +0 past the tile's end, where m joins
 * the largest; returns m, and in *sum the weights' sum. */
K_INLINE float k_attn_weights(float score[K_ATTN_TILE], int n, int first, float m, float *sum) {
  for (int i = n; i < K_ATTN_TILE; ++i) score[i] = score[0];
  k_lanes lanes;
  K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) lanes.v[i] = vf_load(score + i * VW);
  float largest = k_lanes_max(lanes);
  m = first ? largest : largest < m ? m : largest;
  K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i)
    vf_store(score + i * VW, kv_exp(vf_sub(lanes.v[i], vf_set1(m))));
  for (int i = n; i < K_ATTN_TILE; ++i) score[i] = 0.0f;
  *sum = k_sum32(score);
  return m;
}

/* factor[h] = exp(from[h] - to[h]) for n_heads heads. */
K_INLINE void k_attn_factors(const float *from, const float *to, int n_heads, float factor[16]) {
  float x[16] = {0};
  for (int h = 0; h < n_heads; ++h) x[h] = from[h] - to[h];
  for (int h = 0; h < n_heads; h += VW) vf_store(factor + h, kv_exp(vf_load(x + h)));
}

/* ---- values -------------------------------------------------------------------- */

/* acc = acc * factor + sum_i e_i V_i for N vectors of dimensions from d on and G
 * heads; G and N are constants. */
K_INLINE void k_attn_values(const k_rows *values, int n, int64_t d, int64_t dim, int G, int N, int first,
                            float (*e)[K_ATTN_TILE], const float *factor, float *acc_rows,
                            k_found *next) {
  vf acc[K_ATTN_GROUP][K_ATTN_VECTORS];
  K_UNROLL for (int g = 0; g < G; ++g)
    K_UNROLL for (int v = 0; v < N; ++v)
      acc[g][v] = first ? vf_zero()
                        : vf_mul(vf_load(acc_rows + g * dim + d + v * VW), vf_set1(factor[g]));
  k_attn_ask(next);
  for (int i = 0; i < n; ++i) {
    vf value[K_ATTN_VECTORS];
    K_UNROLL for (int v = 0; v < N; ++v) value[v] = vf_load(values->row[i] + d + v * VW);
    K_UNROLL for (int g = 0; g < G; ++g) {
      vf weight = vf_set1(e[g][i]);
      K_UNROLL for (int v = 0; v < N; ++v) acc[g][v] = vf_fma(weight, value[v], acc[g][v]);
    }
  }
  K_UNROLL for (int g = 0; g < G; ++g)
    K_UNROLL for (int v = 0; v < N; ++v) vf_store(acc_rows + g * dim + d + v * VW, acc[g][v]);
}

K_INLINE void k_attn_values_all(const k_rows *values, int n, int64_t dim, int n_heads, int first,
                                float (*e)[K_ATTN_TILE], const float *factor, float *acc,
                                k_found *next) {
  int64_t d = 0;
  for (; d + K_ATTN_VECTORS * VW <= dim; d += K_ATTN_VECTORS * VW) {
    int h = 0;
    for (; h + K_ATTN_GROUP <= n_heads; h += K_ATTN_GROUP)
      k_attn_values(values, n, d, dim, K_ATTN_GROUP, K_ATTN_VECTORS, first, e + h, factor + h, acc + h * dim,
                    next);
    for (; h < n_heads; ++h)
      k_attn_values(values, n, d, dim, 1, K_ATTN_VECTORS, first, e + h, factor + h, acc + h * dim,
                    next);
  }
  for (; d < dim; d += VW)
    for (int h = 0; h < n_heads; ++h)
      k_attn_values(values, n, d, dim, 1, 1, first, e + h, factor + h, acc + h * dim,
                    next);
}

/* ---- a split, and the merge ----------------------------------------------------- */

/* What a tile's cells weigh for each head of a token. */
typedef struct k_weights {
  float e[K_ATTN_HEADS][K_ATTN_TILE], factor[16];
} k_weights;

/* The first n keys of a tile join the maxima and sums of s; first: nothing is in s yet.
 * q has a row of dim floats a head; dim is a constant where it is common. Meanwhile
 * the rows of the next tile are asked for. */
K_INLINE void k_attn_weigh(const k_rows *keys, int n, const float *q, int64_t dim, int n_heads,
                           int first, k_found *next, k_soft *s, k_weights *w) {
  const float scale = (float)(1.0 / sqrt((double)dim));
  float m[K_ATTN_HEADS], sum[K_ATTN_HEADS];
  int h = 0;
  for (; h + K_ATTN_GROUP <= n_heads; h += K_ATTN_GROUP)
    k_attn_scores(q + h * dim, dim, K_ATTN_GROUP, scale, keys, n, next, w->e + h);
  for (; h < n_heads; ++h)
    k_attn_scores(q + h * dim, dim, 1, scale, keys, n, next, w->e + h);
  for (h = 0; h < n_heads; ++h) m[h] = k_attn_weights(w->e[h], n, first, first ? 0.0f : s->m[h], &sum[h]);
  if (!first) k_attn_factors(s->m, m, n_heads, w->factor);
  for (h = 0; h < n_heads; ++h) {
    s->l[h] = first ? sum[h] : ks_fma(s->l[h], w->factor[h], sum[h]);
    s->m[h] = m[h];
  }
}

/* A group of heads of one or more tokens that go through one list together. */
typedef struct k_span {
  stk_cache cache;
  int64_t kv;              /* the kv head */
  const int32_t *ids;      /* NULL: the list is 0, 1, 2, ... */
  const float *q;          /* of the first token: a row a head */
  int64_t q_stride;        /* from token to token */
  int n_heads, n_tokens;
  int64_t n_cells[K_ATTN_TOKENS]; /* of each token's list, ascending */
} k_span;

K_INLINE void k_attn_find_at(const k_span *s, int64_t at, k_stage *stage) {
  const int64_t left = s->n_cells[s->n_tokens - 1] - at;
  const int n = (int)(left < 0 ? 0 : left < K_ATTN_TILE ? left : K_ATTN_TILE);
  const int groups = s->n_heads / K_ATTN_GROUP + s->n_heads % K_ATTN_GROUP;
  const int chunks = (s->cache.dim + K_ATTN_VECTORS * VW - 1) / (K_ATTN_VECTORS * VW);
  /* Several tokens that share their rows have time for the hardware to see them coming. */
  const int n_asks = s->n_tokens > 1 ? 0 : groups * (K_ATTN_TILE / K_ATTN_CELLS + chunks);
  k_attn_find(&s->cache, s->kv, s->ids, at, n, n_asks, &stage->found[at / K_ATTN_TILE % 2]);
}

/* The tile at place `at`, of which token i sees n[i] cells. */
K_INLINE void k_attn_tile(const k_span *s, int64_t at, const int *n, int first, int64_t dim, k_soft *soft,
                          k_stage *stage) {
  const k_found *found = &stage->found[at / K_ATTN_TILE % 2];
  k_found *next = &stage->found[(at / K_ATTN_TILE + 1) % 2];
  k_weights w[K_ATTN_TOKENS];
  k_rows rows;
  k_attn_widen(&s->cache, found, 0, stage->widened, &rows);
  for (int i = 0; i < s->n_tokens; ++i)
    if (n[i] > 0)
      k_attn_weigh(&rows, n[i], s->q + i * s->q_stride, dim, s->n_heads, first, next, &soft[i], &w[i]);
  k_attn_widen(&s->cache, found, 1, stage->widened, &rows);
  for (int i = 0; i < s->n_tokens; ++i)
    if (n[i] > 0)
      k_attn_values_all(&rows, n[i], dim, s->n_heads, first, w[i].e, w[i].factor, soft[i].acc, next);
}

/* The split that begins at place `from`, into soft[i] for token i, if its list comes
 * so far; goes_on: the split before it was the last one that stage saw. */
K_INLINE void k_attn_split(const k_span *s, int64_t from, int64_t split, int goes_on, k_soft *soft,
                           k_stage *stage) {
  const int64_t longest = s->n_cells[s->n_tokens - 1], dim = s->cache.dim;
  const int64_t end = longest - from < split ? longest : from + split;
  if (!goes_on) k_attn_find_at(s, from, stage);
  for (int64_t at = from; at < end; at += K_ATTN_TILE) {
    int n[K_ATTN_TOKENS];
    for (int i = 0; i < s->n_tokens; ++i)
      n[i] = (int)(s->n_cells[i] - at < K_ATTN_TILE ? s->n_cells[i] - at : K_ATTN_TILE);
    k_attn_find_at(s, at + K_ATTN_TILE, stage);
    if (dim == 256) k_attn_tile(s, at, n, at == from, 256, soft, stage);
    else k_attn_tile(s, at, n, at == from, dim, soft, stage);
  }
}

/* Adds a later split of the same heads to total. */
K_INLINE void k_attn_merge(k_soft *total, const k_soft *next, int n_heads, int64_t dim) {
  float m[K_ATTN_HEADS], f[16], f2[16];
  for (int h = 0; h < n_heads; ++h) m[h] = next->m[h] < total->m[h] ? total->m[h] : next->m[h];
  k_attn_factors(total->m, m, n_heads, f);
  k_attn_factors(next->m, m, n_heads, f2);
  for (int h = 0; h < n_heads; ++h) {
    total->l[h] = ks_fma(next->l[h], f2[h], total->l[h] * f[h]);
    total->m[h] = m[h];
    float *acc = total->acc + h * dim;
    const float *more = next->acc + h * dim;
    for (int64_t d = 0; d < dim; d += VW)
      vf_store(acc + d, vf_fma(vf_load(more + d), vf_set1(f2[h]), vf_mul(vf_load(acc + d), vf_set1(f[h]))));
  }
}

/* y = (acc * inv) * sigmoid(gate), as f32, as fp16, or both (NULL: not wanted). */
K_INLINE void k_attn_finish(const float *acc, float inv, const float *gate, int64_t dim, float *y,
                            uint16_t *half) {
  for (int64_t d = 0; d < dim; d += VW) {
    vf v = vf_mul(vf_mul(vf_load(acc + d), vf_set1(inv)), kv_sigmoid(vf_load(gate + d)));
    if (y) vf_store(y + d, v);
    if (half) vf_store_half(half + d, v);
  }
}

#endif

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
  int64_t n_dense = (int64_t)a->budget + a->ratio - 1 - a->pos0, begin, end;
  n_dense = n_dense < 0 ? 0 : n_dense > a->n_tokens ? a->n_tokens : n_dense;
  const int64_t dense_blocks = (n_dense + K_ATTN_TOKENS - 1) / K_ATTN_TOKENS;
  const int64_t blocks = dense_blocks + a->n_tokens - n_dense;
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
