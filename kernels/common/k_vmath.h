/* k_vmath.h -- the shared functions on vectors: kv_exp kv_log1p kv_sigmoid
 * kv_silu kv_silu_half kv_softplus kv_rsqrt, lane by lane the bits of k_math.h. */
#ifndef K_VMATH_H
#define K_VMATH_H

#include "common/k_math.h"
#include "common/k_simd.h"

#define kv_set1 vf_set1
#define kv_add vf_add
#define kv_sub vf_sub
#define kv_mul vf_mul
#define kv_div vf_div
#define kv_sqrt vf_sqrt
#define kv_fma vf_fma
#define kv_lt vf_lt
#define kv_select vf_select
#define kv_bits vf_bits
#define kv_float vi_float
#define kv_convert vi_convert
#define kv_iset1 vi_set1
#define kv_iadd vi_add
#define kv_isub vi_sub
#define kv_iand vi_and
#define kv_isll vi_sll
#define kv_isra vi_sra

#define K(name) kv_##name
#define KF vf
#define KI vi
#define KM vm
#include "common/k_math_body.inc"
#undef K
#undef KF
#undef KI
#undef KM

#endif
