/* The table of built-in kernels, made from kernels/ops.inc. */
#include "kreg/st_kreg.h"

#include <string.h>

#if defined(__x86_64__)
#define SIMD(op) SCALAR(op) VARIANT(op, avx2) VARIANT(op, avx512)
#elif defined(__aarch64__)
#define SIMD(op) SCALAR(op) VARIANT(op, neon)
#else
#define SIMD(op) SCALAR(op)
#endif
#define SCALAR(op) VARIANT(op, scalar)

#define VARIANT(op, variant) extern const stk_kernel stk_##op##__##variant;
#define STK_ROW(op, levels) \
  extern const stk_op stk_##op##_op; \
  levels(op)
#define STK_TAG(op, level, tag) VARIANT(op, level##_##tag)
#include "ops.inc"
#undef STK_TAG
#undef STK_ROW
#undef VARIANT

enum { VARIANTS_MAX = 8 };

static const struct {
  const stk_op *op;
  const stk_kernel *variant[VARIANTS_MAX]; /* NULL behind the last */
} table[ST_OPS] = {
#define VARIANT(op, variant) &stk_##op##__##variant,
#define STK_ROW(op, levels) {&stk_##op##_op, {levels(op) NULL}},
#define STK_TAG(op, level, tag)
#include "ops.inc"
#undef STK_TAG
#undef STK_ROW
#undef VARIANT
};

static const struct {
  st_op op;
  const stk_kernel *kernel;
} tagged[] = {
#define STK_ROW(op, levels)
#define STK_TAG(op, level, tag) {ST_OP_##op, &stk_##op##__##level##_##tag},
#include "ops.inc"
#undef STK_TAG
#undef STK_ROW
    {ST_OPS, NULL},
};

const stk_op *st_kreg_op(st_op op) { return table[op].op; }

int st_kreg_op_by_name(const char *name) {
  for (int op = 0; op < ST_OPS; ++op)
    if (strcmp(name, table[op].op->name) == 0) return op;
  return -1;
}

const stk_kernel *st_kreg_variant(st_op op, int32_t index) {
  int32_t n_levels = 0;
  while (n_levels < VARIANTS_MAX && table[op].variant[n_levels]) ++n_levels;
  if (index < n_levels) return table[op].variant[index];
  index -= n_levels;
  for (size_t i = 0; i < sizeof tagged / sizeof *tagged; ++i)
    if (tagged[i].op == op && index-- == 0) return tagged[i].kernel;
  return NULL;
}

void st_kernel_set_choose(st_kernel_set *set, st_cpu_level level) {
  for (int op = 0; op < ST_OPS; ++op) {
    set->kernel[op] = table[op].variant[0];
    for (int32_t i = 0; i < VARIANTS_MAX && table[op].variant[i]; ++i)
      if (st_cpu_level_by_name(table[op].variant[i]->isa) <= (int)level)
        set->kernel[op] = table[op].variant[i];
  }
}
