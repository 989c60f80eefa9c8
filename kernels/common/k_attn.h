/* k_attn.h -- softmax attention over tiles of 32 cells, for up to 12 query heads
 * that share a kv head: the steps of qsa_attn.h, for the kernels that take them.
 *
 * A tile's keys, then its values, are staged once for all heads (and, while a prompt
 * is dense, for several tokens): a view of the cache where it holds floats, else
 * widened with each cell's scales. Scores are made for GROUP heads and CELLS cells
 * at a time, so a loaded key serves GROUP products; values for GROUP heads and
 * VECTORS vectors of dimensions, whose sums stay in registers over the tile. With one
 * lane 32 sums are more than there are registers, so there the group is one head and
 * no dim is special: unrolled, they took 20 seconds to compile. */
#ifndef K_ATTN_H
#define K_ATTN_H

#include <math.h>

#include "common/k_cache_rows.h"
#include "common/k_tree.h"
#include "common/k_vmath.h"

enum {
  K_ATTN_TILE = 32,
  K_ATTN_HEADS = 12,
  K_ATTN_TOKENS = 4,
  K_ATTN_DIM_MAX = 512,
  K_ATTN_GROUP = VW > 1 ? 4 : 1,
  K_ATTN_CELLS = VW > 8 ? 4 : 1,
  K_ATTN_VECTORS = VW > 8 ? 4 : 2,
  K_ATTN_ASK_CELLS = 4,
  K_ATTN_PIECE = 256
};

/* Running softmax of a group of heads; acc has a row of dim floats a head. */
typedef struct k_soft {
  float m[K_ATTN_HEADS], l[K_ATTN_HEADS];
  float *acc;
} k_soft;

/* ---- where a tile's rows lie ------------------------------------------------------- */

/* What is still to be asked for of a tile's rows, in runs of rows that lie one behind
 * the other, a piece of a run at a time. */
typedef struct k_asking {
  const uint8_t *at, *end; /* of the run that is being asked for */
  int rate, credit; /* pieces a call of k_attn_ask is worth, and what is saved up; in 256ths */
  int n_runs, next_run;
  const uint8_t *begin[2 * K_ATTN_TILE], *ends[2 * K_ATTN_TILE];
} k_asking;

/* Found one tile ahead, and asked for bit by bit while the tile before is worked on:
 * lists jump about, so no hardware guesses them. Keys are row[0], values row[1]. */
typedef struct k_found {
  const uint8_t *row[2][K_ATTN_TILE];
  const uint16_t *scales[2][K_ATTN_TILE];
  int n;
  k_asking asking;
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

/* Goes on to the next run; after the last one nothing is asked for any more. */
static inline void k_attn_next_run(k_asking *a) {
  if (a->next_run == a->n_runs) {
    a->rate = a->credit = 0;
    return;
  }
  a->at = a->begin[a->next_run];
  a->end = a->ends[a->next_run++];
}

/* Makes the runs of the rows that were found. n_asks: how often k_attn_ask will be
 * called; 0: the rows are near, or come by themselves. */
K_INLINE void k_attn_plan_asking(k_found *found, int row_bytes, int n_asks) {
  k_asking *a = &found->asking;
  int n_pieces = 0;
  a->n_runs = a->next_run = 0;
  for (int p = 0; p < 2 && n_asks; ++p)
    for (int i = 0; i < found->n; ++i) {
      const uint8_t *row = found->row[p][i];
      if (a->n_runs && a->ends[a->n_runs - 1] == row) --a->n_runs;
      else a->begin[a->n_runs] = row;
      a->ends[a->n_runs++] = row + row_bytes;
    }
  for (int i = 0; i < a->n_runs; ++i)
    n_pieces += (int)(a->ends[i] - a->begin[i] + K_ATTN_PIECE - 1) / K_ATTN_PIECE;
  a->credit = 0;
  a->rate = n_asks ? n_pieces * 256 / n_asks : 0;
  k_attn_next_run(a);
}

/* Places at .. at + n - 1 of a list of cells; ids NULL: the cells themselves. */
K_INLINE void k_attn_find(const stk_cache *c, int64_t kv, const int32_t *ids, int64_t at, int n,
                          int n_asks, k_found *found) {
  const k_plane plane[2] = {k_attn_plane(c, kv), k_attn_plane(c, c->n_planes / 2 + kv)};
  found->n = n;
  for (int i = 0; i < n; ++i) {
    const size_t cell = ids ? (size_t)ids[at + i] : (size_t)(at + i), slot = cell % STK_CACHE_PAGE;
    const uint8_t *page = c->pages[cell / STK_CACHE_PAGE];
    K_UNROLL for (int p = 0; p < 2; ++p) {
      found->row[p][i] = page + plane[p].data_at + slot * plane[p].data_bytes;
      found->scales[p][i] =
          (const uint16_t *)(const void *)(page + plane[p].scales_at + slot * plane[p].scale_bytes);
      if (n_asks && c->kind == STK_KV_Q8) __builtin_prefetch(found->scales[p][i], 0, 3);
    }
  }
  k_attn_plan_asking(found, (int)plane[0].data_bytes, n_asks);
}

/* One of the n_asks calls, which are spread evenly over the work on a tile; found may
 * be NULL. Four lines at a time are quicker than one, or than 24. */
K_INLINE void k_attn_ask(k_found *found) {
  if (!found) return;
  k_asking *a = &found->asking;
  for (a->credit += a->rate; a->credit >= 256; a->credit -= 256) {
    K_UNROLL for (int at = 0; at < K_ATTN_PIECE; at += 64) __builtin_prefetch(a->at + at, 0, 3);
    a->at += K_ATTN_PIECE;
    if (__builtin_expect(a->at >= a->end, 0)) k_attn_next_run(a);
  }
}

/* A tile's keys, or its values, as floats: one kind at a time, so that it stays in the
 * first-level cache for all heads and tokens. */
typedef struct k_rows {
  const float *row[K_ATTN_TILE];
} k_rows;

/* Memory for rows that have to be widened, and the tile that comes next. */
typedef struct k_stage {
  _Alignas(64) float widened[K_ATTN_TILE * K_ATTN_DIM_MAX];
  k_found found[2]; /* this tile and the next one, in turns */
} k_stage;

/* values: 0 for keys, 1 for values. dim, the cache's, is a constant where it is common. */
K_INLINE void k_attn_widen(const stk_cache *c, const k_found *f, int values, int64_t dim, float *widened,
                           k_rows *out) {
  if (c->kind == STK_KV_F32) {
    for (int i = 0; i < f->n; ++i) out->row[i] = (const float *)(const void *)f->row[values][i];
    return;
  }
  for (int i = 0; i < f->n; ++i) {
    float *y = widened + i * dim;
    if (c->kind == STK_KV_F16) k_cache_read_half((const uint16_t *)(const void *)f->row[values][i], dim, y);
    else k_cache_read_q8((const int8_t *)f->row[values][i], f->scales[values][i], dim, y);
    out->row[i] = y;
  }
}

/* ---- scores ------------------------------------------------------------------- */

/* n_steps steps of one vector of lanes, from element e on: products of G heads and
 * K_ATTN_CELLS cells join their chains; first: they begin them. n_steps is a constant. */
K_INLINE void k_attn_steps(const float *q, int64_t dim, const float *const key[K_ATTN_CELLS], int64_t e,
                           int n_steps, int G, int first, vf lanes[K_ATTN_GROUP][K_ATTN_CELLS]) {
  K_UNROLL for (int s = 0; s < n_steps; ++s) {
    vf k[K_ATTN_CELLS];
    K_UNROLL for (int c = 0; c < K_ATTN_CELLS; ++c) k[c] = vf_load(key[c] + e + 32 * s);
    K_UNROLL for (int g = 0; g < G; ++g) {
      const vf x = vf_load(q + g * dim + e + 32 * s);
      K_UNROLL for (int c = 0; c < K_ATTN_CELLS; ++c)
        lanes[g][c] = first && s == 0 ? vf_mul(x, k[c]) : vf_fma(x, k[c], lanes[g][c]);
    }
  }
}

/* The folded lanes of q_g * k_c, in the order of k_fma_lanes. */
K_INLINE void k_attn_dots(const float *q, int64_t dim, const float *const key[K_ATTN_CELLS], int G,
                          k_found *next, vf fold[K_ATTN_GROUP][K_ATTN_CELLS]) {
  vf lanes[K_TREE_VECTORS][K_ATTN_GROUP][K_ATTN_CELLS];
  K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) {
    int64_t e = i * VW;
    k_attn_ask(next);
    if (dim >= 128) k_attn_steps(q, dim, key, e, 4, G, 1, lanes[i]), e += 128;
    else k_attn_steps(q, dim, key, e, 1, G, 1, lanes[i]), e += 32;
    for (; e + 96 < dim; e += 128) {
      k_attn_ask(next);
      k_attn_steps(q, dim, key, e, 4, G, 0, lanes[i]);
    }
    for (; e < dim; e += 32) k_attn_steps(q, dim, key, e, 1, G, 0, lanes[i]);
  }
  K_UNROLL for (int g = 0; g < G; ++g)
    K_UNROLL for (int c = 0; c < K_ATTN_CELLS; ++c) {
      k_lanes all;
      K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) all.v[i] = lanes[i][g][c];
      fold[g][c] = k_lanes_fold(all);
    }
}

/* score[g][i] = (q_g . k_i) * scale for G heads and VW of the n keys, those from `at`
 * on; places past the last key get any number. */
K_INLINE void k_attn_scores(const float *q, int64_t dim, int G, float scale, const k_rows *keys, int at,
                            int n, k_found *next, float (*score)[K_ATTN_TILE]) {
  vf dots[K_ATTN_GROUP][VW];
  for (int c = 0; c < VW; c += K_ATTN_CELLS) {
    vf fold[K_ATTN_GROUP][K_ATTN_CELLS];
    const float *key[K_ATTN_CELLS];
    K_UNROLL for (int j = 0; j < K_ATTN_CELLS; ++j) key[j] = keys->row[at + c + j < n ? at + c + j : n - 1];
    K_OPAQUE(q);
    k_attn_dots(q, dim, key, G, next, fold);
    K_UNROLL for (int g = 0; g < G; ++g)
      K_UNROLL for (int j = 0; j < K_ATTN_CELLS; ++j) dots[g][c + j] = fold[g][j];
  }
  K_UNROLL for (int g = 0; g < G; ++g)
    vf_store(score[g] + at, vf_mul(k_sum_each(dots[g]), vf_set1(scale)));
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
  for (int i = 0; i < n; ++i) {
    if (i % K_ATTN_ASK_CELLS == 0) k_attn_ask(next);
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
  _Alignas(64) float e[K_ATTN_HEADS][K_ATTN_TILE];
  float factor[16];
} k_weights;

/* The first n keys of a tile join the maxima and sums of s; first: nothing is in s yet.
 * q has a row of dim floats a head; dim is a constant where it is common. Meanwhile
 * the rows of the next tile are asked for. */
K_INLINE void k_attn_weigh(const k_rows *keys, int n, const float *q, int64_t dim, int n_heads,
                           int first, k_found *next, k_soft *s, k_weights *w) {
  const float scale = (float)(1.0 / sqrt((double)dim));
  float m[K_ATTN_HEADS], sum[K_ATTN_HEADS];
  int h;
  for (int at = 0; at < n; at += VW) {
    for (h = 0; h + K_ATTN_GROUP <= n_heads; h += K_ATTN_GROUP)
      k_attn_scores(q + h * dim, dim, K_ATTN_GROUP, scale, keys, at, n, next, w->e + h);
    for (; h < n_heads; ++h)
      k_attn_scores(q + h * dim, dim, 1, scale, keys, at, n, next, w->e + h);
  }
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
  const int rounds = s->cache.dim < 256 ? 1 : s->cache.dim / 128;
  const int chunks = (s->cache.dim + K_ATTN_VECTORS * VW - 1) / (K_ATTN_VECTORS * VW);
  /* Several tokens that share their rows have time for the hardware to see them coming. */
  const int n_asks = s->n_tokens > 1 ? 0
                                     : groups * (K_ATTN_TILE / K_ATTN_CELLS * K_TREE_VECTORS * rounds +
                                                 chunks * (K_ATTN_TILE / K_ATTN_ASK_CELLS));
  k_attn_find(&s->cache, s->kv, s->ids, at, n, n_asks, &stage->found[at / K_ATTN_TILE % 2]);
}

/* The tile at place `at`, of which token i sees n[i] cells. asks: whether the next
 * tile's rows are asked for; a constant, like dim. */
K_INLINE void k_attn_tile(const k_span *s, int64_t at, const int *n, int first, int64_t dim, int asks,
                          k_soft *soft, k_stage *stage) {
  const k_found *found = &stage->found[at / K_ATTN_TILE % 2];
  k_found *next = asks ? &stage->found[(at / K_ATTN_TILE + 1) % 2] : NULL;
  k_weights w[K_ATTN_TOKENS];
  k_rows rows;
  k_attn_widen(&s->cache, found, 0, dim, stage->widened, &rows);
  for (int i = 0; i < s->n_tokens; ++i)
    if (n[i] > 0)
      k_attn_weigh(&rows, n[i], s->q + i * s->q_stride, dim, s->n_heads, first, next, &soft[i], &w[i]);
  k_attn_widen(&s->cache, found, 1, dim, stage->widened, &rows);
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
    if (VW > 1 && dim == 256 && s->n_tokens == 1) k_attn_tile(s, at, n, at == from, 256, 1, soft, stage);
    else if (VW > 1 && dim == 256) k_attn_tile(s, at, n, at == from, 256, 0, soft, stage);
    else k_attn_tile(s, at, n, at == from, dim, 1, soft, stage);
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
