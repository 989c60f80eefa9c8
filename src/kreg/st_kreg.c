/* The table of built-in kernels, made from kernels/ops.inc. */
#include "kreg/st_kreg.h"

#include <string.h>

#if defined(__x86_64__)
#define SIMD(op) SCALAR(op) VARIANT(op, avx2) VARIANT(op, avx512)
#else
#define SIMD(op) SCALAR(op)
#endif
#define SCALAR(op) VARIANT(op, scalar)

#define VARIANT(op, variant) extern const stk_kernel stk_##op##__##variant;
#define STK_ROW(op, levels) \
  extern const stk_op stk_##op##_op; \
  levels(op)
#include "ops.inc"
#undef STK_ROW
#undef VARIANT

enum { VARIANTS_MAX = 8 };

static const struct {
  const stk_op *op;
  const stk_kernel *variant[VARIANTS_MAX]; /* NULL behind the last */
} table[ST_OPS] = {
#define VARIANT(op, variant) &stk_##op##__##variant,
#define STK_ROW(op, levels) {&stk_##op##_op, {levels(op) NULL}},
#include "ops.inc"
#undef STK_ROW
#undef VARIANT
};

const stk_op *st_kreg_op(st_op op) { return table[op].op; }

int st_kreg_op_by_name(const char *name) {
  for (int op = 0; op < ST_OPS; ++op)
    if (strcmp(name, table[op].op->name) == 0) return op;
  return -1;
}

const stk_kernel *st_kreg_variant(st_op op, int32_t index) {
  return index < VARIANTS_MAX ? table[op].variant[index] : NULL;
}

void st_kernel_set_choose(st_kernel_set *set, st_cpu_level level) {
  for (int op = 0; op < ST_OPS; ++op) {
    set->kernel[op] = table[op].variant[0];
    for (int32_t i = 0; i < VARIANTS_MAX && table[op].variant[i]; ++i)
      if (st_cpu_level_by_name(table[op].variant[i]->isa) <= (int)level)
        set->kernel[op] = table[op].variant[i];
  }
}
