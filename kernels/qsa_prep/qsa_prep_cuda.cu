/* isa: cuda
 * qsa_prep -- a warp a head of a token, or a block's key: lane l holds elements l,
 * l + 32, ... of it, so that the lanes of the order tree32 are the warp's. What rope
 * turns meets its partner in shared memory.
 *
 * The warp of the window's first block reads the open keys and then, alone, writes the
 * new ones; later blocks have all their keys in the window.
 *
 * Grid: tokens, and their heads four at a time; one more row of blocks for the block
 * keys, four at a time. */
#include "common/k_cuda.h"
#include "qsa_prep/qsa_prep_cuda_grid.h"

enum { WARPS = QSA_PREP_WARPS };

#ifdef QSA_D
#define HEAD_ELEMS (QSA_D / 32)
#define INDEX_ELEMS (QSA_DI / 32)
#define ELEMS_MAX (((QSA_D > QSA_DI ? QSA_D : QSA_DI) + 127) / 128 * 4)
#else
#define HEAD_ELEMS (a->head_dim / 32)
#define INDEX_ELEMS (a->idx_dim / 32)
#define ELEMS_MAX (STK_QSA_HEAD_MAX / 32)
#endif

/* A lane's n elements of a row; those beyond are 0, so that they add nothing. */
KC_INLINE void load_row(const float *row, int n, float *x) {
  KC_UNROLL for (int i = 0; i < ELEMS_MAX; ++i) x[i] = i < n ? row[32 * i + kc_lane] : 0.0f;
}

KC_INLINE void store_row(float *row, int n, const float *x) {
  KC_UNROLL for (int i = 0; i < n; ++i) row[32 * i + kc_lane] = x[i];
}

KC_INLINE void norm(float *x, int n, const float *gain, float eps) {
  float sum = 0.0f;
  KC_UNROLL for (int i = 0; i < n; i += 4) {
    const float group = (x[i] * x[i] + x[i + 1] * x[i + 1]) + (x[i + 2] * x[i + 2] + x[i + 3] * x[i + 3]);
    sum = i ? sum + group : group;
  }
  const float inv = ks_rsqrt(kc_lanes_sum(sum) * (1.0f / (float)(32 * n)) + eps);
  KC_UNROLL for (int i = 0; i < n; ++i) x[i] = (x[i] * inv) * gain[32 * i + kc_lane];
}

/* partners: room for the 2 * pairs elements that are turned. */
KC_INLINE void rope(float *x, int n, const float *cos, const float *sin, int pairs, float *partners) {
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int e = 32 * i + kc_lane;
    if (e < 2 * pairs) partners[e] = x[i];
  }
  kc_sync_warp();
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int e = 32 * i + kc_lane, is_high = e >= pairs, pair = is_high ? e - pairs : e;
    if (e >= 2 * pairs) continue;
    const float other = partners[is_high ? pair : pair + pairs];
    x[i] = ks_fma(is_high ? other : -other, sin[pair], x[i] * cos[pair]);
  }
}

/* ---- rows of the cache ------------------------------------------------------------ */

/* The scale of a group, from the bits of its largest magnitude, which have the order of
 * the magnitudes with all that is not finite above. */
KC_INLINE unsigned group_scale(int largest) {
  const unsigned half = largest < 0x7f800000 ? ks_to_half(ks_float(largest) / 127.0f) : STK_Q8_NAN;
  return half < 0x7c00 ? half : STK_Q8_NAN;
}

KC_INLINE int8_t quantised(float x, float scale) {
  const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
  const float q = (x / scale + magic) - magic;
  return (int8_t)(int)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
}

/* A group of 32 * n values, n <= 2. */
KC_INLINE void write_group(const float *x, int n, int8_t *to, uint16_t *scale) {
  int largest = 0;
  KC_UNROLL for (int i = 0; i < n; ++i) {
    const int bits = ks_bits(kc_abs(x[i]));
    largest = bits > largest ? bits : largest;
  }
  KC_UNROLL for (int half = 16; half; half /= 2) {
    const int bits = ks_bits(kc_shuffle_xor(ks_float(largest), half));
    largest = bits > largest ? bits : largest;
  }
  const unsigned stored = group_scale(largest);
  const int is_empty = stored == 0 || stored == STK_Q8_NAN;
  const float s = ks_from_half(stored);
  KC_UNROLL for (int i = 0; i < n; ++i) to[32 * i + kc_lane] = is_empty ? (int8_t)0 : quantised(x[i], s);
  if (kc_lane == 0) *scale = (uint16_t)stored;
}

KC_INLINE void write_cache(const stk_cache *c, int64_t plane, int64_t row, const float *x, int n) {
  void *data = stk_cache_data(c, plane, row);
  if (c->kind == STK_KV_F32) {
    store_row((float *)data, n, x);
  } else if (c->kind == STK_KV_F16) { /* not kc_half: a NaN keeps its bits */
    KC_UNROLL for (int i = 0; i < n; ++i) ((uint16_t *)data)[32 * i + kc_lane] = (uint16_t)ks_to_half(x[i]);
  } else {
    uint16_t *scales = stk_cache_scales(c, plane, row);
    KC_UNROLL for (int i = 0; i < n; i += 2)
      write_group(x + i, n - i < 2 ? n - i : 2, (int8_t *)data + 32 * i, scales + i / 2);
  }
}

/* ---- heads of a token -------------------------------------------------------------- */

KC_INLINE void query(const stk_qsa_prep_args *a, int64_t t, int64_t h, float *partners) {
  const int n = HEAD_ELEMS;
  const int64_t at = t * a->q_heads + h, pairs = a->n_pairs;
  float x[ELEMS_MAX];
  load_row(a->q_raw + at * 2 * a->head_dim, n, x);
  norm(x, n, a->q_gain, a->eps);
  rope(x, n, a->cos + t * pairs, a->sin + t * pairs, a->n_pairs, partners);
  store_row(a->q + at * a->head_dim, n, x);
}

KC_INLINE void key_and_value(const stk_qsa_prep_args *a, int64_t t, int64_t h, float *partners) {
  const int n = HEAD_ELEMS;
  const int64_t from = (t * a->kv_heads + h) * a->head_dim, pairs = a->n_pairs;
  const stk_cache kv = stk_qsa_prep_kv(a);
  float key[ELEMS_MAX], value[ELEMS_MAX];
  load_row(a->k_raw + from, n, key);
  load_row(a->v_raw + from, n, value);
  norm(key, n, a->k_gain, a->eps);
  rope(key, n, a->cos + t * pairs, a->sin + t * pairs, a->n_pairs, partners);
  write_cache(&kv, h, a->pos0 + t, key, n);
  write_cache(&kv, a->kv_heads + h, a->pos0 + t, value, n);
}

KC_INLINE void index_query(const stk_qsa_prep_args *a, int64_t t, int64_t h, float *partners) {
  const int n = INDEX_ELEMS;
  const int64_t pairs = a->n_pairs;
  float x[ELEMS_MAX];
  load_row(a->index_raw + (t * (a->idx_heads + 1) + h) * a->idx_dim, n, x);
  norm(x, n, a->iq_gain, a->eps);
  rope(x, n, a->cos + t * pairs, a->sin + t * pairs, a->n_pairs, partners);
  store_row(a->iq + (t * a->idx_heads + h) * a->idx_dim, n, x);
}

/* Head h of those that kinds asks for. */
KC_INLINE void head(const stk_qsa_prep_args *a, int64_t t, int h, float *partners) {
  const int queries = a->kinds & STK_QSA_QUERIES ? a->q_heads : 0;
  const int keys = a->kinds & STK_QSA_KV ? a->kv_heads : 0;
  const int index = a->kinds & STK_QSA_INDEX ? a->idx_heads : 0;
  if (h < queries) query(a, t, h, partners);
  else if (h < queries + keys) key_and_value(a, t, h - queries, partners);
  else if (h < queries + keys + index) index_query(a, t, h - queries - keys, partners);
}

/* ---- block keys ---------------------------------------------------------------------- */

/* Raw index key at window token t; before the window it is in open_keys. */
KC_INLINE float *open_key(const stk_qsa_prep_args *a, int64_t t) {
  return a->open_keys + (a->pos0 + t) % a->ratio * a->idx_dim;
}
KC_INLINE const float *raw_key(const stk_qsa_prep_args *a, int64_t t) {
  return t < 0 ? open_key(a, t) : a->index_raw + (t * (a->idx_heads + 1) + a->idx_heads) * a->idx_dim;
}

/* Block key number i of those that end in this window. */
KC_INLINE void block_key(const stk_qsa_prep_args *a, int64_t i, float *partners) {
  const int n = INDEX_ELEMS;
  const int64_t index = stk_qsa_prep_first_block(a) + i, t0 = index * a->ratio - a->pos0, pairs = a->n_pairs;
  const stk_cache blocks = stk_qsa_prep_blocks(a);
  float sum[ELEMS_MAX];
  load_row(raw_key(a, t0), n, sum);
  for (int64_t t = t0 + 1; t < t0 + a->ratio; ++t) {
    float x[ELEMS_MAX];
    load_row(raw_key(a, t), n, x);
    KC_UNROLL for (int k = 0; k < n; ++k) sum[k] = sum[k] + x[k];
  }
  KC_UNROLL for (int k = 0; k < n; ++k) sum[k] = sum[k] * (1.0f / (float)a->ratio);
  norm(sum, n, a->ik_gain, a->eps);
  rope(sum, n, a->block_cos + i * pairs, a->block_sin + i * pairs, a->n_pairs, partners);
  store_row((float *)stk_cache_data(&blocks, 0, index), n, sum);
}

KC_INLINE void keep_open_keys(const stk_qsa_prep_args *a) {
  const int n = INDEX_ELEMS;
  for (int64_t t = a->n_tokens > a->ratio ? a->n_tokens - a->ratio : 0; t < a->n_tokens; ++t) {
    float x[ELEMS_MAX];
    load_row(raw_key(a, t), n, x);
    store_row(open_key(a, t), n, x);
  }
}

KC_KERNEL(qsa_prep_cuda, stk_qsa_prep_args, 32 * WARPS, 8) {
  KC_SHARED(float, shared);
  float *partners = shared + kc_warp * 2 * a->n_pairs;
  const int rows = qsa_prep_head_rows(a);
  if (kc_block_y < rows) {
    head(a, kc_block, kc_block_y * WARPS + kc_warp, partners);
    return;
  }
  const int64_t i = (int64_t)kc_block * WARPS + kc_warp;
  if (i < stk_qsa_prep_n_blocks(a)) block_key(a, i, partners);
  if (i == 0) keep_open_keys(a);
}
