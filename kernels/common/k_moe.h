/* k_moe.h -- the tokens of one expert, found in the routes as they are needed:
 * no list is built, so a window may be of any size. */
#ifndef K_MOE_H
#define K_MOE_H

#include <stdint.h>

enum { K_MOE_RUN = 96 };

/* Some of the (token, slot) pairs of an expert. */
typedef struct k_moe_run {
  int32_t token[K_MOE_RUN], slot[K_MOE_RUN]; /* slot = token * n_used + i */
  int32_t n;
} k_moe_run;

/* Fills run with the next pairs of expert e from token t on; returns the token
 * to go on with. A row of expert is ascending. */
static inline int32_t k_moe_next(const int32_t *expert, int32_t n_tokens, int32_t n_used, int32_t e,
                                 int32_t t, k_moe_run *run) {
  run->n = 0;
  for (; t < n_tokens && run->n < K_MOE_RUN; ++t)
    for (int32_t i = 0; i < n_used; ++i)
      if (expert[t * n_used + i] >= e) {
        if (expert[t * n_used + i] == e) {
          run->token[run->n] = t;
          run->slot[run->n++] = t * n_used + i;
        }
        break;
      }
  return t;
}

/* The same for the shared expert, which every token goes to. */
static inline int32_t k_moe_next_shared(int32_t n_tokens, int32_t t, k_moe_run *run) {
  run->n = 0;
  for (; t < n_tokens && run->n < K_MOE_RUN; ++t) {
    run->token[run->n] = t;
    run->slot[run->n++] = t;
  }
  return t;
}

#endif
