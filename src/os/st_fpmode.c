/* Control registers of the floating-point unit. */
#include "os/st_fpmode.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* Bits 0..5 of MXCSR say which exceptions have happened: no part of the mode. */
enum { MXCSR_FLAGS = 0x3f };

st_fpmode st_fpmode_get(void) {
  uint16_t x87;
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return (st_fpmode){_mm_getcsr() & ~(unsigned)MXCSR_FLAGS, x87};
}

void st_fpmode_set(st_fpmode mode) {
  uint16_t x87 = (uint16_t)mode.x87;
  _mm_setcsr((unsigned)mode.main | (_mm_getcsr() & MXCSR_FLAGS));
  __asm__ volatile("fldcw %0" : : "m"(x87));
}
#elif defined(__aarch64__)
st_fpmode st_fpmode_get(void) {
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return (st_fpmode){fpcr, 0};
}

void st_fpmode_set(st_fpmode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode.main)); }
#else
st_fpmode st_fpmode_get(void) { return (st_fpmode){0, 0}; }

void st_fpmode_set(st_fpmode mode) { (void)mode; }
#endif

bool st_fpmode_equal(st_fpmode a, st_fpmode b) { return a.main == b.main && a.x87 == b.x87; }
