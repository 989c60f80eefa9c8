/* isa: avx512
 * gdn_scan, c64: strips of 64 columns. */
#define STRIP 64
#define PAIRS 1
#define BLOCK 0
#define PREFETCH 0
#include "gdn_scan/gdn_scan_strip.h"

STK_KERNEL_TAGGED(gdn_scan, c64, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
