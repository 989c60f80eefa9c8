/* isa: cuda
 * gdn_scan -- the chosen one with the keys read again. */
#define GDN_ENTRY gdn_scan_cuda_k0
#define GDN_COLS 2
#define GDN_WARPS 3
#define GDN_PAIRS 16
#define GDN_PREFETCH 1
#define GDN_KEEP_KEYS 0
#include "gdn_scan/gdn_scan_warp.h"
