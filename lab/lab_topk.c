/* Scores of blocks, and cases with them. */
#include "lab/lab_topk.h"

#include <math.h>
#include <string.h>

static float random_score(uint64_t *random) { return (float)(lab_random(random) >> 40) * 1e-5f; }

static void fill_flat(float *score, int32_t n, uint64_t *random) {
  for (int32_t b = 0; b < n; ++b) score[b] = lab_random(random) % 3 ? 0.0f : 1.0f;
}
static void fill_equal(float *score, int32_t n, uint64_t *random) {
  (void)random;
  for (int32_t b = 0; b < n; ++b) score[b] = 2.5f;
}
static void fill_zeros(float *score, int32_t n, uint64_t *random) {
  for (int32_t b = 0; b < n; ++b) score[b] = lab_random(random) % 2 ? 0.0f : -0.0f;
}
static void fill_some_nan(float *score, int32_t n, uint64_t *random) {
  for (int32_t b = 0; b < n; ++b) score[b] = lab_random(random) % 50 ? random_score(random) : NAN;
}
static void fill_most_nan(float *score, int32_t n, uint64_t *random) {
  for (int32_t b = 0; b < n; ++b) score[b] = lab_random(random) % 300 ? NAN : random_score(random);
}
static void fill_all_nan(float *score, int32_t n, uint64_t *random) {
  (void)random;
  for (int32_t b = 0; b < n; ++b) score[b] = NAN;
}
static void fill_infinite(float *score, int32_t n, uint64_t *random) {
  for (int32_t b = 0; b < n; ++b)
    score[b] = lab_random(random) % 70 == 0 ? INFINITY : lab_random(random) % 2 ? -INFINITY : -random_score(random);
}
/* 9000 scores, where the last selected one lies, are one ulp apart at most. */
static void fill_close(float *score, int32_t n, uint64_t *random) {
  for (int32_t b = 0; b < n; ++b) score[b] = random_score(random) * 1e-3f;
  for (int32_t i = 0; i < 9000; ++i)
    score[lab_random(random) % (uint64_t)n] = i % 2 ? 1.0f : nextafterf(1.0f, 2.0f);
  for (int32_t i = 0; i < 100; ++i) score[lab_random(random) % (uint64_t)n] = 3.0f;
}
static void fill_random(float *score, int32_t n, uint64_t *random) {
  for (int32_t b = 0; b < n; ++b) score[b] = random_score(random);
}
static void fill_any_bits(float *score, int32_t n, uint64_t *random) {
  for (int32_t b = 0; b < n; ++b) {
    uint32_t bits = (uint32_t)lab_random(random);
    memcpy(&score[b], &bits, sizeof bits);
  }
}
static void fill_ascending(float *score, int32_t n, uint64_t *random) {
  (void)random;
  for (int32_t b = 0; b < n; ++b) score[b] = (float)b;
}

static const struct {
  const char *name;
  void (*fill)(float *score, int32_t n, uint64_t *random);
} fills[LAB_TOPK_FILLS] = {
    {"random", fill_random}, {"flat", fill_flat}, {"all equal", fill_equal}, {"signed zeros", fill_zeros},
    {"some NaN", fill_some_nan}, {"fewer numbers than wanted", fill_most_nan}, {"only NaN", fill_all_nan},
    {"infinities", fill_infinite}, {"9000 within an ulp", fill_close}, {"any bits", fill_any_bits},
    {"ascending", fill_ascending}};

const char *lab_topk_fill_name(int32_t fill) { return fills[fill].name; }
void lab_topk_fill(int32_t fill, float *score, int32_t n, uint64_t *random) { fills[fill].fill(score, n, random); }

stk_qsa_topk_args lab_topk_shape(int32_t shape) {
  static const struct {
    int32_t n_cells, ratio, budget;
  } shapes[LAB_TOPK_SHAPES] = {{2052, 4, 2048}, {8191, 4, 2048}, {20001, 1, 5000}, {262147, 4, 2048}, {400001, 4, 2048}};
  const int32_t n = shapes[shape].n_cells, ratio = shapes[shape].ratio, budget = shapes[shape].budget;
  return (stk_qsa_topk_args){.n_tokens = 1, .pos0 = n - 1, .ratio = ratio, .budget = budget, .score_stride = n / ratio,
                             .ids_stride = budget + ratio - 1};
}

void lab_topk_put(lab_case *c, int32_t fill) {
  const stk_qsa_topk_args *a = c->args;
  uint64_t random = 77 + (uint64_t)fill;
  for (int64_t t = 0; t < a->n_tokens; ++t)
    lab_topk_fill(fill, (float *)(uintptr_t)a->score + t * a->score_stride, (int32_t)a->score_stride, &random);
}
