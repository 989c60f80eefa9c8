/* isa: scalar avx2 avx512
 * qsa_attn -- up to six query heads that share a kv head go through the list
 * together, so a tile of 32 keys and values is brought into the first-level
 * cache once for all of them. */
#include "qsa_attn/qsa_attn.h"

#include <math.h>

#include "common/k_tree.h"
#include "common/k_vmath.h"

enum {
  HEADS = 6,
#if defined(STK_LEVEL_avx512)
  CHUNK_VECTORS = 4, /* 6 x 4 accumulators of 32 registers */
#else
  CHUNK_VECTORS = 2, /* 6 x 2 accumulators of 16 registers */
#endif
  CHUNK = CHUNK_VECTORS * VW
};

/* Running softmax of a group of heads. */
typedef struct soft {
  float m[HEADS], l[HEADS];
  float acc[HEADS][STK_HEAD_DIM_MAX];
} soft;

/* The keys and values of a tile of cells. */
typedef struct tile {
  const float *k[STK_ATTN_TILE], *v[STK_ATTN_TILE];
  int n;
} tile;

static float larger(float a, float b) { return b < a ? a : b; }

/* score[i] = (q . k_i) * scale for the tile's cells, VW at a time; where there
 * are fewer, the last one is repeated. dim is a constant where it is common. */
K_INLINE void tile_scores(const float *q, int64_t dim, float scale, const tile *cells,
                          float score[STK_ATTN_TILE]) {
  for (int i = 0; i < cells->n; i += VW) {
    vf dots[VW];
    K_UNROLL for (int j = 0; j < VW; ++j) {
      int cell = i + j < cells->n ? i + j : cells->n - 1;
      dots[j] = k_lanes_fold(k_dot_lanes(q, cells->k[cell], dim));
    }
    vf_store(score + i, vf_mul(k_sum_each(dots), vf_set1(scale)));
  }
}

/* e[h][i] = exp(score - m), +0 past the tile's end; updates m and l, and gives
 * the factor for what was accumulated before (first: not used). */
K_INLINE void tile_weights(const float *q, int64_t dim, int n_heads, float scale, const tile *cells,
                           int first, soft *s, float e[HEADS][STK_ATTN_TILE], float factor[HEADS]) {
  for (int h = 0; h < n_heads; ++h) {
    float *score = e[h];
    if (dim == 256) tile_scores(q + h * 256, 256, scale, cells, score);
    else tile_scores(q + h * dim, dim, scale, cells, score);
    float m = first ? score[0] : s->m[h];
    for (int i = 0; i < cells->n; ++i) m = larger(m, score[i]);
    for (int i = cells->n; i < STK_ATTN_TILE; ++i) score[i] = m;
    for (int i = 0; i < STK_ATTN_TILE; i += VW)
      vf_store(score + i, kv_exp(vf_sub(vf_load(score + i), vf_set1(m))));
    for (int i = cells->n; i < STK_ATTN_TILE; ++i) score[i] = 0.0f;
    float sum = k_sum32(score);
    factor[h] = first ? 0.0f : ks_exp(s->m[h] - m);
    s->l[h] = first ? sum : ks_fma(s->l[h], factor[h], sum);
    s->m[h] = m;
  }
}

/* acc = acc * factor + sum_i e_i V_i for n_vectors vectors of dimensions from d
 * on, heads h0 .. h0 + n_heads - 1 at once; n_heads and n_vectors are constants. */
K_INLINE void tile_values(const tile *cells, int64_t d, int h0, int n_heads, int n_vectors, int first,
                          float e[HEADS][STK_ATTN_TILE], const float factor[HEADS], soft *s) {
  vf acc[HEADS][CHUNK_VECTORS];
  K_UNROLL for (int h = 0; h < n_heads; ++h)
    K_UNROLL for (int v = 0; v < n_vectors; ++v)
      acc[h][v] = first ? vf_zero()
                        : vf_mul(vf_load(s->acc[h0 + h] + d + v * VW), vf_set1(factor[h0 + h]));
  for (int i = 0; i < cells->n; ++i) {
    vf value[CHUNK_VECTORS];
    K_UNROLL for (int v = 0; v < n_vectors; ++v) value[v] = vf_load(cells->v[i] + d + v * VW);
    K_UNROLL for (int h = 0; h < n_heads; ++h) {
      vf weight = vf_set1(e[h0 + h][i]);
      K_UNROLL for (int v = 0; v < n_vectors; ++v) acc[h][v] = vf_fma(weight, value[v], acc[h][v]);
    }
  }
  K_UNROLL for (int h = 0; h < n_heads; ++h)
    K_UNROLL for (int v = 0; v < n_vectors; ++v) vf_store(s->acc[h0 + h] + d + v * VW, acc[h][v]);
}

K_INLINE void tile_values_all(const tile *cells, int64_t dim, int n_heads, int first,
                              float e[HEADS][STK_ATTN_TILE], const float factor[HEADS], soft *s) {
  int64_t d = 0;
  if (n_heads == HEADS)
    for (; d + CHUNK <= dim; d += CHUNK)
      tile_values(cells, d, 0, HEADS, CHUNK_VECTORS, first, e, factor, s);
  for (; d < dim; d += VW)
    for (int h = 0; h < n_heads; ++h) tile_values(cells, d, h, 1, 1, first, e, factor, s);
}

/* Cells begin .. end - 1 of token t's list; kv is the group's kv head. */
static void split(const stk_qsa_attn_args *a, int64_t t, int64_t kv, const float *q, int n_heads,
                  int64_t begin, int64_t end, soft *s) {
  const int64_t dim = a->head_dim, row = a->kv_heads * dim;
  const float scale = (float)(1.0 / sqrt((double)dim));
  const int32_t *ids = a->n_ids[t] ? a->ids + t * a->ids_stride : NULL;
  for (int64_t at = begin; at < end; at += STK_ATTN_TILE) {
    tile cells;
    float e[HEADS][STK_ATTN_TILE], factor[HEADS];
    cells.n = (int)(end - at < STK_ATTN_TILE ? end - at : STK_ATTN_TILE);
    for (int i = 0; i < cells.n; ++i) {
      int64_t offset = (ids ? ids[at + i] : at + i) * row + kv * dim;
      cells.k[i] = a->k_cache + offset;
      cells.v[i] = a->v_cache + offset;
    }
    tile_weights(q, dim, n_heads, scale, &cells, at == begin, s, e, factor);
    tile_values_all(&cells, dim, n_heads, at == begin, e, factor, s);
  }
}

static void merge(soft *total, const soft *next, int n_heads, int64_t dim) {
  for (int h = 0; h < n_heads; ++h) {
    float m = larger(total->m[h], next->m[h]);
    float f = ks_exp(total->m[h] - m), f2 = ks_exp(next->m[h] - m);
    total->l[h] = ks_fma(next->l[h], f2, total->l[h] * f);
    total->m[h] = m;
    for (int64_t d = 0; d < dim; d += VW)
      vf_store(total->acc[h] + d, vf_fma(vf_load(next->acc[h] + d), vf_set1(f2),
                                         vf_mul(vf_load(total->acc[h] + d), vf_set1(f))));
  }
}

/* Heads h0 .. h0 + n_heads - 1 of token t, all of one kv head. */
static void attend(const stk_qsa_attn_args *a, int64_t t, int64_t h0, int n_heads) {
  const int64_t dim = a->head_dim, kv = h0 / (a->q_heads / a->kv_heads);
  const int64_t n_ids = a->n_ids[t] < 0 ? -(int64_t)a->n_ids[t] : a->n_ids[t];
  const int64_t n = n_ids ? n_ids : a->pos0 + t + 1;
  const int64_t row = t * a->q_heads + h0;
  const float *q = a->q + row * dim;
  soft total, next;
  split(a, t, kv, q, n_heads, 0, n < STK_ATTN_SPLIT ? n : STK_ATTN_SPLIT, &total);
  for (int64_t from = STK_ATTN_SPLIT; from < n; from += STK_ATTN_SPLIT) {
    split(a, t, kv, q, n_heads, from, n - from < STK_ATTN_SPLIT ? n : from + STK_ATTN_SPLIT, &next);
    merge(&total, &next, n_heads, dim);
  }
  for (int h = 0; h < n_heads; ++h) {
    vf inv = vf_set1(a->n_ids[t] < 0 ? NAN : 1.0f / total.l[h]);
    const float *gate = a->q_raw + (row + h) * 2 * dim + dim;
    for (int64_t d = 0; d < dim; d += VW)
      vf_store(a->out + (row + h) * dim + d,
               vf_mul(vf_mul(vf_load(total.acc[h] + d), inv), kv_sigmoid(vf_load(gate + d))));
  }
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_attn_args *a = args;
  const int64_t per_kv = a->q_heads / a->kv_heads, groups = (per_kv + HEADS - 1) / HEADS;
  int64_t begin, end;
  stk_slice(a->n_tokens * a->kv_heads * groups, 1, part, n_parts, &begin, &end);
  for (int64_t unit = begin; unit < end; ++unit) {
    int64_t t = unit / (a->kv_heads * groups), kv = unit / groups % a->kv_heads;
    int64_t first = unit % groups * HEADS;
    int n_heads = (int)(per_kv - first < HEADS ? per_kv - first : HEADS);
    attend(a, t, kv * per_kv + first, n_heads);
  }
}

STK_KERNEL_LEVEL(qsa_attn, STK_QSA_ATTN_CONTRACT, stk_qsa_attn_args, STK_EXACT, run);
