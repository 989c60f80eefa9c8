/* Selections that change slowly from token to token. */
#include "lab/lab_near_lists.h"

#include "core/st_mem.h"
#include "lab/lab_case.h"

enum { POOL_BUDGETS = 3, KEPT_PERCENT = 60 };

/* A subset of the pool's places, as a shuffled list: the first n_chosen are chosen. */
typedef struct choice {
  int32_t *place, *block; /* block: the pool's, ascending */
  uint8_t *chosen;        /* by place */
  int32_t n_pool, n_chosen;
} choice;

static int32_t below(uint64_t *random, int32_t n) { return (int32_t)((lab_random(random) >> 32) * (uint64_t)n >> 32); }

static void swap(int32_t *a, int32_t *b) {
  int32_t old = *a;
  *a = *b;
  *b = old;
}

/* A random subset of the n_blocks blocks, in ascending order. */
static void draw_pool(choice *c, int64_t n_blocks, uint64_t *random) {
  int32_t n = 0;
  for (int64_t b = 0; b < n_blocks && n < c->n_pool; ++b)
    if (below(random, (int32_t)(n_blocks - b)) < c->n_pool - n) c->block[n++] = (int32_t)b;
  for (int32_t i = 0; i < c->n_pool; ++i) c->place[i] = i;
  for (int32_t i = 0; i < c->n_chosen; ++i) swap(&c->place[i], &c->place[i + below(random, c->n_pool - i)]);
}

/* Some of the chosen places change with as many that were not chosen. */
static void step(choice *c, uint64_t *random) {
  const int32_t rest = c->n_pool - c->n_chosen;
  int32_t n_changed = c->n_chosen * (100 - KEPT_PERCENT) / 100;
  if (n_changed > rest) n_changed = rest;
  for (int32_t i = 0; i < n_changed; ++i) {
    swap(&c->place[i], &c->place[i + below(random, c->n_chosen - i)]);
    swap(&c->place[c->n_chosen + i], &c->place[c->n_chosen + i + below(random, rest - i)]);
    swap(&c->place[i], &c->place[c->n_chosen + i]);
  }
}

static void write_list(const choice *c, stk_qsa_attn_args *a, int64_t t) {
  int32_t *ids = (int32_t *)(uintptr_t)a->ids + t * a->ids_stride, n = 0;
  const int64_t n_cells = a->pos0 + t + 1;
  for (int32_t i = 0; i < c->n_pool; ++i) c->chosen[i] = 0;
  for (int32_t i = 0; i < c->n_chosen; ++i) c->chosen[c->place[i]] = 1;
  for (int32_t i = 0; i < c->n_pool; ++i)
    for (int32_t j = 0; j < a->ratio && c->chosen[i]; ++j) ids[n++] = c->block[i] * a->ratio + j;
  for (int64_t cell = n_cells / a->ratio * a->ratio; cell < n_cells; ++cell) ids[n++] = (int32_t)cell;
  ((int32_t *)(uintptr_t)a->n_ids)[t] = n;
}

strata_status lab_near_lists(stk_qsa_attn_args *a, uint64_t seed, strata_error *err) {
  const int64_t n_blocks = (a->pos0 + 1) / a->ratio;
  choice c = {.n_chosen = a->budget / a->ratio};
  void *memory;
  c.n_pool = (int32_t)(n_blocks < (int64_t)POOL_BUDGETS * c.n_chosen ? n_blocks : POOL_BUDGETS * c.n_chosen);
  ST_TRY(st_calloc(&memory, (size_t)c.n_pool, 2 * sizeof(int32_t) + 1, "lists of cells", err));
  c.place = memory;
  c.block = c.place + c.n_pool;
  c.chosen = (uint8_t *)(c.block + c.n_pool);
  draw_pool(&c, n_blocks, &seed);
  for (int64_t t = 0; t < a->n_tokens; ++t) {
    if (t) step(&c, &seed);
    write_list(&c, a, t);
  }
  st_free(memory);
  return STRATA_OK;
}
