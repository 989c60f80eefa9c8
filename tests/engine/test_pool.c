/* The thread pool: every part of every call runs exactly once, calls run in order,
 * and lists may follow each other as fast as the caller can post them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cpu/st_pool.h"

enum { PARTS_MAX = 64, CALLS_MAX = 8, N_THREADS = 5 };

static const int32_t thread_counts[N_THREADS] = {1, 2, 3, 7, 16};

static st_pool *new_pool(int32_t n_threads) {
  st_pool *pool;
  strata_error err;
  if (st_pool_new(n_threads, &pool, &err) != STRATA_OK) fail_msg("%s", err.message);
  assert_int_equal(st_pool_threads(pool), n_threads);
  return pool;
}

/* ---- parts ---------------------------------------------------------------------- */

/* What a call's parts leave behind. */
typedef struct counters {
  _Atomic int32_t runs[PARTS_MAX]; /* of each part */
  _Atomic int32_t wrong;           /* parts outside the call, or another n_parts */
  int32_t n_parts;
} counters;

static void count(const void *args, int32_t part, int32_t n_parts) {
  counters *c = (counters *)(uintptr_t)args;
  if (n_parts != c->n_parts || part < 0 || part >= n_parts) {
    atomic_fetch_add(&c->wrong, 1);
    return;
  }
  atomic_fetch_add_explicit(&c->runs[part], 1, memory_order_relaxed);
}

static const stk_kernel counting = {.op = "count", .variant = "test", .run = count};

static void check_counters(const counters *c, int32_t runs, int32_t n_threads) {
  if (c->wrong) fail_msg("%d threads: %d wrong parts", n_threads, c->wrong);
  for (int32_t part = 0; part < c->n_parts; ++part)
    if (c->runs[part] != runs)
      fail_msg("%d threads: part %d of %d ran %d times instead of %d", n_threads, part, c->n_parts,
               c->runs[part], runs);
}

/* Fewer parts than threads, as many, and more; in a list of their own and in one
 * list with others. */
static void test_parts(void **state) {
  (void)state;
  for (int32_t i = 0; i < N_THREADS; ++i) {
    st_pool *pool = new_pool(thread_counts[i]);
    counters each[PARTS_MAX + 1] = {0};
    st_call calls[PARTS_MAX];
    for (int32_t n = 1; n <= PARTS_MAX; ++n) {
      each[n].n_parts = n;
      calls[n - 1] = (st_call){.kernel = &counting, .args = &each[n], .n_parts = n};
      st_pool_run(pool, &calls[n - 1], 1, NULL, NULL);
      check_counters(&each[n], 1, thread_counts[i]);
    }
    st_pool_run(pool, calls, PARTS_MAX, NULL, NULL);
    for (int32_t n = 1; n <= PARTS_MAX; ++n) check_counters(&each[n], 2, thread_counts[i]);
    st_pool_free(&pool);
    assert_null(pool);
  }
}

/* ---- order ---------------------------------------------------------------------- */

/* Each call writes a row from its neighbours in the row before, without atomics:
 * a call that begins before the last one has ended computes another value, and is
 * a data race for the thread sanitizer. */
enum { WIDTH = 48, ROWS = 40 };

typedef struct row_args {
  const uint32_t *from;
  uint32_t *to;
} row_args;

static void mix_row(const void *args, int32_t part, int32_t n_parts) {
  const row_args *a = args;
  int64_t begin, end;
  stk_slice(WIDTH, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i)
    a->to[i] = a->from[(i + WIDTH - 1) % WIDTH] * 31u + a->from[i] + 7u * a->from[(i + 17) % WIDTH];
}

static const stk_kernel mixing = {.op = "mix", .variant = "test", .run = mix_row};

static void test_order(void **state) {
  enum { REPEATS = 200 };
  static uint32_t rows[ROWS + 1][WIDTH], want[WIDTH];
  (void)state;
  for (int32_t i = 0; i < N_THREADS; ++i) {
    const int32_t n_threads = thread_counts[i];
    st_pool *pool = new_pool(n_threads);
    row_args args[ROWS];
    st_call calls[ROWS];
    for (int32_t c = 0; c < ROWS; ++c) {
      /* Static and dynamic parts in turns, so that both kinds of barrier occur. */
      int32_t n_parts = c % 3 == 0 ? n_threads : c % 3 == 1 ? 4 * n_threads : 1 + c % n_threads;
      args[c] = (row_args){rows[c], rows[c + 1]};
      calls[c] = (st_call){.kernel = &mixing, .args = &args[c], .n_parts = n_parts};
    }
    for (int32_t repeat = 0; repeat < REPEATS; ++repeat) {
      memset(rows, 0, sizeof rows);
      for (uint32_t k = 0; k < WIDTH; ++k) rows[0][k] = k * k + 1u;
      st_pool_run(pool, calls, ROWS, NULL, NULL);
      if (i == 0 && repeat == 0) memcpy(want, rows[ROWS], sizeof want);
      if (memcmp(want, rows[ROWS], sizeof want) != 0)
        fail_msg("%d threads: the calls ran in another order", n_threads);
    }
    st_pool_free(&pool);
  }
}

/* ---- many lists ------------------------------------------------------------------- */

/* Lists of 1 to 5 calls, one directly after the other, of calls and args that live
 * only as long as the list and are overwritten by the next one: a thread that
 * still reads the last list when the next one is posted takes a wrong length or a
 * wrong call, and a part too many or too few is counted. */
static void test_tiny_lists(void **state) {
  (void)state;
  for (int32_t i = 0; i < N_THREADS; ++i) {
    const int32_t n_threads = thread_counts[i];
    /* More threads than CPUs sleep at every barrier, so they get fewer lists. */
    const int32_t n_lists = n_threads <= 3 ? 20000 : 2500;
    st_pool *pool = new_pool(n_threads);
    counters each[5];
    st_call calls[5];
    uint32_t random = 1;
    for (int32_t list = 0; list < n_lists; ++list) {
      random = random * 1664525u + 1013904223u;
      const int32_t n_calls = 1 + (int32_t)((random >> 24) % 5);
      memset(calls, 0, sizeof calls); /* a call that is read too late has no kernel */
      for (int32_t c = 0; c < n_calls; ++c) {
        int32_t n_parts = 1 + (int32_t)((random >> (4 * c)) % 16);
        memset(&each[c], 0, sizeof each[c]);
        each[c].n_parts = n_parts;
        calls[c] = (st_call){.kernel = &counting, .args = &each[c], .n_parts = n_parts};
      }
      st_pool_run(pool, calls, n_calls, NULL, NULL);
      for (int32_t c = 0; c < n_calls; ++c) check_counters(&each[c], 1, n_threads);
    }
    st_pool_free(&pool);
  }
}

/* Lengths that alternate as much as they can, on the smallest pool: the shortest
 * way from the end of one list to the start of the next. */
static void test_alternating_lists(void **state) {
  enum { LISTS = 20000 };
  static counters long_one[CALLS_MAX], short_one;
  st_call long_list[CALLS_MAX];
  (void)state;
  st_pool *pool = new_pool(2);
  short_one.n_parts = 1;
  const st_call short_list = {.kernel = &counting, .args = &short_one, .n_parts = 1};
  for (int32_t c = 0; c < CALLS_MAX; ++c) {
    long_one[c].n_parts = 2 + c % 2 * 6;
    long_list[c] = (st_call){.kernel = &counting, .args = &long_one[c], .n_parts = 2 + c % 2 * 6};
  }
  for (int32_t list = 0; list < LISTS; ++list) {
    if (list % 2) st_pool_run(pool, long_list, CALLS_MAX, NULL, NULL);
    else st_pool_run(pool, &short_list, 1, NULL, NULL);
  }
  check_counters(&short_one, LISTS / 2, 2);
  for (int32_t c = 0; c < CALLS_MAX; ++c) check_counters(&long_one[c], LISTS / 2, 2);
  st_pool_free(&pool);
}

/* A list may have no calls; nothing happens, and the next list runs. */
static void test_empty_lists(void **state) {
  enum { LISTS = 3000 };
  (void)state;
  for (int32_t i = 0; i < N_THREADS; ++i) {
    st_pool *pool = new_pool(thread_counts[i]);
    counters c = {.n_parts = 5};
    const st_call call = {.kernel = &counting, .args = &c, .n_parts = 5};
    for (int32_t list = 0; list < LISTS; ++list) {
      st_pool_run(pool, NULL, 0, NULL, NULL);
      st_pool_run(pool, &call, 1, NULL, NULL);
    }
    check_counters(&c, LISTS, thread_counts[i]);
    st_pool_free(&pool);
  }
}

/* ---- the observer ------------------------------------------------------------------ */

typedef struct observed {
  const st_call *next;
  const counters *all;
  int32_t n;
  double seconds;
} observed;

/* Calls are seen in order, each when all its parts are done and none of the next
 * has begun to be counted. */
static void observe(void *user, const st_call *call, double seconds) {
  observed *o = user;
  const counters *c = call->args;
  if (call != o->next) fail_msg("call %d seen out of order", o->n);
  check_counters(c, 1, 0);
  ++o->next;
  ++o->n;
  if (!(seconds >= 0)) fail_msg("call %d took %g s", o->n, seconds);
  o->seconds += seconds;
}

static void test_observer(void **state) {
  (void)state;
  for (int32_t i = 0; i < N_THREADS; ++i) {
    st_pool *pool = new_pool(thread_counts[i]);
    counters each[CALLS_MAX] = {0};
    st_call calls[CALLS_MAX];
    observed o = {.next = calls};
    for (int32_t c = 0; c < CALLS_MAX; ++c) {
      each[c].n_parts = 1 + 5 * c;
      calls[c] = (st_call){.kernel = &counting, .args = &each[c], .n_parts = 1 + 5 * c};
    }
    st_pool_run(pool, calls, CALLS_MAX, observe, &o);
    assert_int_equal(o.n, CALLS_MAX);
    st_pool_free(&pool);
  }
}

/* ---- life ---------------------------------------------------------------------------- */

/* Shut down before any thread may have started, and directly after a list. */
static void test_shutdown(void **state) {
  enum { POOLS = 150 };
  (void)state;
  for (int32_t i = 0; i < N_THREADS; ++i)
    for (int32_t k = 0; k < POOLS; ++k) {
      st_pool *pool = new_pool(thread_counts[i]);
      counters c = {.n_parts = 9};
      const st_call call = {.kernel = &counting, .args = &c, .n_parts = 9};
      for (int32_t list = 0; list < k % 4; ++list) st_pool_run(pool, &call, 1, NULL, NULL);
      st_pool_free(&pool);
      assert_null(pool);
      check_counters(&c, k % 4, thread_counts[i]);
    }
  st_pool *none = NULL;
  st_pool_free(&none);
}

/* Two pools whose threads compete for the CPUs do not know each other. */
static void test_two_pools(void **state) {
  enum { LISTS = 1500 };
  st_pool *a = new_pool(3), *b = new_pool(7);
  counters ca = {.n_parts = 12}, cb = {.n_parts = 5};
  const st_call call_a = {.kernel = &counting, .args = &ca, .n_parts = 12};
  const st_call call_b = {.kernel = &counting, .args = &cb, .n_parts = 5};
  (void)state;
  for (int32_t list = 0; list < LISTS; ++list) {
    st_pool_run(a, &call_a, 1, NULL, NULL);
    st_pool_run(b, &call_b, 1, NULL, NULL);
  }
  check_counters(&ca, LISTS, 3);
  check_counters(&cb, LISTS, 7);
  st_pool_free(&a);
  st_pool_free(&b);
}

/* Parts of very different length, some of which give their CPU away: threads sleep
 * at the barrier and have to be woken. */
static void uneven(const void *args, int32_t part, int32_t n_parts) {
  for (int32_t i = 0; i < (part == 0 ? 300 : part); ++i) sched_yield();
  count(args, part, n_parts);
}

static void test_sleepers(void **state) {
  enum { LISTS = 150 };
  static const stk_kernel yielding = {.op = "uneven", .variant = "test", .run = uneven};
  (void)state;
  for (int32_t i = 0; i < N_THREADS; ++i) {
    st_pool *pool = new_pool(thread_counts[i]);
    counters c[2] = {{.n_parts = 3}, {.n_parts = 40}};
    const st_call calls[2] = {{.kernel = &yielding, .args = &c[0], .n_parts = 3},
                              {.kernel = &yielding, .args = &c[1], .n_parts = 40}};
    for (int32_t list = 0; list < LISTS; ++list) st_pool_run(pool, calls, 2, NULL, NULL);
    check_counters(&c[0], LISTS, thread_counts[i]);
    check_counters(&c[1], LISTS, thread_counts[i]);
    st_pool_free(&pool);
  }
}

static void test_limits(void **state) {
  static const int32_t bad[] = {0, -1, 257, INT32_MAX};
  strata_error err;
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    st_pool *pool = (st_pool *)&err; /* must become NULL */
    assert_int_equal(st_pool_new(bad[i], &pool, &err), STRATA_ARG);
    assert_int_equal(err.status, STRATA_ARG);
    assert_null(pool);
  }
  st_pool *largest = new_pool(256);
  counters c = {.n_parts = 64};
  st_pool_run(largest, &(st_call){.kernel = &counting, .args = &c, .n_parts = 64}, 1, NULL, NULL);
  check_counters(&c, 1, 256);
  st_pool_free(&largest);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parts),       cmocka_unit_test(test_order),
      cmocka_unit_test(test_tiny_lists),  cmocka_unit_test(test_alternating_lists),
      cmocka_unit_test(test_observer),    cmocka_unit_test(test_shutdown),
      cmocka_unit_test(test_two_pools),   cmocka_unit_test(test_sleepers),
      cmocka_unit_test(test_limits),      cmocka_unit_test(test_empty_lists),
  };
  alarm(300); /* a thread that waits for ever ends the program */
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
