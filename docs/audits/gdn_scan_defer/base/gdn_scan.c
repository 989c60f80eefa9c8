/* isa: scalar avx2 avx512 neon
 * gdn_scan -- two tokens a pass; strips of two vectors (32 columns at avx512, 16
 * at avx2) or four (16 columns at neon): with four sums, two deltas and the row
 * itself they fill the registers, and a strip of the state stays in the
 * first-level cache. */
#define STRIP DEFAULT_STRIP
#define PAIRS 1
#define BLOCK 0
#define PREFETCH 0
#include "gdn_scan/gdn_scan_strip.h"

STK_KERNEL_LEVEL(gdn_scan, STK_GDN_SCAN_CONTRACT, stk_gdn_scan_args, STK_EXACT, run);
