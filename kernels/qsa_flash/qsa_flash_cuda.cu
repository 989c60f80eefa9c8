/* isa: cuda
 * qsa_flash -- neighbours within the budget go through all cells together. */
#define QSA_ENTRY qsa_flash_cuda
#define QSA_LISTED 0
#include "qsa_attn/qsa_attn_warp.h"
