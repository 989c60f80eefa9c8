/* isa: cuda
 * qsa_score -- a warp has eight tokens and 32 blocks: its queries are four addresses. */
#define QSA_ENTRY qsa_score_cuda
#define QSA_SPLIT 1
#include "qsa_score/qsa_score_tile.h"
