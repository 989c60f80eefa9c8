/* Scores of blocks that a selection of cells easily gets wrong: ties, signed zeros, NaNs,
 * infinities. Every kernel of qsa_topk is tried on them, on the CPU, emulated, and on a
 * GPU. */
#ifndef LAB_TOPK_H
#define LAB_TOPK_H

#include "lab/lab_case.h"
#include "qsa_topk/qsa_topk.h"

enum { LAB_TOPK_FILLS = 11, LAB_TOPK_SHAPES = 5 };

/* "flat", "signed zeros", ... */
const char *lab_topk_fill_name(int32_t fill);
/* n scores; the same random state gives the same ones, and is advanced. */
void lab_topk_fill(int32_t fill, float *score, int32_t n, uint64_t *random);

/* One token that sees 513, 2047, 65536 and 100000 blocks and selects 512, or 20001 and 5000. */
stk_qsa_topk_args lab_topk_shape(int32_t shape);
/* Gives a case of qsa_topk other scores; those of the fill's seed in all cases. */
void lab_topk_put(lab_case *c, int32_t fill);

#endif
