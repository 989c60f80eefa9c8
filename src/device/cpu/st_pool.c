/* The thread pool: spin briefly, then sleep. */
#include "device/cpu/st_pool.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/st_mem.h"
#include "os/st_cpu.h"
#include "os/st_process.h"

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
/* Most cores ignore the hint yield; this one they wait for. */
#define RELAX() __asm__ volatile("isb")
#else
#define RELAX() ((void)0)
#endif

enum {
  SPINS = 4000,        /* about 50 us of waiting before a thread gives its CPU away */
  /* Kernels keep panels of up to 350 KiB on the stack, and the thread sanitizer puts its
   * own data there too. Only what is touched takes memory. */
  STACK_BYTES = 4 << 20
};

typedef struct worker {
  st_pool *pool;
  pthread_t thread;
  int32_t index;
} worker;

struct st_pool {
  int32_t n_threads;
  int32_t n_started; /* workers to join */
  int32_t spins;     /* 0 when there are more threads than CPUs */
  worker *workers;   /* [n_threads - 1] */

  /* The job: written by the caller before generation is raised. */
  const st_call *calls;
  int32_t n_calls;
  bool stop;
  uint32_t round; /* the caller's own count of barriers */

  _Alignas(64) _Atomic uint32_t generation; /* one more for each job */
  _Alignas(64) _Atomic uint32_t arrived;    /* threads at the barrier, all rounds added up */
  _Alignas(64) _Atomic int32_t next_part[2]; /* of the current call and the next one */

  pthread_mutex_t mutex; /* for sleeping on either counter */
  pthread_cond_t changed;
  _Atomic int32_t sleepers;
};

/* Waits until *counter has reached target (wrapping). */
static void wait_for(st_pool *pool, _Atomic uint32_t *counter, uint32_t target) {
  for (int32_t spin = 0; spin < pool->spins; ++spin) {
    if ((int32_t)(atomic_load_explicit(counter, memory_order_acquire) - target) >= 0) return;
    RELAX();
  }
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->sleepers, 1);
  while ((int32_t)(atomic_load(counter) - target) < 0)
    pthread_cond_wait(&pool->changed, &pool->mutex);
  atomic_fetch_sub(&pool->sleepers, 1);
  pthread_mutex_unlock(&pool->mutex);
}

/* Wakes whoever sleeps; the counter was raised before. A thread that is about to
 * sleep holds the mutex while it looks at the counter, so none is missed. */
static void wake(st_pool *pool) {
  if (atomic_load(&pool->sleepers) == 0) return;
  pthread_mutex_lock(&pool->mutex);
  pthread_cond_broadcast(&pool->changed);
  pthread_mutex_unlock(&pool->mutex);
}

/* One thread's way through the list. round counts the barriers of this pool and
 * is equal in all threads. */
static void walk(st_pool *pool, int32_t index, uint32_t *round, st_pool_observer *observer,
                 void *user) {
  /* Read once: the caller may post its next list while a thread is still on its
   * way out of this one. */
  const st_call *calls = pool->calls;
  const int32_t n_calls = pool->n_calls, n_threads = pool->n_threads;
  double before = observer ? st_clock_seconds() : 0;
  for (int32_t i = 0; i < n_calls; ++i) {
    const st_call *call = &calls[i];
    if (call->n_parts <= n_threads) {
      if (index < call->n_parts) call->kernel->run(call->args, index, call->n_parts);
    } else {
      /* More parts than threads: whoever is free takes the next one. */
      _Atomic int32_t *next = &pool->next_part[*round & 1];
      for (int32_t part; (part = atomic_fetch_add(next, 1)) < call->n_parts;)
        call->kernel->run(call->args, part, call->n_parts);
    }
    if (n_threads > 1) {
      uint32_t target = (*round + 1) * (uint32_t)n_threads;
      /* The last to arrive resets the counter that the call after next will use:
       * nobody can still be taking parts of this one. */
      if (atomic_fetch_add(&pool->arrived, 1) + 1 == target) {
        atomic_store(&pool->next_part[*round & 1], 0);
        wake(pool);
      } else {
        wait_for(pool, &pool->arrived, target);
      }
    } else {
      atomic_store(&pool->next_part[*round & 1], 0);
    }
    ++*round;
    if (observer) {
      double now = st_clock_seconds();
      observer(user, call, now - before);
      before = st_clock_seconds();
    }
  }
}

static void *worker_main(void *argument) {
  worker *self = argument;
  st_pool *pool = self->pool;
  uint32_t round = 0;
  for (uint32_t job = 1;; ++job) {
    wait_for(pool, &pool->generation, job);
    if (pool->stop) return NULL;
    walk(pool, self->index, &round, NULL, NULL);
  }
}

strata_status st_pool_new(int32_t n_threads, st_pool **out, strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory = NULL;
  st_pool *pool = NULL;
  pthread_attr_t attributes;
  *out = NULL;
  if (n_threads < 1 || n_threads > 256)
    ST_FAIL(err, ARG, "threads: %d: 1 to 256 expected", n_threads);
  ST_TRY(st_calloc_aligned(&memory, 1, sizeof *pool, "the thread pool", err));
  pool = memory;
  pool->n_threads = n_threads;
  pool->spins = n_threads <= st_cpu_count() ? SPINS : 0;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->changed, NULL);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  ST_TRY_OUT(st_calloc(&memory, (size_t)n_threads, sizeof *pool->workers, "the threads", err));
  pool->workers = memory;
  for (int32_t i = 1; i < n_threads; ++i) {
    worker *w = &pool->workers[i - 1];
    *w = (worker){.pool = pool, .index = i};
    if (pthread_create(&w->thread, &attributes, worker_main, w) != 0)
      ST_FAIL_OUT(err, LIMIT, "threads: %d: the system gives only %d", n_threads, i);
    ++pool->n_started;
  }
  *out = pool;
  pool = NULL;
out:
  pthread_attr_destroy(&attributes);
  st_pool_free(&pool);
  return status;
}

void st_pool_free(st_pool **pool) {
  st_pool *p = *pool;
  if (!p) return;
  p->stop = true;
  atomic_fetch_add(&p->generation, 1);
  wake(p);
  for (int32_t i = 0; i < p->n_started; ++i) pthread_join(p->workers[i].thread, NULL);
  pthread_cond_destroy(&p->changed);
  pthread_mutex_destroy(&p->mutex);
  st_free(p->workers);
  st_free(p);
  *pool = NULL;
}

int32_t st_pool_threads(const st_pool *pool) { return pool->n_threads; }

void st_pool_run(st_pool *pool, const st_call *calls, int32_t n_calls, st_pool_observer *observer,
                 void *user) {
  /* Without a barrier nobody would wait for a thread that has yet to look at an
   * empty list; it would find the next one and run it twice. */
  if (n_calls == 0) return;
  pool->calls = calls;
  pool->n_calls = n_calls;
  if (pool->n_threads > 1) {
    atomic_fetch_add(&pool->generation, 1);
    wake(pool);
  }
  walk(pool, 0, &pool->round, observer, user);
}
