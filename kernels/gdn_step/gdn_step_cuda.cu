/* isa: cuda
 * gdn_step -- a warp, which is a block, for each tile of each head. */
#include "gdn_step/gdn_step_tile.h"

KC_KERNEL(gdn_step_cuda, stk_gdn_step_args, 32, 8) { step_tile(a, kc_block); }
