/* isa: scalar avx2 avx512 neon
 * qsa_topk -- bisection on the bits of the scores. A float and the integer with its
 * bits have the same order (negative ones turned round), so at most 32 counts of
 * the scores above a value find the last selected one; once few candidates are
 * left they are gathered and only those are counted. Each count is one pass over
 * the scores, whatever they are, so the time is linear in their number. A last pass
 * in ascending order writes the cells. */
#include "qsa_topk/qsa_topk.h"

#include <math.h>

#include "common/k_math.h"
#include "common/k_simd.h"

enum { GATHERED = 2048 };

/* The scores whose place is still open, and how many lie above all of them. */
typedef struct candidates {
  const float *score;
  int64_t n, above;
  float gathered[GATHERED];
} candidates;

/* Integers in the order of the floats; its own inverse but for the type. */
static int32_t turned(int32_t bits) { return bits < 0 ? bits ^ 0x7fffffff : bits; }
static int32_t key_of(float x) { return turned(ks_bits(x)); }
static float value_of(int64_t key) { return ks_float(turned((int32_t)key)); }

/* Lanes of s that are numbers, as bits. */
K_INLINE uint32_t number_bits(vf s) {
  return vm_bits(vf_lt(s, vf_set1(INFINITY))) | vm_bits(vf_lt(vf_set1(-INFINITY), s));
}

/* Scores that are numbers; the least and the largest of them. */
static int64_t survey(const float *score, int64_t n, float *least, float *largest) {
  vf low = vf_set1(INFINITY), high = vf_set1(-INFINITY);
  float lane[2][VW];
  int64_t count = 0, i = 0;
  for (; i + VW <= n; i += VW) {
    vf s = vf_load(score + i);
    low = vf_select(vf_lt(s, low), s, low);
    high = vf_select(vf_lt(high, s), s, high);
    count += __builtin_popcount(number_bits(s));
  }
  vf_store(lane[0], low);
  vf_store(lane[1], high);
  *least = lane[0][0];
  *largest = lane[1][0];
  for (int j = 1; j < VW; ++j) {
    if (lane[0][j] < *least) *least = lane[0][j];
    if (lane[1][j] > *largest) *largest = lane[1][j];
  }
  for (; i < n; ++i) {
    count += score[i] == score[i];
    if (score[i] < *least) *least = score[i];
    if (score[i] > *largest) *largest = score[i];
  }
  return count;
}

static int64_t count_above(const candidates *c, float x) {
  int64_t count = c->above, i = 0;
  for (; i + VW <= c->n; i += VW)
    count += __builtin_popcount(vm_bits(vf_lt(vf_set1(x), vf_load(c->score + i))));
  for (; i < c->n; ++i) count += x < c->score[i];
  return count;
}

/* Keeps the scores in (low, high], of which there are at most GATHERED. */
static void gather(candidates *c, float low, float high, int64_t above) {
  int64_t n = 0, i = 0;
  for (; i + VW <= c->n; i += VW) {
    vf s = vf_load(c->score + i);
    uint32_t bits = vm_bits(vf_lt(vf_set1(low), s)) & ~vm_bits(vf_lt(vf_set1(high), s));
    for (; bits; bits &= bits - 1) c->gathered[n++] = c->score[i + __builtin_ctz(bits)];
  }
  for (; i < c->n; ++i)
    if (low < c->score[i] && !(high < c->score[i])) c->gathered[n++] = c->score[i];
  c->score = c->gathered;
  c->n = n;
  c->above = above;
}

/* The score of the last selected block, in *n_equal how many blocks with just that
 * score are selected (the lower ones). There are at least n_wanted > 0 numbers.
 * Invariant: at least n_wanted scores are above `low`, fewer are above `high`. */
static float threshold(const float *score, int64_t n, float least, float largest, int64_t n_wanted,
                       int64_t *n_equal) {
  candidates c = {.score = score, .n = n};
  int64_t low = (int64_t)key_of(least) - 1, high = key_of(largest);
  int64_t above_low = n, above_high = 0;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2, above = count_above(&c, value_of(middle));
    if (above >= n_wanted) {
      low = middle;
      above_low = above;
    } else {
      high = middle;
      above_high = above;
    }
    if (above == n_wanted) break;
    if (above_low - above_high <= GATHERED && c.n > 2 * GATHERED && above_low < n)
      gather(&c, value_of(low), value_of(high), above_high);
  }
  *n_equal = above_low == n_wanted ? 0 : n_wanted - above_high;
  return value_of(above_low == n_wanted ? low : high);
}

/* What is selected: scores above `last`, the first n_equal that equal it, and the
 * first n_nan that are no numbers. */
typedef struct selection {
  float last;
  int64_t n_equal, n_nan;
} selection;

static selection choose(const float *score, int64_t n, int64_t n_wanted, int *has_nan) {
  float least, largest;
  int64_t n_numbers = survey(score, n, &least, &largest);
  selection s = {.last = -INFINITY, .n_equal = n};
  *has_nan = n_numbers < n;
  if (n_numbers > n_wanted) s.last = threshold(score, n, least, largest, n_wanted, &s.n_equal);
  else s.n_nan = n_wanted - n_numbers;
  return s;
}

static int32_t put_block(const stk_qsa_topk_args *a, int64_t b, int32_t count, int32_t *ids) {
  for (int64_t j = 0; j < a->ratio; ++j) ids[count++] = (int32_t)(b * a->ratio + j);
  return count;
}

static int is_selected(selection *s, float score) {
  if (score > s->last) return 1;
  if (score == s->last) return s->n_equal-- > 0;
  return score != score && s->n_nan-- > 0;
}

static int32_t select_cells(const stk_qsa_topk_args *a, const float *score, int64_t n, int32_t *ids) {
  const int64_t n_blocks = n / a->ratio;
  int has_nan;
  selection s = choose(score, n_blocks, a->budget / a->ratio, &has_nan);
  int32_t count = 0;
  int64_t b = 0;
  for (; b + VW <= n_blocks; b += VW) {
    vf v = vf_load(score + b);
    uint32_t bits = vm_bits(vf_lt(vf_set1(s.last), v));
    if (s.n_equal > 0) bits |= number_bits(v) & ~vm_bits(vf_lt(v, vf_set1(s.last)));
    if (s.n_nan > 0) bits |= ~number_bits(v) & (uint32_t)((1ull << VW) - 1);
    for (; bits; bits &= bits - 1) {
      int64_t block = b + __builtin_ctz(bits);
      if (is_selected(&s, score[block])) count = put_block(a, block, count, ids);
    }
  }
  for (; b < n_blocks; ++b)
    if (is_selected(&s, score[b])) count = put_block(a, b, count, ids);
  for (int64_t cell = n_blocks * a->ratio; cell < n; ++cell) ids[count++] = (int32_t)cell;
  return has_nan ? -count : count;
}

static int32_t all_cells(int64_t n, int32_t *ids) {
  for (int64_t cell = 0; cell < n; ++cell) ids[cell] = (int32_t)cell;
  return (int32_t)n;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_topk_args *a = args;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t n = a->pos0 + t + 1;
    int32_t *ids = a->ids + t * a->ids_stride;
    if (n > (int64_t)a->budget + a->ratio - 1)
      a->n_ids[t] = select_cells(a, a->score + t * a->score_stride, n, ids);
    else if (a->list_all)
      a->n_ids[t] = all_cells(n, ids);
  }
}

STK_KERNEL_LEVEL(qsa_topk, STK_QSA_TOPK_CONTRACT, stk_qsa_topk_args, STK_EXACT, run);
