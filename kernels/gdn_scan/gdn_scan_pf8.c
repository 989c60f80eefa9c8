/* isa: avx2 avx512 neon
 * gdn_scan, pf8: the state is asked for 8 rows ahead. */
#define STRIP DEFAULT_STRIP
#define PAIRS 1
#define BLOCK 0
#define PREFETCH 8
#include "gdn_scan/gdn_scan_strip.h"

STK_KERNEL_TAGGED(gdn_scan, pf8, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
