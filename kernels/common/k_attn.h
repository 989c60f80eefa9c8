/* k_attn.h -- softmax attention over tiles of 32 cells, for up to 12 query heads
 * that share a kv head: the steps of qsa_attn.h, for the kernels that take them.
 *
 * A tile's keys and values are staged once for all heads (and, while a prompt is
 * dense, for several tokens): a view of the cache where it holds floats, else
 * widened with each cell's scales. Scores are made for GROUP heads and CELLS cells
 * at a time, so a loaded key serves GROUP products; values for GROUP heads and
 * VECTORS vectors of dimensions, whose sums stay in registers over the tile. */
#ifndef K_ATTN_H
#define K_ATTN_H

#include <math.h>

#include "common/k_cache_rows.h"
#include "common/k_tree.h"
#include "common/k_vmath.h"

enum {
  K_ATTN_TILE = 32,
  K_ATTN_HEADS = 12,
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

typedef struct k_tile {
  const float *k[K_ATTN_TILE], *v[K_ATTN_TILE];
} k_tile;

/* Memory for tiles that have to be widened. */
typedef struct k_stage {
  float k[K_ATTN_TILE * K_ATTN_DIM_MAX], v[K_ATTN_TILE * K_ATTN_DIM_MAX];
} k_stage;

/* Places at .. at + n - 1 of a list of cells; ids NULL: the cells themselves. */
K_INLINE void k_attn_stage(const stk_cache *cache, int64_t kv, const int32_t *ids, int64_t at, int n,
                           k_stage *stage, k_tile *tile) {
  const int64_t kv_heads = cache->n_planes / 2, dim = cache->dim;
  for (int i = 0; i < n; ++i) {
    int64_t cell = ids ? ids[at + i] : at + i;
    tile->k[i] = k_cache_read(cache, kv, cell, stage->k + i * dim);
    tile->v[i] = k_cache_read(cache, kv_heads + kv, cell, stage->v + i * dim);
  }
}

/* ---- asking ahead ---------------------------------------------------------------- */

/* Rows of the next tile, which the second-level cache is asked for bit by bit while
 * this one is worked on: lists jump about, so no hardware guesses them. */
typedef struct k_ahead {
  const uint8_t *row[2 * K_ATTN_TILE];
  int n_rows, row_bytes;
  int64_t at, step; /* bytes asked for so far, and to ask for at a time */
} k_ahead;

/* The n cells at places at .. of the list, over n_steps calls of k_attn_ask; their
 * scales, of which a line holds many, at once. */
K_INLINE void k_attn_look_ahead(const stk_cache *cache, int64_t kv, const int32_t *ids, int64_t at, int n,
                                int n_steps, k_ahead *ahead) {
  const int64_t kv_heads = cache->n_planes / 2;
  *ahead = (k_ahead){.row_bytes = (int)stk_cache_data_bytes(cache)};
  for (int i = 0; i < n; ++i) {
    int64_t cell = ids ? ids[at + i] : at + i;
    ahead->row[ahead->n_rows++] = stk_cache_data(cache, kv, cell);
    ahead->row[ahead->n_rows++] = stk_cache_data(cache, kv_heads + kv, cell);
    if (cache->kind != STK_KV_Q8) continue;
    __builtin_prefetch(stk_cache_scales(cache, kv, cell), 0, 2);
    __builtin_prefetch(stk_cache_scales(cache, kv_heads + kv, cell), 0, 2);
  }
  ahead->step = ((int64_t)ahead->n_rows * ahead->row_bytes / n_steps + 64) & ~(int64_t)63;
}

K_INLINE void k_attn_ask(k_ahead *ahead) {
  const int64_t all = (int64_t)ahead->n_rows * ahead->row_bytes;
  const int64_t end = ahead->at + ahead->step < all ? ahead->at + ahead->step : all;
  for (; ahead->at < end; ahead->at += 64)
    __builtin_prefetch(ahead->row[ahead->at / ahead->row_bytes] + ahead->at % ahead->row_bytes, 0, 2);
}

/* ---- scores ------------------------------------------------------------------- */

/* One vector of lanes over four steps from element e on, for G heads and
 * K_ATTN_CELLS cells, in the order of k_dot_lanes. */
K_INLINE void k_attn_steps(const float *q, int64_t dim, const float *const key[K_ATTN_CELLS], int64_t e,
                           int G, int first, vf lanes[K_ATTN_GROUP][K_ATTN_CELLS]) {
  vf k[K_ATTN_CELLS][4];
  K_UNROLL for (int c = 0; c < K_ATTN_CELLS; ++c)
    K_UNROLL for (int s = 0; s < 4; ++s) k[c][s] = vf_load(key[c] + e + 32 * s);
  K_UNROLL for (int g = 0; g < G; ++g) {
    const float *p = q + g * dim + e;
    vf q0 = vf_load(p), q1 = vf_load(p + 32), q2 = vf_load(p + 64), q3 = vf_load(p + 96);
    K_UNROLL for (int c = 0; c < K_ATTN_CELLS; ++c) {
      vf sum = vf_add(vf_add(vf_mul(q0, k[c][0]), vf_mul(q1, k[c][1])),
                      vf_add(vf_mul(q2, k[c][2]), vf_mul(q3, k[c][3])));
      lanes[g][c] = first ? sum : vf_add(lanes[g][c], sum);
    }
  }
}

/* The folded lanes of q_g * k_c; dim is a multiple of 128. */
K_INLINE void k_attn_dots(const float *q, int64_t dim, const float *const key[K_ATTN_CELLS], int G,
                          vf fold[K_ATTN_GROUP][K_ATTN_CELLS]) {
  vf lanes[K_TREE_VECTORS][K_ATTN_GROUP][K_ATTN_CELLS];
  K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) {
    k_attn_steps(q, dim, key, i * VW, G, 1, lanes[i]);
    for (int64_t e = 128 + i * VW; e < dim; e += 128) k_attn_steps(q, dim, key, e, G, 0, lanes[i]);
  }
  K_UNROLL for (int g = 0; g < G; ++g)
    K_UNROLL for (int c = 0; c < K_ATTN_CELLS; ++c) {
      k_lanes all;
      K_UNROLL for (int i = 0; i < K_TREE_VECTORS; ++i) all.v[i] = lanes[i][g][c];
      fold[g][c] = k_lanes_fold(all);
    }
}

/* score[g][i] = (q_g . k_i) * scale for G heads and the tile's first n cells; the
 * rest of the 32 is filled with any number. */
K_INLINE void k_attn_scores(const float *q, int64_t dim, int G, float scale, const k_tile *tile, int n,
                            k_ahead *ahead, float (*score)[K_ATTN_TILE]) {
  for (int at = 0; at < n; at += VW) {
    vf dots[K_ATTN_GROUP][VW];
    for (int c = 0; c < VW; c += K_ATTN_CELLS) {
      vf fold[K_ATTN_GROUP][K_ATTN_CELLS];
      const float *key[K_ATTN_CELLS];
      k_attn_ask(ahead);
      K_UNROLL for (int j = 0; j < K_ATTN_CELLS; ++j) key[j] = tile->k[at + c + j < n ? at + c + j : n - 1];
      if (VW > 1 && dim % 128 == 0) {
        k_attn_dots(q, dim, key, G, fold);
      } else {
        K_UNROLL for (int g = 0; g < G; ++g)
          K_UNROLL for (int j = 0; j < K_ATTN_CELLS; ++j)
            fold[g][j] = k_lanes_fold(k_dot_lanes(q + g * dim, key[j], dim));
      }
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
K_INLINE void k_attn_values(const k_tile *tile, int n, int64_t d, int64_t dim, int G, int N, int first,
                            float (*e)[K_ATTN_TILE], const float *factor, float *acc_rows) {
  vf acc[K_ATTN_GROUP][K_ATTN_VECTORS];
  K_UNROLL for (int g = 0; g < G; ++g)
    K_UNROLL for (int v = 0; v < N; ++v)
      acc[g][v] = first ? vf_zero()
                        : vf_mul(vf_load(acc_rows + g * dim + d + v * VW), vf_set1(factor[g]));
  for (int i = 0; i < n; ++i) {
    vf value[K_ATTN_VECTORS];
    K_UNROLL for (int v = 0; v < N; ++v) value[v] = vf_load(tile->v[i] + d + v * VW);
    K_UNROLL for (int g = 0; g < G; ++g) {
      vf weight = vf_set1(e[g][i]);
      K_UNROLL for (int v = 0; v < N; ++v) acc[g][v] = vf_fma(weight, value[v], acc[g][v]);
    }
  }
  K_UNROLL for (int g = 0; g < G; ++g)
    K_UNROLL for (int v = 0; v < N; ++v) vf_store(acc_rows + g * dim + d + v * VW, acc[g][v]);
}

K_INLINE void k_attn_values_all(const k_tile *tile, int n, int64_t dim, int n_heads, int first,
                                float (*e)[K_ATTN_TILE], const float *factor, float *acc) {
  int64_t d = 0;
  for (; d + K_ATTN_VECTORS * VW <= dim; d += K_ATTN_VECTORS * VW) {
    int h = 0;
    for (; h + K_ATTN_GROUP <= n_heads; h += K_ATTN_GROUP)
      k_attn_values(tile, n, d, dim, K_ATTN_GROUP, K_ATTN_VECTORS, first, e + h, factor + h, acc + h * dim);
    for (; h < n_heads; ++h)
      k_attn_values(tile, n, d, dim, 1, K_ATTN_VECTORS, first, e + h, factor + h, acc + h * dim);
  }
  for (; d < dim; d += VW)
    for (int h = 0; h < n_heads; ++h)
      k_attn_values(tile, n, d, dim, 1, 1, first, e + h, factor + h, acc + h * dim);
}

/* ---- a tile, and the merge ------------------------------------------------------ */

/* The first n cells of a staged tile join s; first: nothing is in s yet. q has a row
 * of dim floats a head; dim is a constant where it is common. Meanwhile the rows of
 * ahead are asked for. */
K_INLINE void k_attn_tile_dim(const k_tile *tile, int n, const float *q, int64_t dim, int n_heads,
                              int first, k_ahead *ahead, k_soft *s) {
  const float scale = (float)(1.0 / sqrt((double)dim));
  float e[K_ATTN_HEADS][K_ATTN_TILE], m[K_ATTN_HEADS], sum[K_ATTN_HEADS], factor[16] = {0};
  int h = 0;
  for (; h + K_ATTN_GROUP <= n_heads; h += K_ATTN_GROUP)
    k_attn_scores(q + h * dim, dim, K_ATTN_GROUP, scale, tile, n, ahead, e + h);
  for (; h < n_heads; ++h) k_attn_scores(q + h * dim, dim, 1, scale, tile, n, ahead, e + h);
  for (h = 0; h < n_heads; ++h) m[h] = k_attn_weights(e[h], n, first, first ? 0.0f : s->m[h], &sum[h]);
  if (!first) k_attn_factors(s->m, m, n_heads, factor);
  for (h = 0; h < n_heads; ++h) {
    s->l[h] = first ? sum[h] : ks_fma(s->l[h], factor[h], sum[h]);
    s->m[h] = m[h];
  }
  k_attn_values_all(tile, n, dim, n_heads, first, e, factor, s->acc);
}

K_INLINE void k_attn_tile(const k_tile *tile, int n, const float *q, int64_t dim, int n_heads, int first,
                          k_ahead *ahead, k_soft *s) {
  if (dim == 256) k_attn_tile_dim(tile, n, q, 256, n_heads, first, ahead, s);
  else k_attn_tile_dim(tile, n, q, dim, n_heads, first, ahead, s);
}

/* The calls of k_attn_ask that a full tile makes for n_heads heads. */
K_INLINE int k_attn_steps_of(int n_heads) {
  return (n_heads / K_ATTN_GROUP + n_heads % K_ATTN_GROUP) * (K_ATTN_TILE / K_ATTN_CELLS);
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
