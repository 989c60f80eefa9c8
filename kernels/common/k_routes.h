/* k_routes.h -- routes of tokens to experts as tests need them, and how many
 * experts such a window touches. Not for kernels. */
#ifndef K_ROUTES_H
#define K_ROUTES_H

#include <math.h>
#include <stdint.h>

/* Fills a row of expert for each token: n_used different ones in ascending order,
 * every choice as likely as any other (selection sampling). Some experts get many
 * tokens, some none. */
static inline void k_routes_fill(int32_t *expert, int32_t n_tokens, int32_t n_used, int32_t n_experts,
                                 uint64_t seed) {
  uint64_t random = seed;
  for (int64_t t = 0; t < n_tokens; ++t)
    for (int32_t e = 0, i = 0; i < n_used; ++e) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      uint64_t draw = (random >> 33) % (uint64_t)(n_experts - e);
      if (draw < (uint64_t)(n_used - i)) expert[t * n_used + i++] = e;
    }
}

/* The number of different experts that a window is expected to touch: n_used for
 * one token, then ever fewer new ones. */
static inline double k_routes_touched(int32_t n_tokens, int32_t n_used, int32_t n_experts) {
  return n_experts * (1.0 - pow(1.0 - (double)n_used / n_experts, n_tokens));
}

/* How many experts have weights of their own where a test makes them. */
static inline int32_t k_routes_distinct(int32_t n_experts, int32_t test_experts) {
  return test_experts && test_experts < n_experts ? test_experts : n_experts;
}

#endif
