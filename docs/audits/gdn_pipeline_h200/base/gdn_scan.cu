/* isa: cuda
 * gdn_scan -- two columns a lane. At 16/48 heads 128 blocks of three computing
 * warps and one that copies: each has a scheduler of its own. */
#define GDN_ENTRY gdn_scan_cuda
#define GDN_COLS 2
#define GDN_WARPS 3
#define GDN_PAIRS 16
#define GDN_PREFETCH 1
#define GDN_KEEP_KEYS 1
#include "gdn_scan/gdn_scan_warp.h"
