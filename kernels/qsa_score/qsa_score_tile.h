/* qsa_score_tile.h -- the GPU kernels of qsa_score: a matrix product of the order fma32 out of shared memory. A thread has
 * eight tokens, four blocks and, of the 32 chains of each of their products, eight:
 * those whose lane is its number in a group of four threads, mod 4. The chains are
 * made in the order in which the halves meet (lanes 0, 16, 8, 24, ... of every fourth),
 * so that of a sum of eight only three partial sums wait in registers at a time. The
 * last two halves are exchanged in the group: each thread gives three of its blocks
 * away and keeps the one that has its number.
 *
 * Thread j calls the block in its place s of a group of four "s ^ j": so what it keeps,
 * and what it sends, are the same registers in all threads.
 *
 * A row in shared memory has what a lane multiplies, elements l, l + 32, ..., side by
 * side. Keys are padded by 64 bytes, so that two of them lie in different banks.
 *
 * The includer defines QSA_ENTRY, and QSA_SPLIT: 1, a warp's threads all have the same
 * eight tokens and 32 blocks; 2, one half has eight tokens, the other the next eight, of
 * 16 blocks.
 *
 * Grid: runs of tiles of 64 blocks, and tiles of 16 tokens (one where there is one). */
#ifndef QSA_SCORE_TILE_H
#define QSA_SCORE_TILE_H

#include "common/k_cuda.h"
#include "qsa_score/qsa_score_cuda_grid.h"

enum { GROUP = 4, CHAINS = 8, LEVELS = 4, STAGED = 4 };
enum { GROUPS = 8 / QSA_SPLIT, KEYS = GROUP * GROUPS, KEY_WARPS = QSA_SCORE_TILE / KEYS }; /* of a warp's part */

/* Blocks on a processor. From sm_100 on the compiler multiplies in pairs and needs
 * more registers: with 168 it would spill. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
enum { RESIDENT = 2 };
#else
enum { RESIDENT = 3 };
#endif

#ifdef QSA_DI
#define DIM QSA_DI
#define HEADS QSA_HI
#define ROWS QSA_ROWS
#define ROWS_MAX QSA_ROWS
#define STEPS_MAX (QSA_DI / 32)
#else
#define DIM a->idx_dim
#define HEADS a->idx_heads
#define ROWS qsa_score_rows(a)
#define ROWS_MAX QSA_SCORE_ROWS
#define STEPS_MAX (QSA_SCORE_DIM_MAX / 32)
#endif

/* What the threads of a block share. */
typedef struct tile {
  float *queries; /* [tokens][HEADS][DIM] */
  float *keys;    /* [QSA_SCORE_TILE][DIM + QSA_SCORE_PAD] */
} tile;

/* A lane's steps of a row in shared memory. */
KC_INLINE void load_steps(const float *from, int steps, float *x) {
  if (steps % 4 == 0)
    KC_UNROLL for (int i = 0; i < steps; i += 4) {
      const kc4 f = kc_load4(from + i);
      KC_UNROLL for (int k = 0; k < 4; ++k) x[i + k] = f.v[k];
    }
  else
    KC_UNROLL for (int i = 0; i < steps; ++i) x[i] = from[i];
}

KC_INLINE void store_steps(float *to, int steps, const float *x) {
  if (steps % 4 == 0)
    KC_UNROLL for (int i = 0; i < steps; i += 4) {
      const kc4 f = {{x[i], x[i + 1], x[i + 2], x[i + 3]}};
      kc_store4(to + i, f);
    }
  else
    KC_UNROLL for (int i = 0; i < steps; ++i) to[i] = x[i];
}

/* n rows into shared memory, stride floats apart there, a warp four rows at a time. */
KC_INLINE void stage(const float *from, int n, int steps, int n_warps, float *to, int stride) {
  for (int row = kc_warp; row < n; row += STAGED * n_warps) {
    float x[STAGED][STEPS_MAX];
    KC_UNROLL for (int j = 0; j < STAGED; ++j)
      KC_UNROLL for (int i = 0; i < steps; ++i)
        if (row + j * n_warps < n) x[j][i] = from[(int64_t)(row + j * n_warps) * 32 * steps + 32 * i + kc_lane];
    KC_UNROLL for (int j = 0; j < STAGED; ++j)
      if (row + j * n_warps < n) store_steps(to + (row + j * n_warps) * stride + kc_lane * steps, steps, x[j]);
  }
}

/* Chain number i joins the sums of those before it, level by level. */
KC_INLINE void join(float part[LEVELS], int i, float chain) {
  if (i & 1) chain = part[0] + chain;
  if ((i & 3) == 3) chain = part[1] + chain;
  if (i == 7) chain = part[2] + chain;
  part[i == 7 ? 3 : (i & 3) == 3 ? 2 : i & 1] = chain;
}

/* The dots of one head: dot[r] is that of token r with the block this thread keeps. */
KC_INLINE void dots(const float *query, const float *const key[GROUP], int rows, int row_stride, int steps,
                    float *dot) {
  float part[ROWS_MAX][GROUP][LEVELS];
  KC_UNROLL for (int i = 0; i < CHAINS; ++i) {
    const int at = GROUP * steps * ((i & 1) * 4 + (i & 2) + i / 4);
    float k[GROUP][STEPS_MAX];
    KC_UNROLL for (int c = 0; c < GROUP; ++c) load_steps(key[c] + at, steps, k[c]);
    KC_UNROLL for (int r = 0; r < rows; ++r) {
      float q[STEPS_MAX];
      load_steps(query + r * row_stride + at, steps, q);
      KC_UNROLL for (int c = 0; c < GROUP; ++c) {
        float chain = q[0] * k[c][0];
        KC_UNROLL for (int s = 1; s < steps; ++s) chain = ks_fma(q[s], k[c][s], chain);
        join(part[r][c], i, chain);
      }
    }
  }
  KC_UNROLL for (int r = 0; r < rows; ++r) {
    const float keep = part[r][0][3] + kc_shuffle_xor(part[r][2][3], 2);
    const float give = part[r][1][3] + kc_shuffle_xor(part[r][3][3], 2);
    dot[r] = keep + kc_shuffle_xor(give, 1);
  }
}

/* Scores of a thread's tokens, from t0 on, for its warp's KEYS blocks from b0 on. */
KC_INLINE void score(const stk_qsa_score_args *a, int t0, int b0, const float *queries,
                     const float *keys) {
  const int rows = ROWS, steps = DIM / 32, j = kc_lane % GROUP, x = kc_lane / GROUP % GROUPS;
  const float scale = kc_inverse_sqrt(DIM);
  const float *key[GROUP];
  float sum[ROWS_MAX];
  KC_UNROLL for (int c = 0; c < GROUP; ++c) key[c] = keys + (x + GROUPS * (c ^ j)) * (DIM + QSA_SCORE_PAD) + j * steps;
  KC_UNROLL for (int r = 0; r < rows; ++r) sum[r] = 0.0f;
  for (int h = 0; h < HEADS; ++h) {
    float dot[ROWS_MAX];
    dots(queries + h * DIM + j * steps, key, rows, HEADS * DIM, steps, dot);
    KC_UNROLL for (int r = 0; r < rows; ++r) sum[r] = sum[r] + (dot[r] <= 0.0f ? 0.0f : dot[r]);
  }
  const int64_t b = (int64_t)b0 + x + GROUPS * j;
  KC_UNROLL for (int r = 0; r < rows; ++r) {
    const int64_t t = (int64_t)t0 + r;
    const float y = sum[r] * scale;
    if (t < a->n_tokens && (b + 1) * a->ratio <= a->pos0 + t + 1)
      a->score[t * a->score_stride + b] = y == y ? y : ks_float(0x7fc00000); /* the CPU's NaN */
  }
}

KC_KERNEL(QSA_ENTRY, stk_qsa_score_args, 128, RESIDENT) {
  KC_SHARED(float, shared);
  const int rows = ROWS, tokens = qsa_score_tile_tokens(rows), n_warps = 2 * tokens / rows;
  const int walk = qsa_score_walk(a), key_stride = DIM + QSA_SCORE_PAD;
  const int t0 = stk_qsa_first_sparse(a->pos0, a->n_tokens, a->budget, a->ratio) + kc_block_y * tokens;
  const int t1 = t0 + tokens < a->n_tokens ? t0 + tokens : a->n_tokens;
  const int n_seen = (a->pos0 + t1) / a->ratio; /* blocks, by the last token */
  const int warp_row = kc_warp / KEY_WARPS * QSA_SPLIT * rows, warp_key = kc_warp % KEY_WARPS * KEYS;
  const int row = warp_row + kc_lane / KEYS * rows;
  const stk_cache blocks = stk_qsa_score_blocks(a);
  const tile m = {shared, shared + tokens * HEADS * DIM};
  if (t0 >= t1) return;
  stage(a->iq + (int64_t)t0 * HEADS * DIM, (t1 - t0) * HEADS, DIM / 32, n_warps, m.queries, DIM);
  int b0 = kc_block * walk * QSA_SCORE_TILE;
  const int end = n_seen - b0 < walk * QSA_SCORE_TILE ? n_seen : b0 + walk * QSA_SCORE_TILE;
  for (; b0 < end; b0 += QSA_SCORE_TILE) {
    const int n = end - b0 < QSA_SCORE_TILE ? end - b0 : QSA_SCORE_TILE; /* of one page */
    stage((const float *)stk_cache_data(&blocks, 0, b0), n, DIM / 32, n_warps, m.keys, key_stride);
    kc_sync();
    if (t0 + warp_row < t1 && warp_key < n)
      score(a, t0 + row, b0 + warp_key, m.queries + row * HEADS * DIM, m.keys + warp_key * key_stride);
    kc_sync(); /* before others' keys are overwritten */
  }
}

#endif
