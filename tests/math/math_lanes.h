/* The shared functions as one CPU level builds them, over arrays. */
#ifndef MATH_LANES_H
#define MATH_LANES_H

#include <stddef.h>

/* y[i] = f(x[i]); n is a multiple of 16. */
typedef void math_map(const float *x, float *y, size_t n);

/* The functions of k_vmath.h, in the order of MATH_VECTOR_FUNCTIONS. */
#define MATH_VECTOR_FUNCTIONS(X) X(exp) X(log1p) X(sigmoid) X(silu) X(silu_half) X(softplus) X(rsqrt)

enum {
#define MATH_ENUM(name) MATH_##name,
  MATH_VECTOR_FUNCTIONS(MATH_ENUM)
#undef MATH_ENUM
  MATH_sin,
  MATH_cos,
  MATH_FUNCTIONS
};

typedef struct math_level {
  int width;                       /* lanes of a vector */
  math_map *one[MATH_FUNCTIONS];   /* one lane: k_math.h */
  math_map *lanes[MATH_FUNCTIONS]; /* vectors: k_vmath.h; NULL for sin and cos */
} math_level;

extern const math_level math_level_scalar;
#if defined(__x86_64__)
extern const math_level math_level_avx2, math_level_avx512;
#elif defined(__aarch64__)
extern const math_level math_level_neon;
#endif

#endif
