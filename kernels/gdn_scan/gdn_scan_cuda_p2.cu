/* isa: cuda
 * gdn_scan -- the chosen one with shorter stages, two of them in the background. */
#define GDN_ENTRY gdn_scan_cuda_p2
#define GDN_COLS 2
#define GDN_WARPS 3
#define GDN_PAIRS 8
#define GDN_PREFETCH 2
#define GDN_KEEP_KEYS 1
#include "gdn_scan/gdn_scan_warp.h"
