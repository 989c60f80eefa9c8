/* gdn_step: gdn_scan for one token, the same contract and the same bytes.
 *
 * Args, shapes, rounding and classes are those of gdn_scan (gdn_scan.h) with
 * n_tokens = 1. An op of its own because it is limited by other things: the state
 * comes from memory, an even token reads and writes it, an odd one only reads. */
#ifndef STK_GDN_STEP_H
#define STK_GDN_STEP_H

#include "gdn_scan/gdn_scan.h"

#define STK_GDN_STEP_CONTRACT STK_GDN_SCAN_CONTRACT

typedef stk_gdn_scan_args stk_gdn_step_args;

extern const stk_op stk_gdn_step_op;

#endif
