/* isa: cuda
 * qsa_topk -- a block of threads a token. A score becomes an unsigned key of the same
 * order: a NaN 0, both zeros the same. Three counts of digits of 11, 11 and 10 bits,
 * each of the keys that begin as the last selected one does, find that one and how many
 * of its equals are selected: the lower blocks. Where few begin so, they are listed after
 * the first count, and the list is looked at instead of all. So what is selected is plain, and a last
 * pass in ascending order finds each block's place: a ballot gives a lane the marks of
 * 32 blocks, and a sum over the threads what was selected before them. Each pass is
 * linear in the blocks whatever the scores are.
 *
 * Grid: tokens. */
#include "common/k_cuda.h"
#include "qsa_topk/qsa_topk_cuda_grid.h"

enum { AHEAD = 32, AHEAD_LAST = 8 }; /* scores of a thread that are asked for at a time */

#ifdef QSA_THREADS
#define THREADS QSA_THREADS
#define RATIO QSA_RATIO
#define OWN_MAX (QSA_TOPK_BINS / QSA_THREADS)
#else
#define THREADS qsa_topk_threads(a)
#define RATIO a->ratio
#define OWN_MAX (QSA_TOPK_BINS / 256)
#endif

/* A token's n scores, of which the first `held` are keys in shared memory. */
typedef struct row {
  const float *score;
  unsigned *keys;
  unsigned n, held;
} row;

KC_INLINE unsigned key_of(float x) {
  const unsigned bits = (unsigned)ks_bits(x + 0.0f); /* -0 becomes +0 */
  const unsigned key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return x == x ? key : 0;
}

/* ---- sums over the threads ----------------------------------------------------------- */

KC_INLINE int smaller(int a, int b) { return a < b ? a : b; }
KC_INLINE int shuffle_int(int v, int lane) { return ks_bits(kc_shuffle(ks_float(v), lane)); }

/* The sum of the values of the lanes up to this one. */
KC_INLINE unsigned sum_of_lanes(unsigned value) {
  KC_UNROLL for (int step = 1; step < 32; step *= 2) {
    const unsigned other = (unsigned)shuffle_int((int)value, kc_lane - step);
    if (kc_lane >= step) value += other;
  }
  return value;
}

/* The sum of the values of the threads up to this one. The barrier lets totals be used
 * again once all threads came through another one. */
KC_INLINE unsigned sum_up_to(unsigned value, unsigned *totals, int threads) {
  value = sum_of_lanes(value);
  if (kc_lane == 31) totals[kc_warp] = value;
  kc_sync();
  const unsigned of_warps = sum_of_lanes(kc_lane < threads / 32 ? totals[kc_lane] : 0);
  const unsigned before = (unsigned)shuffle_int((int)of_warps, kc_warp - 1);
  return kc_warp ? before + value : value;
}

/* ---- the last selected key -------------------------------------------------------------- */

KC_INLINE void clear_bins(int *bins, int threads) {
  for (int i = kc_thread; i < QSA_TOPK_BINS; i += threads) bins[i] = 0;
  kc_sync();
}

/* Makes n keys (a constant), `threads` apart, and counts their first digit. all_held: all
 * of them are blocks' and stay in shared memory. Returns whether one is a NaN's. */
KC_INLINE int count_some(const row *r, unsigned begin, int threads, int n, int all_held, int *bins) {
  const float *score = r->score + begin;
  unsigned *keys = r->keys + begin;
  float x[AHEAD];
  int has_nan = 0;
  KC_UNROLL for (int k = 0; k < n; ++k)
    x[k] = all_held || begin + (unsigned)(k * threads) < r->n ? score[k * threads] : 0.0f;
  KC_UNROLL for (int k = 0; k < n; ++k) {
    const unsigned i = begin + (unsigned)(k * threads), key = key_of(x[k]);
    if (!all_held && i >= r->n) continue;
    if (all_held || i < r->held) keys[k * threads] = key;
    has_nan |= key == 0;
    kc_atomic_add(&bins[key >> 21], 1);
  }
  return has_nan;
}

KC_INLINE void count_first(const row *r, qsa_topk_shared *s, int threads) {
  int has_nan = 0;
  unsigned begin = (unsigned)kc_thread;
  for (; begin + (unsigned)((AHEAD - 1) * threads) < r->held; begin += (unsigned)(AHEAD * threads))
    has_nan |= count_some(r, begin, threads, AHEAD, 1, s->bins);
  for (; begin < r->n; begin += (unsigned)(AHEAD_LAST * threads))
    has_nan |= begin + (unsigned)((AHEAD_LAST - 1) * threads) < r->held
                   ? count_some(r, begin, threads, AHEAD_LAST, 1, s->bins)
                   : count_some(r, begin, threads, AHEAD_LAST, 0, s->bins);
  if (has_nan) s->has_nan = 1;
  kc_sync();
}

/* A digit of the keys that differ from begin by less than `within` in their bits. */
typedef struct digit {
  unsigned begin, within, mask;
  int shift;
} digit;

KC_INLINE void count_key(unsigned key, const digit *d, int *bins) {
  if ((key ^ d->begin) < d->within) kc_atomic_add(&bins[key >> d->shift & d->mask], 1);
}

KC_INLINE void count_digit(const row *r, digit d, int *bins, int threads) {
  for (unsigned i = 4 * (unsigned)kc_thread; i < r->held; i += 4 * (unsigned)threads) {
    const kc4 four = kc_load4((const float *)r->keys + i);
    KC_UNROLL for (int k = 0; k < 4; ++k) count_key((unsigned)ks_bits(four.v[k]), &d, bins);
  }
  for (unsigned i = r->held + (unsigned)kc_thread; i < r->n; i += (unsigned)threads)
    count_key(key_of(r->score[i]), &d, bins);
  kc_sync();
}

/* The bin in which, from the highest one down, the count reaches n_wanted, and what is
 * still wanted there. Thread 0 has the highest bins. */
KC_INLINE void find_digit(qsa_topk_shared *s, int n_wanted, int threads) {
  const int own = QSA_TOPK_BINS / threads, first = QSA_TOPK_BINS - own * (kc_thread + 1);
  int count[OWN_MAX], sum = 0;
  KC_UNROLL for (int i = 0; i < own; i += 2) {
    const kc2 two = kc_load2((const float *)s->bins + first + i);
    KC_UNROLL for (int k = 0; k < 2; ++k) {
      count[i + k] = ks_bits(two.v[k]);
      sum += count[i + k];
    }
  }
  int higher = (int)sum_up_to((unsigned)sum, s->totals, threads) - sum;
  KC_UNROLL for (int i = own - 1; i >= 0; --i) {
    if (higher < n_wanted && n_wanted <= higher + count[i]) {
      s->digit = first + i;
      s->n_digit = count[i];
      s->n_wanted = n_wanted - higher;
    }
    higher += count[i];
  }
  kc_sync();
}

/* The keys that d counts, which are n, by themselves. */
KC_INLINE row list_keys(const row *r, const digit *d, int n, qsa_topk_shared *s, int threads) {
  const row list = {NULL, s->list, (unsigned)(n + 3) / 4 * 4, (unsigned)(n + 3) / 4 * 4};
  for (unsigned i = 4 * (unsigned)kc_thread; i < r->held; i += 4 * (unsigned)threads) {
    const kc4 four = kc_load4((const float *)r->keys + i);
    KC_UNROLL for (int k = 0; k < 4; ++k) {
      const unsigned key = (unsigned)ks_bits(four.v[k]);
      if ((key ^ d->begin) < d->within) s->list[kc_atomic_add(&s->n_listed, 1)] = key;
    }
  }
  for (unsigned i = r->held + (unsigned)kc_thread; i < r->n; i += (unsigned)threads) {
    const unsigned key = key_of(r->score[i]);
    if ((key ^ d->begin) < d->within) s->list[kc_atomic_add(&s->n_listed, 1)] = key;
  }
  if (n + kc_thread < (int)list.n) s->list[n + kc_thread] = ~d->begin; /* a key that nothing counts */
  kc_sync();
  return list;
}

/* The last of the n_wanted highest keys, and in *n_equal how many of its equals belong
 * to them. */
KC_INLINE unsigned last_key(const row *r, qsa_topk_shared *s, int n_wanted, int threads, int *n_equal) {
  if (kc_thread == 0) s->has_nan = s->n_listed = 0;
  clear_bins(s->bins, threads);
  count_first(r, s, threads);
  find_digit(s, n_wanted, threads);
  unsigned last = (unsigned)s->digit << 21;
  n_wanted = s->n_wanted;
  const digit second = {last, 1u << 21, 2047, 10};
  const row rest = s->n_digit <= QSA_TOPK_LIST ? list_keys(r, &second, s->n_digit, s, threads) : *r;
  clear_bins(s->bins, threads);
  count_digit(&rest, second, s->bins, threads);
  find_digit(s, n_wanted, threads);
  last |= (unsigned)s->digit << 10;
  n_wanted = s->n_wanted;
  clear_bins(s->bins, threads);
  const digit third = {last, 1u << 10, 1023, 0};
  count_digit(&rest, third, s->bins, threads);
  find_digit(s, n_wanted, threads);
  *n_equal = s->n_wanted;
  return last | (unsigned)s->digit;
}

/* ---- the cells ---------------------------------------------------------------------------- */

/* Bit k of a lane's marks: block first + 32 * lane + k. */
typedef struct marks {
  unsigned above, equal;
} marks;

/* all_held: the 1024 blocks from first on have their keys in shared memory. */
KC_INLINE marks mark(const row *r, unsigned first, unsigned last, int all_held) {
  marks m = {0, 0};
  KC_UNROLL for (int k = 0; k < 32; ++k) {
    const unsigned i = first + 32u * (unsigned)k + (unsigned)kc_lane;
    if (!all_held && i - (unsigned)kc_lane >= r->n) break; /* the whole warp */
    const int is_block = all_held || i < r->n;
    const unsigned key = all_held || i < r->held ? r->keys[i] : is_block ? key_of(r->score[i]) : 0;
    const unsigned above = kc_ballot(is_block && key > last), equal = kc_ballot(is_block && key == last);
    m.above = kc_lane == k ? above : m.above;
    m.equal = kc_lane == k ? equal : m.equal;
  }
  return m;
}

/* Puts the marked blocks from block `first` on into a list's positions begin .. begin +
 * QSA_TOPK_BINS - 1: all above, and n_equal of the equals; `at` is the first one's
 * position. */
KC_INLINE void put_blocks(marks m, unsigned first, int n_equal, int at, int begin, int *list) {
  for (unsigned rest = n_equal > 0 ? m.above | m.equal : m.above; rest; rest &= rest - 1) {
    const unsigned bit = rest & (0u - rest), block = first + (unsigned)kc_count_bits(bit - 1);
    if ((m.equal & bit) && n_equal-- <= 0) continue;
    if (at >= begin && at < begin + QSA_TOPK_BINS) list[at - begin] = (int)block;
    ++at;
  }
}

/* A tile of 32 blocks a thread after the other. The selected ones go to a list in shared
 * memory, so that neighbouring threads write neighbouring cells; a tile of more than the
 * list holds goes there in parts. */
KC_INLINE void write_selected(const row *r, qsa_topk_shared *s, unsigned last, int n_equal, int threads, int ratio,
                              int32_t *ids) {
  int n_above = 0, n_equals = 0; /* in the tiles before */
  for (unsigned tile = 0; tile < r->n; tile += 32u * (unsigned)threads) {
    const unsigned warp_first = tile + 1024u * (unsigned)kc_warp;
    const marks m = warp_first + 1024 <= r->held ? mark(r, warp_first, last, 1) : mark(r, warp_first, last, 0);
    /* Two counts, of at most 2^15 each, in one sum. */
    const unsigned own = (unsigned)kc_count_bits(m.above) | (unsigned)kc_count_bits(m.equal) << 16;
    const unsigned before = sum_up_to(own, s->totals, threads) - own;
    const int above = n_above + (int)(before & 0xffff), equals = n_equals + (int)(before >> 16);
    const int taken = smaller(equals, n_equal), begin = n_above + smaller(n_equals, n_equal);
    if (kc_thread == threads - 1) {
      s->digit = above + (int)(own & 0xffff);
      s->n_wanted = equals + (int)(own >> 16);
    }
    kc_sync();
    n_above = s->digit;
    n_equals = s->n_wanted;
    const int end = n_above + smaller(n_equals, n_equal);
    for (int part = begin; part < end; part += QSA_TOPK_BINS) {
      const int n = end - part < QSA_TOPK_BINS ? end - part : QSA_TOPK_BINS;
      put_blocks(m, warp_first + 32u * (unsigned)kc_lane, n_equal - taken, above + taken, part, s->bins);
      kc_sync();
      for (int i = kc_thread; i < n * ratio; i += threads)
        ids[(int64_t)part * ratio + i] = s->bins[i / ratio] * ratio + i % ratio;
      kc_sync();
    }
  }
}

/* The n cells that token t sees, n > budget + ratio - 1. */
KC_INLINE void select_cells(const stk_qsa_topk_args *a, int64_t t, int32_t n, qsa_topk_shared *s) {
  const int threads = THREADS, ratio = RATIO, n_wanted = a->budget / ratio, n_blocks = n / ratio;
  const row r = {a->score + t * a->score_stride, (unsigned *)(s + 1), (unsigned)n_blocks,
                 (unsigned)qsa_topk_held(a, n_blocks)};
  int32_t *ids = a->ids + t * a->ids_stride;
  int n_equal;
  const unsigned last = last_key(&r, s, n_wanted, threads, &n_equal);
  const int count = n_wanted * ratio + n % ratio;
  if (kc_thread == 0) a->n_ids[t] = s->has_nan ? -count : count;
  for (int i = kc_thread; i < n % ratio; i += threads) ids[n_wanted * ratio + i] = n_blocks * ratio + i;
  write_selected(&r, s, last, n_equal, threads, ratio, ids);
}

KC_KERNEL(qsa_topk_cuda, stk_qsa_topk_args, 1024, 1) {
  KC_SHARED(qsa_topk_shared, shared);
  const int64_t t = kc_block;
  const int32_t n = a->pos0 + (int32_t)t + 1;
  if (n > (int64_t)a->budget + a->ratio - 1) {
    select_cells(a, t, n, shared);
  } else if (a->list_all) {
    for (int32_t i = kc_thread; i < n; i += THREADS) a->ids[t * a->ids_stride + i] = i;
    if (kc_thread == 0) a->n_ids[t] = n;
  }
}
