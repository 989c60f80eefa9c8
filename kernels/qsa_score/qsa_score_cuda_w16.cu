/* isa: cuda
 * qsa_score -- a warp has 16 tokens and 16 blocks, so that keys too are read by several
 * threads at once. Not for one token. */
#define QSA_ENTRY qsa_score_cuda_w16
#define QSA_SPLIT 2
#include "qsa_score/qsa_score_tile.h"
