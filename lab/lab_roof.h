/* How fast kernels are on this machine, beside the floor that its ceilings put
 * under their time. */
#ifndef LAB_ROOF_H
#define LAB_ROOF_H

#include "kreg/st_kreg.h"
#include "lab/lab_ceilings.h"
#include "lab/lab_shape.h"

enum { LAB_ROUNDS_MAX = 101 };

/* ---- any op -------------------------------------------------------------------- */

typedef struct lab_roof_request {
  const stk_op *op;
  const stk_kernel *kernel;
  const int32_t *tokens; /* a row for each; an op of one token has one row */
  int32_t n_tokens;
  lab_settings settings; /* of other sizes than the released ones */
  /* Cold: the data of a call come from main memory. Warm: one call's data again and
   * again, from the cache that holds them. */
  bool warm;
} lab_roof_request;

/* Times are of one call, in seconds. */
typedef struct lab_roof_row {
  const char *op, *variant;
  int32_t n_tokens;
  bool warm;
  stk_work work;
  lab_floor floor;
  double best, median;
} lab_roof_row;

enum { LAB_ROOF_ROWS_MAX = 16 };

/* Times a request's rows in n_rounds rounds in which every row runs once, so that a
 * disturbance hits all alike. ARG for a setting that the op does not know; UNSUPPORTED
 * for a shape that it refuses, or if it has no released one. */
strata_status lab_roof_op(st_pool *pool, const lab_ceilings *ceilings, const lab_roof_request *request,
                          int32_t n_rounds, lab_roof_row rows[LAB_ROOF_ROWS_MAX], int32_t *n_rows,
                          strata_error *err);

/* The shape of a request's row: the released one with T, where the op has tokens, and
 * what the user sets. Statuses as above. */
strata_status lab_roof_shape(const lab_roof_request *request, int32_t T, lab_args *out, strata_error *err);

/* ---- the gated delta net ------------------------------------------------------- */

/* One line of its table. Times are of one layer, in seconds. */
typedef struct lab_gdn_row {
  const char *what;    /* "scan", "pre", "post", "pre+scan+post" */
  const char *variant; /* of the kernel that ran */
  int32_t n_tokens;
  bool cold; /* 36 layers' states were cycled through */
  double best, median, floor;
} lab_gdn_row;

typedef struct lab_gdn_rows {
  lab_gdn_row rows[16];
  int32_t n;
} lab_gdn_rows;

/* Measures the prompt kernels at the released shape (16 key and 48 value heads of
 * 128, 10240 channels, convolution of 4 taps) in n_rounds rounds. scan names a variant
 * of gdn_scan to add, or is NULL. Takes about a second a round and 0.6 GB. */
strata_status lab_roof_gdn(st_pool *pool, const lab_ceilings *ceilings, int32_t n_rounds,
                           const char *scan, lab_gdn_rows *out, strata_error *err);

#endif
