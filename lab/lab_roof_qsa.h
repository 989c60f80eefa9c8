/* How fast sparse attention's kernels are on this machine, beside their floor, at the
 * released shape (24 query and 2 kv heads of 256, indexer 4 x 128, blocks of 4, budget
 * 2048). */
#ifndef LAB_ROOF_QSA_H
#define LAB_ROOF_QSA_H

#include "lab/lab_ceilings.h"

/* One line of the table: seconds for a token. */
typedef struct lab_qsa_row {
  const char *what;    /* "flash", "decode", "score", "topk", "prep" */
  const char *variant; /* of the kernel that ran */
  const char *kv;      /* "f32", "f16", "q8"; "" where no key or value is touched */
  const char *lists;   /* "far", "near" (below); "" where no list is read */
  int32_t n_tokens, n; /* T, and the cells that the last token sees */
  double best, median, floor;
} lab_qsa_row;

typedef struct lab_qsa_rows {
  lab_qsa_row rows[64];
  int32_t n;
} lab_qsa_rows;

/* n_rounds rounds in which every row runs once, so that a disturbance hits all alike.
 * Each call looks at another part of a large cache: little of it is near when it begins.
 * Far lists are random, each token's its own; near ones are those of lab_near_lists.h.
 * Of the cache those cells count for the floor, once and from main memory, that are in
 * any of the window's lists. Takes about 1.2 GB. */
strata_status lab_roof_qsa(st_pool *pool, const lab_ceilings *ceilings, int32_t n_rounds,
                           lab_qsa_rows *out, strata_error *err);

#endif
