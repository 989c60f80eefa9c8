/* isa: avx2 avx512 neon
 * gdn_scan, one: every token makes its own pass over the state. */
#define STRIP DEFAULT_STRIP
#define PAIRS 0
#define BLOCK 0
#define PREFETCH 0
#include "gdn_scan/gdn_scan_strip.h"

STK_KERNEL_TAGGED(gdn_scan, one, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
