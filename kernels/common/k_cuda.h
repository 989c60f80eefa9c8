/* k_cuda.h -- what the CUDA kernels are written in: the part of CUDA C that is
 * also C, so that one text runs on a GPU and, thread by thread, in the tests.
 *
 * Under nvcc and NVRTC every name below is the CUDA feature it is named after.
 * Under a C compiler (tests/cuda) a block's threads are coroutines that give way
 * in kc_sync, kc_sync_warp and kc_shuffle; copies to shared memory land when they
 * are waited for and not before, so a wait that is missing shows.
 *
 *   KC_KERNEL(name, args_type, threads, blocks)  begins the body of an entry: its args
 *                               struct, passed by value, is *a; a block has at most
 *                               that many threads, and registers are given out so
 *                               that a processor can hold that many blocks
 *   KC_CLUSTER_KERNEL(..., cluster)  and so many blocks form a cluster (from sm_90 on)
 *   KC_SHARED(type, name)       the block's shared memory, as large as the launch
 *                               says, aligned to 16 bytes
 *   KC_INLINE, KC_APART         before a function that is inlined, that is not
 *   KC_UNROLL                   before a loop whose arrays must stay in registers
 *   kc_thread, kc_block, kc_block_y   indices
 *   kc_processors               of the chip; for a kernel whose plan gives the option
 *                               KC_PROCESSORS
 *   kc_sync                     barrier of the block
 *   kc_cluster_arrive, kc_cluster_wait   barrier of the cluster in two halves, by turns
 *   kc_sync_warp                barrier of the warp, orders shared memory
 *   kc_shuffle(v, lane)         v of another lane of the warp; all lanes call it
 *   kc_shuffle_xor(v, mask), kc_any(condition)
 *   kc_ballot(condition)        bit i: lane i's condition
 *   kc_count_bits(bits)
 *   kc_atomic_add(p, n)         *p += n, whichever threads do it; *p before that
 *   kc_copy4, kc_copy8, kc_copy16(to, from)  bytes from global to shared memory,
 *                               in the background; to and from aligned to them
 *   kc_copy_commit, kc_copy_wait(n)  the copies of a thread are committed in groups;
 *                               wait leaves at most n groups unfinished (n constant)
 *   kc_load2, kc_store2         two floats at an address aligned to 8 bytes
 *   kc_load4, kc_store4         four floats at an address aligned to 16 bytes
 *   kc_near                     an address in shared memory that is cheap to keep:
 *                               kc_near_of(p), kc_near_add(near, n floats); read by
 *                               kc_near_load, kc_near_load4
 *   kc_reciprocal(x)            within an ulp of 1 / x, for x in [1, 2^120]
 *   kc_half(x)                  fp16 bits, nearest even
 *   kc_half2(low, high)         those of two, as the bits of a float
 *   kc_from_half(bits)          and back; which NaN a NaN becomes is not said
 *   kc_inverse_sqrt(n)          the float nearest to 1 / sqrt(n) of an integer
 *   kc_permute(low, high, selector)  four of the eight bytes of two words: of byte i,
 *                               which one is in four bits of the selector from 4 i on
 *   kc_abs(f), kc_max(f, g)     of a number and a NaN, the number
 *   kc_rarely(condition)        for a branch that is hardly ever taken
 *
 * A kernel uses one-dimensional blocks of whole warps of 32. */
#ifndef K_CUDA_H
#define K_CUDA_H

#include <strata/kernel.h>

#include "common/k_math.h"

typedef struct kc2 {
  float v[2];
} kc2;
typedef struct kc4 {
  float v[4];
} kc4;

#ifdef __CUDACC__

#define KC_INLINE static __device__ __forceinline__
#define KC_APART static __device__ __noinline__
/* From sm_90 on a kernel may be launched before the one in front of it has ended, and
 * waits for that itself; <name>_waits says so to whoever launches. It does not let the
 * next one begin early: blocks that come while others still run share their processors,
 * and then take as long as two (gdn_scan: 500 us instead of 393). */
#if __CUDA_ARCH__ >= 900
#define KC_WAITS(name) extern "C" __global__ void name##_waits(void) {}
KC_INLINE void kc_wait_for_kernels_before(void) { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
#define KC_WAITS(name)
KC_INLINE void kc_wait_for_kernels_before(void) {}
#endif
#define KC_KERNEL_AS_(name, args_type, attributes)                              \
  KC_WAITS(name)                                                                \
  KC_INLINE void name##_block(const args_type *a);                              \
  extern "C" __global__ void attributes name(const __grid_constant__ args_type args) { \
    kc_wait_for_kernels_before();                                               \
    name##_block(&args);                                                        \
  }                                                                             \
  KC_INLINE void name##_block(const args_type *a)
#define KC_KERNEL(name, args_type, threads, blocks) \
  KC_KERNEL_AS(name, args_type, __launch_bounds__(threads, blocks))
#define KC_CLUSTER_KERNEL(name, args_type, threads, blocks, cluster) \
  KC_KERNEL_AS(name, args_type, __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, blocks))
#define KC_SHARED(type, name)                          \
  extern __shared__ __align__(16) unsigned char kc_shared_memory[]; \
  type *name = (type *)kc_shared_memory
#define KC_UNROLL _Pragma("unroll")
#define kc_thread ((int)threadIdx.x)
#define kc_block ((int)blockIdx.x)
#define kc_block_y ((int)blockIdx.y)
#define kc_processors KC_PROCESSORS

KC_INLINE void kc_sync(void) { __syncthreads(); }
KC_INLINE void kc_sync_warp(void) { __syncwarp(); }
KC_INLINE void kc_cluster_arrive(void) { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
KC_INLINE void kc_cluster_wait(void) { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
KC_INLINE float kc_shuffle(float v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
KC_INLINE float kc_shuffle_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
KC_INLINE int kc_any(int condition) { return __any_sync(0xffffffffu, condition); }
KC_INLINE unsigned kc_ballot(int condition) { return __ballot_sync(0xffffffffu, condition); }
KC_INLINE int kc_count_bits(unsigned bits) { return __popc(bits); }
KC_INLINE int kc_atomic_add(int *p, int n) { return atomicAdd(p, n); }

KC_INLINE kc2 kc_load2(const float *p) {
  float2 f = *(const float2 *)p;
  kc2 r = {{f.x, f.y}};
  return r;
}
KC_INLINE void kc_store2(float *p, kc2 f) { *(float2 *)p = make_float2(f.v[0], f.v[1]); }
KC_INLINE kc4 kc_load4(const float *p) {
  float4 f = *(const float4 *)p;
  kc4 r = {{f.x, f.y, f.z, f.w}};
  return r;
}
KC_INLINE void kc_store4(float *p, kc4 f) { *(float4 *)p = make_float4(f.v[0], f.v[1], f.v[2], f.v[3]); }

KC_INLINE float kc_inverse_sqrt(int n) { return (float)(1.0 / __dsqrt_rn((double)n)); }
KC_INLINE float kc_abs(float x) { return fabsf(x); }
KC_INLINE float kc_max(float x, float y) { return fmaxf(x, y); }

KC_INLINE float kc_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); /* without ftz seven instructions */
  return y;
}
KC_INLINE uint16_t kc_half(float x) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
KC_INLINE float kc_half2(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return __uint_as_float(both);
}
KC_INLINE float kc_from_half(uint16_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}

KC_INLINE unsigned kc_permute(unsigned low, unsigned high, unsigned selector) {
  return __byte_perm(low, high, selector);
}

typedef unsigned kc_near;
KC_INLINE kc_near kc_near_of(const float *p) { return (unsigned)__cvta_generic_to_shared(p); }
KC_INLINE kc_near kc_near_add(kc_near p, int n) { return p + 4u * (unsigned)n; }
KC_INLINE float kc_near_load(kc_near p) {
  float f;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(f) : "r"(p));
  return f;
}
KC_INLINE kc4 kc_near_load4(kc_near p) {
  kc4 f;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(f.v[0]), "=f"(f.v[1]), "=f"(f.v[2]), "=f"(f.v[3])
               : "r"(p));
  return f;
}

KC_INLINE void kc_copy4(void *to, const void *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
KC_INLINE void kc_copy8(void *to, const void *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
KC_INLINE void kc_copy16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
KC_INLINE void kc_copy_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
#define kc_copy_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

#else

#define KC_INLINE static inline __attribute__((always_inline, unused))
#define KC_APART static __attribute__((noinline, unused))
#define KC_KERNEL_AS_(name, args_type, attributes)    \
  KC_INLINE void name##_block(const args_type *a);    \
  void name(const void *args);                        \
  void name(const void *args) { name##_block(args); } \
  KC_INLINE void name##_block(const args_type *a)
#define KC_KERNEL(name, args_type, threads, blocks) KC_KERNEL_AS(name, args_type, )
#define KC_CLUSTER_KERNEL(name, args_type, threads, blocks, cluster) KC_KERNEL_AS(name, args_type, )
#define KC_SHARED(type, name) type *name = (type *)kc_emulator.shared
#define KC_UNROLL
#define kc_thread (kc_emulator.thread)
#define kc_block (kc_emulator.block[0])
#define kc_block_y (kc_emulator.block[1])
#define kc_processors kc_emulator_processors()

/* The running thread. */
typedef struct kc_emulator_state {
  int thread, block[3], n_processors;
  void *shared;
} kc_emulator_state;
extern kc_emulator_state kc_emulator;

void kc_sync(void);
void kc_sync_warp(void);
void kc_cluster_arrive(void);
void kc_cluster_wait(void);
float kc_shuffle(float v, int lane);
float kc_shuffle_xor(float v, int mask);
unsigned kc_ballot(int condition);
int kc_emulator_processors(void);
void kc_emulator_aligned(const void *p, int n_bytes);
void kc_emulator_copy(void *to, const void *from, int n_bytes);
void kc_copy_commit(void);
void kc_copy_wait(int n);

KC_INLINE int kc_any(int condition) { return kc_ballot(condition) != 0; }
KC_INLINE int kc_count_bits(unsigned bits) { return __builtin_popcount(bits); }
KC_INLINE int kc_atomic_add(int *p, int n) {
  const int before = *p;
  *p += n;
  return before;
}
KC_INLINE void kc_copy4(void *to, const void *from) { kc_emulator_copy(to, from, 4); }
KC_INLINE void kc_copy8(void *to, const void *from) { kc_emulator_copy(to, from, 8); }
KC_INLINE void kc_copy16(void *to, const void *from) { kc_emulator_copy(to, from, 16); }

KC_INLINE kc2 kc_load2(const float *p) {
  kc2 r;
  kc_emulator_aligned(p, 8);
  memcpy(&r, p, sizeof r);
  return r;
}
KC_INLINE void kc_store2(float *p, kc2 f) {
  kc_emulator_aligned(p, 8);
  memcpy(p, &f, sizeof f);
}
KC_INLINE kc4 kc_load4(const float *p) {
  kc4 r;
  kc_emulator_aligned(p, 16);
  memcpy(&r, p, sizeof r);
  return r;
}
KC_INLINE void kc_store4(float *p, kc4 f) {
  kc_emulator_aligned(p, 16);
  memcpy(p, &f, sizeof f);
}

KC_INLINE float kc_inverse_sqrt(int n) { return (float)(1.0 / __builtin_sqrt((double)n)); }
KC_INLINE float kc_abs(float x) { return ks_float(ks_bits(x) & 0x7fffffff); }
KC_INLINE float kc_max(float x, float y) { return x < y || x != x ? y : x; }
KC_INLINE float kc_reciprocal(float x) { return 1.0f / x; }
KC_INLINE uint16_t kc_half(float x) { return (uint16_t)ks_to_half(x); }
KC_INLINE float kc_half2(float low, float high) {
  return ks_float((int)((unsigned)ks_to_half(low) | (unsigned)ks_to_half(high) << 16));
}
KC_INLINE float kc_from_half(uint16_t h) { return ks_from_half(h); }

KC_INLINE unsigned kc_permute(unsigned low, unsigned high, unsigned selector) {
  const uint64_t both = (uint64_t)high << 32 | low;
  unsigned r = 0;
  for (int i = 0; i < 32; i += 8) r |= (unsigned)(both >> (selector >> i / 2 & 7) * 8 & 0xff) << i;
  return r;
}

typedef const float *kc_near;
KC_INLINE kc_near kc_near_of(const float *p) { return p; }
KC_INLINE kc_near kc_near_add(kc_near p, int n) { return p + n; }
KC_INLINE float kc_near_load(kc_near p) { return *p; }
KC_INLINE kc4 kc_near_load4(kc_near p) { return kc_load4(p); }

#endif

#define KC_KERNEL_AS(name, args_type, attributes) KC_KERNEL_AS_(name, args_type, attributes)
#define kc_rarely(condition) __builtin_expect(!!(condition), 0)
#define kc_lane (kc_thread & 31)
#define kc_warp (kc_thread >> 5)

/* Where element i of a lane lies in a row of which each lane has `group` neighbours, then as
 * many 32 groups further, and so on. */
KC_INLINE int kc_element(int i, int group) { return (i / group * 32 + kc_lane) * group + i % group; }

/* The sums of n trees (tree32) whose lanes are the warp's, by halves; the same in all
 * lanes. Level by level, so that the exchanges of one level overlap. */
KC_INLINE void kc_lanes_sums(float *lane, int n) {
  KC_UNROLL for (int half = 16; half; half /= 2)
    KC_UNROLL for (int i = 0; i < n; ++i) lane[i] = lane[i] + kc_shuffle_xor(lane[i], half);
}

KC_INLINE float kc_lanes_sum(float lane) {
  kc_lanes_sums(&lane, 1);
  return lane;
}

/* Of n trees, those that a lane still has after some steps. */
KC_INLINE int kc_trees_left(int n, int step) { return (n + (1 << step) - 1) >> step; }

KC_INLINE float kc_larger(float a, float b) { return b < a ? a : b; }

/* The same sums, or the largest numbers, but each in a few lanes only: in every step two
 * trees share an exchange, and a lane goes on with one of them. n is a constant; lane is
 * used up. Of numbers that are equal or not numbers, any may be the largest. */
typedef enum kc_reduction { KC_SUM, KC_LARGEST } kc_reduction;
KC_INLINE float kc_join(float a, float b, kc_reduction how) { return how == KC_SUM ? a + b : kc_larger(a, b); }
KC_INLINE float kc_lanes_each(float *lane, int n, kc_reduction how) {
  KC_UNROLL for (int step = 0; step < 5; ++step) {
    const int before = kc_trees_left(n, step), after = kc_trees_left(n, step + 1), upper = kc_lane & 16 >> step;
    KC_UNROLL for (int i = 0; i < (n + 1) / 2; ++i) {
      if (i >= after) continue;
      if (i + after < before) {
        const float keep = upper ? lane[i + after] : lane[i], give = upper ? lane[i] : lane[i + after];
        lane[i] = kc_join(keep, kc_shuffle_xor(give, 16 >> step), how);
      } else {
        lane[i] = kc_join(lane[i], kc_shuffle_xor(lane[i], 16 >> step), how);
      }
    }
  }
  return lane[0];
}

/* Which of the n this lane has. */
KC_INLINE int kc_each_index(int n) {
  int index = 0;
  KC_UNROLL for (int step = 4; step >= 0; --step) {
    const int after = kc_trees_left(n, step + 1);
    if (kc_lane & 16 >> step && index + after < kc_trees_left(n, step)) index += after;
  }
  return index;
}

/* A lane that has number `index` of n. */
KC_INLINE int kc_each_lane(int index, int n) {
  int lane = 0;
  KC_UNROLL for (int step = 0; step < 5; ++step) {
    const int after = kc_trees_left(n, step + 1);
    if (index >= after) {
      lane |= 16 >> step;
      index -= after;
    }
  }
  return lane;
}

#endif
