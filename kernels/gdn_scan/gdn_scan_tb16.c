/* isa: avx2 avx512 neon
 * gdn_scan, tb16: blocks of 16 tokens, each through all strips of a part. */
#define STRIP DEFAULT_STRIP
#define PAIRS 1
#define BLOCK 16
#define PREFETCH 0
#include "gdn_scan/gdn_scan_strip.h"

STK_KERNEL_TAGGED(gdn_scan, tb16, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
