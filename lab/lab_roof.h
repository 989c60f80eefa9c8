/* How fast the gated delta net's prompt kernels are on this machine, beside their
 * floor: the larger of operations over the measured multiply-add peak and bytes
 * over the measured read rate of a working set of that size. */
#ifndef LAB_ROOF_H
#define LAB_ROOF_H

#include "core/st_error.h"
#include "device/cpu/st_pool.h"
#include "os/st_cpu.h"

/* One line of the table. Times are of one layer, in seconds. */
typedef struct lab_roof_row {
  const char *what;    /* "scan", "pre", "post", "pre+scan+post" */
  const char *variant; /* of the kernel that ran */
  int32_t n_tokens;
  bool cold;           /* 36 layers' states were cycled through */
  double best, median, floor;
} lab_roof_row;

typedef struct lab_roof_result {
  double flops_per_s, bytes_per_s_l2, bytes_per_s_dram;
  lab_roof_row rows[64];
  int32_t n_rows;
} lab_roof_result;

/* Measures at the released shape (16 key and 48 value heads of 128, 10240
 * channels, convolution of 4 taps), n_rounds rounds in which every row runs once,
 * so that a disturbance hits all alike. scan names a variant of gdn_scan to add,
 * or is NULL. Takes about a second a round and 0.6 GB. */
strata_status lab_roof_gdn(st_pool *pool, st_cpu_level level, int32_t n_rounds, const char *scan,
                           lab_roof_result *out, strata_error *err);

#endif
