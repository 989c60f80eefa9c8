/* isa: scalar avx2 neon
 * gdn_scan, c8: strips of 8 columns. */
#define STRIP 8
#define PAIRS 1
#define BLOCK 0
#define PREFETCH 0
#include "gdn_scan/gdn_scan_strip.h"

STK_KERNEL_TAGGED(gdn_scan, c8, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
