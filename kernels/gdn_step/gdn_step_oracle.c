/* gdn_step, the oracle: gdn_scan's. */
#include "gdn_step/gdn_step.h"

extern const stk_kernel stk_gdn_scan__oracle;

static void run(const void *args, int32_t part, int32_t n_parts) {
  stk_gdn_scan__oracle.run(args, part, n_parts);
}

STK_KERNEL(gdn_step, oracle, "scalar", STK_GDN_STEP_CONTRACT, stk_gdn_step_args, STK_EXACT, run);
