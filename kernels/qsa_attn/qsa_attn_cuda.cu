/* isa: cuda
 * qsa_attn -- every token goes through its list. */
#define QSA_ENTRY qsa_attn_cuda
#define QSA_LISTED 1
#include "qsa_attn/qsa_attn_warp.h"
