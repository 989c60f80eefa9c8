/* isa: scalar avx512
 * gdn_scan, c16: strips of 16 columns. */
#define STRIP 16
#define PAIRS 1
#define BLOCK 0
#define PREFETCH 0
#include "gdn_scan/gdn_scan_strip.h"

STK_KERNEL_TAGGED(gdn_scan, c16, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
