/* A kernel, several times over in memory. */
#ifndef LAB_COPIES_H
#define LAB_COPIES_H

#include <strata/kernel.h>

enum { LAB_COPIES = 12 };

/* How fast code is depends on which pages of memory it lies in (docs/lab.md), so what is
 * timed are several copies of it in turn. */
typedef struct lab_copies {
  const stk_kernel *kernel[LAB_COPIES];
  int32_t n; /* 0: no kernel */
} lab_copies;

#endif
