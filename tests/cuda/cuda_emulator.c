/* Threads of a block as coroutines: begun on a stack of their own by ucontext, and resumed
 * by _longjmp, since swapcontext asks the system for the signal mask each time, which took
 * four fifths of the tests. A thread runs until it waits; when nobody can run, a warp whose
 * lanes all wait in one exchange goes on, or the block whose threads all wait in the
 * barrier. */
#include "tests/cuda/cuda_emulator.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "common/k_cuda.h"

enum { THREADS_MAX = 2048, STACK_BYTES = 128 << 10, COPIES_MAX = 4096, LANES = 32, POISON = 0xc3 };
#define SHARED_GUARD 128u
#define SHARED_GUARD_ALIGN 16u

typedef enum wait { READY, WAIT_BLOCK, WAIT_CLUSTER, WAIT_WARP, WAIT_SHUFFLE, WAIT_XOR, WAIT_BALLOT, DONE } wait;

typedef struct copy {
  void *to;
  const void *from;
  int n_bytes, group;
} copy;

typedef struct thread {
  ucontext_t context; /* where it begins */
  jmp_buf here;       /* where it waits */
  bool begun;
  wait waits;
  kc_emulator_state at;
  int arrived, passed; /* the cluster's barrier, how often */
  float value;
  int operand; /* lane, mask or condition; of a ballot then its result */
  int n_copies, group;
  copy copies[COPIES_MAX];
} thread;

static struct {
  jmp_buf scheduler;
  thread *threads;
  char *stacks;
  int running;
  cuda_entry *entry;
  const void *args;
  char error[200];
} emu;

kc_emulator_state kc_emulator;

static void fault(const char *what) {
  if (!emu.error[0])
    snprintf(emu.error, sizeof emu.error, "block %d %d %d, thread %d: %s", kc_emulator.block[0],
             kc_emulator.block[1], kc_emulator.block[2], kc_emulator.thread, what);
}

int kc_emulator_processors(void) {
  if (!kc_emulator.n_processors) fault("asks for the processors, but its plan gives no KC_PROCESSORS");
  return kc_emulator.n_processors ? kc_emulator.n_processors : 1;
}

static thread *give_way(wait waits) {
  thread *t = &emu.threads[emu.running];
  t->waits = waits;
  if (_setjmp(t->here) == 0) _longjmp(emu.scheduler, 1);
  return t;
}

/* Until it gives way. */
static void resume(thread *t) {
  if (_setjmp(emu.scheduler)) return;
  if (t->begun) _longjmp(t->here, 1);
  t->begun = true;
  setcontext(&t->context);
}

/* ---- what kernels call --------------------------------------------------------- */

void kc_sync(void) { give_way(WAIT_BLOCK); }
void kc_sync_warp(void) { give_way(WAIT_WARP); }
void kc_cluster_arrive(void) {
  thread *t = &emu.threads[emu.running];
  if (t->arrived++ != t->passed) fault("arrives twice at the cluster's barrier");
}
void kc_cluster_wait(void) { give_way(WAIT_CLUSTER); }

static float exchange(wait waits, float value, int operand) {
  thread *t = &emu.threads[emu.running];
  t->value = value;
  t->operand = operand;
  return give_way(waits)->value;
}

float kc_shuffle(float v, int lane) { return exchange(WAIT_SHUFFLE, v, lane & (LANES - 1)); }
float kc_shuffle_xor(float v, int mask) { return exchange(WAIT_XOR, v, mask & (LANES - 1)); }
unsigned kc_ballot(int condition) {
  emu.threads[emu.running].operand = condition != 0;
  return (unsigned)give_way(WAIT_BALLOT)->operand;
}

void kc_emulator_aligned(const void *p, int n_bytes) {
  if ((uintptr_t)p % (uintptr_t)n_bytes) fault("an address is not aligned");
}

void kc_emulator_copy(void *to, const void *from, int n_bytes) {
  thread *t = &emu.threads[emu.running];
  kc_emulator_aligned(to, n_bytes);
  kc_emulator_aligned(from, n_bytes);
  if (t->n_copies == COPIES_MAX) fault("too many copies wait");
  else t->copies[t->n_copies++] = (copy){to, from, n_bytes, t->group};
}

void kc_copy_commit(void) { ++emu.threads[emu.running].group; }

void kc_copy_wait(int n) {
  thread *t = &emu.threads[emu.running];
  int kept = 0;
  for (int i = 0; i < t->n_copies; ++i) {
    copy *c = &t->copies[i];
    if (c->group < t->group - n) memcpy(c->to, c->from, (size_t)c->n_bytes);
    else t->copies[kept++] = *c;
  }
  t->n_copies = kept;
}

/* ---- scheduling ------------------------------------------------------------------ */

static void thread_main(void) {
  emu.entry(emu.args);
  if (emu.threads[emu.running].n_copies) fault("copies that nobody waited for");
  give_way(DONE);
}

static void start(int index, kc_emulator_state at) {
  thread *t = &emu.threads[index];
  t->waits = READY;
  t->begun = false;
  t->at = at;
  t->n_copies = t->group = t->arrived = t->passed = 0;
  getcontext(&t->context);
  t->context.uc_stack.ss_sp = emu.stacks + (size_t)index * STACK_BYTES;
  t->context.uc_stack.ss_size = STACK_BYTES;
  t->context.uc_link = NULL;
  makecontext(&t->context, thread_main, 0);
}

static int nth(int i, int n, cuda_order order) {
  if (order == CUDA_ASCENDING) return i;
  if (order == CUDA_DESCENDING) return n - 1 - i;
  /* 389 is prime and no block has so many threads that it divides their number. */
  return (int)((i * 389LL + 17) % n);
}

/* Lets the lanes of a warp go on that all wait in the same exchange. */
static int release_warp(thread *lanes) {
  const wait waits = lanes[0].waits;
  float value[LANES];
  unsigned ballot = 0;
  if (waits < WAIT_WARP || waits > WAIT_BALLOT) return 0;
  for (int i = 0; i < LANES; ++i) {
    if (lanes[i].waits != waits) return 0;
    value[i] = lanes[i].value;
    ballot |= (unsigned)(lanes[i].operand != 0) << i;
  }
  for (int i = 0; i < LANES; ++i) {
    if (waits == WAIT_SHUFFLE) lanes[i].value = value[lanes[i].operand];
    if (waits == WAIT_XOR) lanes[i].value = value[i ^ lanes[i].operand];
    if (waits == WAIT_BALLOT) lanes[i].operand = (int)ballot;
    lanes[i].waits = READY;
  }
  return 1;
}

static int release_block(thread *threads, int n) {
  for (int i = 0; i < n; ++i)
    if (threads[i].waits != WAIT_BLOCK) return 0;
  for (int i = 0; i < n; ++i) threads[i].waits = READY;
  return 1;
}

static int release_cluster(int n) {
  int released = 0, least = emu.threads[0].arrived;
  for (int i = 1; i < n; ++i)
    if (emu.threads[i].arrived < least) least = emu.threads[i].arrived;
  for (int i = 0; i < n; ++i) {
    thread *t = &emu.threads[i];
    if (t->waits != WAIT_CLUSTER || t->arrived == t->passed || t->arrived > least) continue;
    t->passed = t->arrived;
    t->waits = READY;
    released = 1;
  }
  return released;
}

/* The blocks of a cluster together: n threads, n_block of each. */
static void run_cluster(int n, int n_block, cuda_order order) {
  for (int moved = 1; moved && !emu.error[0];) {
    moved = 0;
    for (int i = 0; i < n && !emu.error[0]; ++i) {
      emu.running = nth(i, n, order);
      thread *t = &emu.threads[emu.running];
      if (t->waits != READY) continue;
      kc_emulator = t->at;
      resume(t);
      moved = 1;
    }
    int released = 0;
    for (int i = 0; i < n && !(released && order == CUDA_SHUFFLED); i += LANES) released |= release_warp(emu.threads + i);
    moved |= released;
    for (int i = 0; i < n && !moved; i += n_block) moved |= release_block(emu.threads + i, n_block);
    if (!moved) moved = release_cluster(n);
  }
  for (int i = 0; i < n && !emu.error[0]; ++i)
    if (emu.threads[i].waits != DONE) {
      kc_emulator = emu.threads[i].at;
      fault("waits where not all of its warp, block or cluster come");
    }
}

/* The value of an option; 0 if it isn't there. */
static int option(const char *options, const char *name) {
  const char *at = strstr(options, name);
  return at ? atoi(at + strlen(name)) : 0;
}

/* The cluster whose first block is x, y, z. */
static void run_blocks(const stk_cuda_launch *launch, unsigned char *shared, int x, int y, int z, cuda_order order) {
  const int n_block = (int)launch->block, cluster = launch->cluster ? (int)launch->cluster : 1;
  const int n_processors = option(launch->options, "-DKC_PROCESSORS=");
  const size_t bytes = launch->shared_bytes, whole = bytes + SHARED_GUARD;
  memset(shared, POISON, whole * (size_t)cluster);
  for (int b = 0; b < cluster; ++b)
    for (int i = 0; i < n_block; ++i)
      start(b * n_block + i, (kc_emulator_state){i, {x + b, y, z}, n_processors, shared + whole * (size_t)b});
  run_cluster(cluster * n_block, n_block, order);
  for (int b = 0; b < cluster; ++b)
    for (size_t i = 0; i < SHARED_GUARD; ++i)
      if (shared[whole * (size_t)b + bytes + i] != POISON) fault("wrote behind the shared memory");
}

const char *cuda_emulate(cuda_entry *entry, const void *args, const stk_cuda_launch *launch,
                         cuda_order order) {
  const uint32_t cluster = launch->cluster ? launch->cluster : 1;
  const int n = (int)(launch->block * cluster);
  emu.error[0] = 0;
  emu.entry = entry;
  emu.args = args;
  if (launch->block % LANES || n < LANES || n > THREADS_MAX || n % 389 == 0) return "whole warps of 32 expected";
  if (launch->grid[0] % cluster || launch->shared_bytes % SHARED_GUARD_ALIGN) return "a whole number of clusters expected";
  emu.threads = malloc((size_t)n * sizeof *emu.threads);
  emu.stacks = malloc((size_t)n * STACK_BYTES);
  void *shared = NULL;
  if (posix_memalign(&shared, 128, (launch->shared_bytes + SHARED_GUARD) * (size_t)cluster) || !emu.threads ||
      !emu.stacks)
    fault("out of memory");
  for (uint32_t z = 0; z < launch->grid[2]; ++z)
    for (uint32_t y = 0; y < launch->grid[1]; ++y)
      for (uint32_t x = 0; x < launch->grid[0] && !emu.error[0]; x += cluster)
        run_blocks(launch, shared, (int)x, (int)y, (int)z, order);
  free(shared);
  free(emu.threads);
  free(emu.stacks);
  return emu.error[0] ? emu.error : NULL;
}
