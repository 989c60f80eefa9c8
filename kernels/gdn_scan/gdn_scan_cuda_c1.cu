/* isa: cuda
 * gdn_scan -- one column a lane, so twice as many warps. */
#define GDN_ENTRY gdn_scan_cuda_c1
#define GDN_COLS 1
#define GDN_WARPS 6
#define GDN_PAIRS 8
#define GDN_PREFETCH 1
#define GDN_KEEP_KEYS 1
#include "gdn_scan/gdn_scan_warp.h"
