/* isa: scalar avx2 avx512 neon
 * gdn_step -- the strips of gdn_scan, one after the other through the state, each
 * asking for the rows of the next. */
#define STRIP DEFAULT_STRIP
#define PAIRS 0
#define BLOCK 0
#define PREFETCH (TILES * (p->dk + STK_GDN_TILE_ROWS))
#include "gdn_scan/gdn_scan_strip.h"
#include "gdn_step/gdn_step.h"

STK_KERNEL_LEVEL(gdn_step, STK_GDN_STEP_CONTRACT, stk_gdn_step_args, STK_EXACT, run);
