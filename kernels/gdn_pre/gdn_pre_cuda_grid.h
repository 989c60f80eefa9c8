/* gdn_pre_cuda_grid.h -- how the GPU kernel of gdn_pre is laid over a window: what the
 * kernel and its plan must agree about.
 *
 * A warp has a run of tokens of a key head, or of a value head with its gates. There are
 * about as many warps as the chip holds at a time, and keys' runs are so much shorter than
 * values' that all take equally long: no processor waits for others, and what a run begins
 * with (taps, rows before it) is paid as seldom as can be. */
#ifndef GDN_PRE_CUDA_GRID_H
#define GDN_PRE_CUDA_GRID_H

#include "gdn_pre/gdn_pre.h"

enum {
  GDN_PRE_WARPS = 4,
  GDN_PRE_BLOCKS = 4, /* that a processor holds */
  GDN_PRE_SLOTS = 8,  /* rows of raw channels that are on their way to a warp */
  GDN_PRE_VALUE_CHUNK = 4,
  /* What a token of a key head, and one of a value head, take a warp. */
  GDN_PRE_KEY_COST = 13,
  GDN_PRE_VALUE_COST = 4
};

/* Tokens of a run, and runs of a head, or none. Key runs begin at an even absolute index,
 * so the first one has a token less if the window begins at an odd one; the last one has
 * two tokens at least, whose keys are the new tail. key_ends: 0 if the runs are one; else the
 * first so many warps, whole blocks, have the first and the last runs: an even warp the first
 * of head warp / 2, an odd one the last. */
typedef struct gdn_pre_layout {
  int key_run, key_runs, key_ends, value_run, value_runs;
} gdn_pre_layout;

/* Of numbers that are not negative. */
static inline int gdn_pre_up(int n, int unit) { return (int)(((unsigned)n + (unsigned)unit - 1) / (unsigned)unit); }

/* Tokens of a run if a head has so many runs; a multiple of unit (a power of two). Only
 * the first run may look back into the history, which it also writes. */
static inline int gdn_pre_run(int n_tokens, int n_runs, int unit, int n_taps) {
  const int least = n_taps < 4 ? 4 : (n_taps + unit - 1) & -unit;
  if (n_tokens <= (int64_t)least * n_runs) return least;
  return (gdn_pre_up(n_tokens, n_runs < 1 ? 1 : n_runs) + unit - 1) & -unit;
}

/* Warps that have keys. */
static inline int gdn_pre_key_warps(const gdn_pre_layout *l, int k_heads) {
  return l->key_ends ? l->key_ends + (l->key_runs - 2) * k_heads : l->key_runs * k_heads;
}

static inline gdn_pre_layout gdn_pre_layout_of(const stk_gdn_pre_args *a, int k_heads, int v_heads, int n_taps,
                                               int n_processors) {
  const int n_key = a->kinds & STK_GDN_KEYS ? k_heads : 0, T = a->n_tokens, odd = a->pos0 & 1;
  const int n_value = a->kinds & (STK_GDN_VALUES | STK_GDN_GATES) ? v_heads : 0;
  const int cost = GDN_PRE_KEY_COST * n_key + GDN_PRE_VALUE_COST * n_value;
  gdn_pre_layout l;
  int warps = n_processors * (GDN_PRE_BLOCKS * GDN_PRE_WARPS);
  l.key_run = l.value_run = 1;
  l.key_runs = l.key_ends = l.value_runs = 0;
  if (n_key) {
    l.key_run = gdn_pre_run(T + odd, warps * GDN_PRE_KEY_COST / cost, 2, n_taps + odd);
    l.key_runs = T + odd <= l.key_run ? 1 : gdn_pre_up(T + odd - 1, l.key_run);
    if (l.key_runs > 1) l.key_ends = gdn_pre_up(2 * n_key, GDN_PRE_WARPS) * GDN_PRE_WARPS;
    warps -= gdn_pre_key_warps(&l, n_key);
  }
  if (n_value) {
    l.value_run = gdn_pre_run(T, warps < n_value ? 1 : warps / n_value, GDN_PRE_VALUE_CHUNK, n_taps);
    l.value_runs = gdn_pre_up(T, l.value_run);
  }
  return l;
}

/* Bytes of a warp in shared memory. */
static inline int gdn_pre_warp_bytes(int k_dim, int v_dim, int row_bytes) {
  return GDN_PRE_SLOTS * (k_dim < v_dim ? v_dim : k_dim) * row_bytes;
}

#endif
