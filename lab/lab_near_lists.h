/* Lists of cells for a window of tokens that share as much with each other as a trained
 * model's do. */
#ifndef LAB_NEAR_LISTS_H
#define LAB_NEAR_LISTS_H

#include "core/st_error.h"

#include "qsa_attn/qsa_attn.h"

/* Fills a->ids and a->n_ids for tokens that all see more cells than the budget covers:
 * each token keeps 60 % of the blocks of the token before, and takes the rest from a pool
 * of three budgets' random blocks, which all tokens draw from. So strata-tiny selects
 * (docs/lab-roof.md). NOMEM. */
strata_status lab_near_lists(stk_qsa_attn_args *a, uint64_t seed, strata_error *err);

#endif
