/* isa: cuda
 * gdn_scan -- four columns a lane: half the loads a column, for many heads or sequences. */
#define GDN_ENTRY gdn_scan_cuda_c4
#define GDN_COLS 4
#define GDN_WARPS 1
#define GDN_PAIRS 8
#define GDN_PREFETCH 2
#define GDN_KEEP_KEYS 0
#include "gdn_scan/gdn_scan_warp.h"
