/* isa: scalar avx2 avx512 neon
 * The shared functions over arrays, built for each level as the kernels are. */
#include "math_lanes.h"

#include "common/k_vmath.h"

#define DEFINE(name)                                                        \
  static void one_##name(const float *x, float *y, size_t n) {              \
    for (size_t i = 0; i < n; ++i) y[i] = ks_##name(x[i]);                  \
  }                                                                         \
  static void lanes_##name(const float *x, float *y, size_t n) {            \
    for (size_t i = 0; i < n; i += VW) vf_store(y + i, kv_##name(vf_load(x + i))); \
  }
MATH_VECTOR_FUNCTIONS(DEFINE)

static void one_sin(const float *x, float *y, size_t n) {
  float cosine;
  for (size_t i = 0; i < n; ++i) ks_sincos(x[i], &y[i], &cosine);
}

static void one_cos(const float *x, float *y, size_t n) {
  float sine;
  for (size_t i = 0; i < n; ++i) ks_sincos(x[i], &sine, &y[i]);
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define ONE(name) [MATH_##name] = one_##name,
#define LANES(name) [MATH_##name] = lanes_##name,
const math_level JOIN(math_level_, STK_LEVEL) = {
    .width = VW,
    .one = {MATH_VECTOR_FUNCTIONS(ONE) ONE(sin) ONE(cos)},
    .lanes = {MATH_VECTOR_FUNCTIONS(LANES)},
};
