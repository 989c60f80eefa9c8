/* isa: avx2 neon
 * gdn_scan, c32: strips of 32 columns: eight sums a vector row do not all fit into 16 registers. */
#define STRIP 32
#define PAIRS 1
#define BLOCK 0
#define PREFETCH 0
#include "gdn_scan/gdn_scan_strip.h"

STK_KERNEL_TAGGED(gdn_scan, c32, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
