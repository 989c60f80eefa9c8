/* isa: cuda
 * gdn_step_batch -- a warp, which is a block, for each tile; grid: tiles, sequences. */
#include "gdn_step/gdn_step_batch.h"
#include "gdn_step/gdn_step_tile.h"

KC_KERNEL(gdn_step_batch_cuda, stk_gdn_step_batch_args, 32, 8) { step_tile(a->steps + kc_block_y, kc_block); }
