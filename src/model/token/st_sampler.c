/* Choosing the next token.
 *
 * The order is temperature, top-k, top-p, min-p, draw. All of it is + - * / and
 * the shared exponential, in a fixed order, and the generator is integer
 * arithmetic: the same logits, options and seed give the same ids everywhere.
 *
 * Candidates are ranked by their scaled logit, falling, and ties by id, rising.
 * They are put into a heap and taken off only as far as the filters reach, so a
 * pick costs O(n + m log n) for the m candidates that stay. Without any filter
 * nothing is ranked: the draw walks the ids in rising order. */
#include <float.h>
#include <math.h>

#include <strata/strata.h>

#include "common/k_math.h"
#include "core/st_mem.h"

typedef struct candidate {
  float scaled; /* (logit - highest logit) / temperature, at most 0 */
  int32_t id;
} candidate;

struct strata_sampler {
  strata_sampler_options options;
  uint64_t state;
  bool *known; /* [n_known], or NULL: every id counts */
  int32_t n_known;
  candidate *heap; /* the candidates, then a heap of those not taken yet */
  size_t heap_capacity;
  double *weights; /* of the candidates taken off the heap, in that order */
  int32_t *taken;  /* their ids */
  size_t weights_capacity, taken_capacity;
};

/* splitmix64 (Steele, Lea, Flood, doi 10.1145/2660193.2660195, section 5): a
 * counter put through a mixer, so any seed is a good one. */
static uint64_t next_random(uint64_t *state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* In [0, 1), a multiple of 2^-53, so exact. */
static double next_unit(uint64_t *state) {
  return (double)(next_random(state) >> 11) * (1.0 / 9007199254740992.0);
}

void strata_sampler_options_default(strata_sampler_options *options) {
  *options = (strata_sampler_options){.top_p = 1.0f};
}

static strata_status check_options(const strata_sampler_options *o, strata_error *err) {
  if (!(o->temperature >= 0 && o->temperature <= FLT_MAX))
    ST_FAIL(err, ARG, "temperature: %g: a number of at least 0 expected", (double)o->temperature);
  if (o->top_k < 0) ST_FAIL(err, ARG, "top_k: %d: at least 0 expected", o->top_k);
  if (!(o->top_p > 0 && o->top_p <= 1))
    ST_FAIL(err, ARG, "top_p: %g: above 0 and at most 1 expected", (double)o->top_p);
  if (!(o->min_p >= 0 && o->min_p <= 1))
    ST_FAIL(err, ARG, "min_p: %g: 0 to 1 expected", (double)o->min_p);
  return STRATA_OK;
}

strata_status strata_sampler_new(const strata_sampler_options *options,
                                 const strata_tokenizer *tokenizer, strata_sampler **out,
                                 strata_error *err) {
  void *memory;
  strata_sampler_options chosen;
  *out = NULL;
  strata_sampler_options_default(&chosen);
  if (options) chosen = *options;
  ST_TRY(check_options(&chosen, err));
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "a sampler", err));
  strata_sampler *sampler = memory;
  sampler->options = chosen;
  sampler->state = chosen.seed;
  if (tokenizer) {
    sampler->n_known = strata_tokenizer_id_limit(tokenizer);
    strata_status status = st_calloc(&memory, (size_t)sampler->n_known, sizeof *sampler->known,
                                     "the ids a sampler may pick", err);
    if (status != STRATA_OK) {
      strata_sampler_free(&sampler);
      return status;
    }
    sampler->known = memory;
    for (int32_t id = 0; id < sampler->n_known; id++)
      sampler->known[id] = strata_tokenizer_knows(tokenizer, id);
  }
  *out = sampler;
  return STRATA_OK;
}

void strata_sampler_free(strata_sampler **sampler) {
  strata_sampler *s = sampler ? *sampler : NULL;
  if (!s) return;
  st_free(s->known);
  st_free(s->heap);
  st_free(s->weights);
  st_free(s->taken);
  st_free(s);
  *sampler = NULL;
}

static bool may_pick(const strata_sampler *s, int32_t id) {
  return !s->known || (id < s->n_known && s->known[id]);
}

/* Fills *id with the highest logit that may be picked. Every logit is looked
 * at: a NaN anywhere means that the model has gone wrong. */
static strata_status find_highest(const strata_sampler *s, const float *logits, int32_t n,
                                  int32_t *id, strata_error *err) {
  int32_t best = -1;
  for (int32_t i = 0; i < n; i++) {
    if (isnan(logits[i]) || logits[i] == INFINITY)
      ST_FAIL(err, NUMERICS, "logits: id %d is %s: a finite number expected", i,
              isnan(logits[i]) ? "NaN" : "infinity");
    if (logits[i] == -INFINITY || !may_pick(s, i)) continue;
    if (best < 0 || logits[i] > logits[best]) best = i;
  }
  if (best < 0)
    ST_FAIL(err, NUMERICS, "logits: all %d ids are unknown or -infinity: one to pick expected", n);
  *id = best;
  return STRATA_OK;
}

static strata_status make_room(strata_sampler *s, size_t n, strata_error *err) {
  void *heap = s->heap, *weights = s->weights, *taken = s->taken;
  ST_TRY(st_grow(&heap, &s->heap_capacity, n, sizeof *s->heap, "candidates", err));
  s->heap = heap;
  ST_TRY(st_grow(&weights, &s->weights_capacity, n, sizeof *s->weights, "candidates", err));
  s->weights = weights;
  ST_TRY(st_grow(&taken, &s->taken_capacity, n, sizeof *s->taken, "candidates", err));
  s->taken = taken;
  return STRATA_OK;
}

/* Fills heap with the candidates in rising order of id; returns their count. */
static size_t collect(strata_sampler *s, const float *logits, int32_t n, float highest) {
  size_t count = 0;
  for (int32_t id = 0; id < n; id++)
    if (logits[id] != -INFINITY && may_pick(s, id))
      s->heap[count++] = (candidate){(logits[id] - highest) / s->options.temperature, id};
  return count;
}

static bool ranks_before(candidate a, candidate b) {
  return a.scaled != b.scaled ? a.scaled > b.scaled : a.id < b.id;
}

static void sift_down(candidate *heap, size_t n, size_t i) {
  candidate moved = heap[i];
  size_t child;
  while ((child = 2 * i + 1) < n) {
    if (child + 1 < n && ranks_before(heap[child + 1], heap[child])) child++;
    if (!ranks_before(heap[child], moved)) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = moved;
}

static double weight_of(candidate c) { return (double)ks_exp(c.scaled); }

/* Takes candidates off the heap of n, heaviest first: at most k, until they
 * hold share together, and only such as weigh floor or more. Returns how many. */
static size_t take_ranked(strata_sampler *s, size_t n, size_t k, double share, double floor) {
  size_t count = 0;
  double sum = 0;
  for (size_t i = n / 2; i-- > 0;) sift_down(s->heap, n, i);
  while (count < k && (count == 0 || sum < share)) {
    double weight = weight_of(s->heap[0]);
    if (weight < floor) break;
    sum += weight;
    s->weights[count] = weight;
    s->taken[count++] = s->heap[0].id;
    s->heap[0] = s->heap[--n];
    if (n) sift_down(s->heap, n, 0);
  }
  return count;
}

static size_t take_all(strata_sampler *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    s->weights[i] = weight_of(s->heap[i]);
    s->taken[i] = s->heap[i].id;
  }
  return n;
}

static double sum_of(const double *weights, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += weights[i];
  return sum;
}

/* How many of n, heaviest first, hold share together: at least one. */
static size_t prefix_with(const double *weights, size_t n, double share) {
  double sum = 0;
  size_t count = 0;
  while (count < n && (count == 0 || sum < share)) sum += weights[count++];
  return count;
}

/* Leaves the candidates that pass the filters in weights and taken; returns
 * their number. The heaviest weighs 1, so min-p is a weight itself. */
static size_t filter(strata_sampler *s, size_t n) {
  const strata_sampler_options *o = &s->options;
  bool by_k = o->top_k > 0 && (size_t)o->top_k < n, by_p = o->top_p < 1;
  if (!by_k && !by_p && !(o->min_p > 0)) return take_all(s, n);
  double total = 0;
  if (!by_k) {
    for (size_t i = 0; by_p && i < n; i++) total += weight_of(s->heap[i]);
    return take_ranked(s, n, n, by_p ? (double)o->top_p * total : (double)INFINITY,
                       (double)o->min_p);
  }
  size_t count = take_ranked(s, n, (size_t)o->top_k, (double)INFINITY, 0);
  total = sum_of(s->weights, count);
  if (by_p) count = prefix_with(s->weights, count, (double)o->top_p * total);
  while (count > 1 && s->weights[count - 1] < (double)o->min_p) count--;
  return count;
}

/* The index that u in [0, 1) falls on. A weight of 0 is never met, but for
 * rounding at the very end, where the last that weighs something is taken. */
static size_t draw(const double *weights, size_t n, double u) {
  double target = u * sum_of(weights, n), sum = 0;
  size_t last = 0;
  for (size_t i = 0; i < n; i++) {
    sum += weights[i];
    if (weights[i] > 0) last = i;
    if (sum > target) return i;
  }
  return last;
}

/* Every pick at a temperature above 0 uses one random number, and one that
 * fails uses none. */
strata_status strata_sampler_pick(strata_sampler *sampler, const float *logits, int32_t n,
                                  int32_t *id, strata_error *err) {
  int32_t best = 0;
  *id = 0;
  if (!logits || n < 1) ST_FAIL(err, ARG, "logits: %d of them: at least one expected", n);
  ST_TRY(find_highest(sampler, logits, n, &best, err));
  if (sampler->options.temperature == 0) {
    *id = best;
    return STRATA_OK;
  }
  ST_TRY(make_room(sampler, (size_t)n, err));
  size_t count = filter(sampler, collect(sampler, logits, n, logits[best]));
  *id = sampler->taken[draw(sampler->weights, count, next_unit(&sampler->state))];
  return STRATA_OK;
}
