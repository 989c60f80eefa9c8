/* The ceilings of this machine, measured once and kept; and the floor that they
 * put under a kernel's time. docs/lab-roof.md says how they are measured. */
#ifndef LAB_CEILINGS_H
#define LAB_CEILINGS_H

#include <strata/kernel.h>

#include "core/st_error.h"
#include "device/cpu/st_pool.h"
#include "device/cpu/st_roof.h"
#include "os/st_machine.h"

typedef enum lab_memory { LAB_L1, LAB_L2, LAB_L3, LAB_DRAM, LAB_MEMORIES } lab_memory;
const char *lab_memory_name(lab_memory memory);

/* What some threads reach together. */
typedef struct lab_rates {
  double flops_per_s; /* f32 fused multiply-adds, two operations each */
  double dot8_per_s;  /* multiply-adds of bytes, two operations each */
  int64_t capacity[LAB_MEMORIES]; /* bytes of a working set that the level holds; 0: no such level */
  int64_t measured_bytes[LAB_MEMORIES]; /* the working set it was measured with */
  double bytes_per_s[LAB_MEMORIES][ST_TRAFFICS];
} lab_rates;

typedef struct lab_ceilings {
  char id[65]; /* sha256 of the machine's description and of how it was measured */
  st_machine machine;
  st_cpu_level level;
  int32_t n_threads;
  int64_t measured_at; /* seconds since 1970 */
  bool kept;           /* in a file, for the next time */
  lab_rates one, all;  /* one thread, n_threads threads */
} lab_ceilings;

/* The ceilings for a pool's threads at a level: those kept in directory (NULL:
 * .cache/strata/ceilings in the user's home folder) by this machine, level and thread
 * count, or, if there are none or fresh is set, measured now (some seconds) and kept. A file that does not fit is
 * measured anew. kept stays false if the file cannot be written, or for doubtful
 * ceilings, which would be wrong for ever. */
strata_status lab_ceilings_get(st_pool *pool, st_cpu_level level, const char *directory, bool fresh,
                               lab_ceilings *out, strata_error *err);

/* Whether others seem to have used the machine meanwhile: two threads did not do
 * clearly more than one. On a machine that runs two threads a core it may be so
 * by nature. */
bool lab_ceilings_doubtful(const lab_ceilings *ceilings);

/* The level that holds a working set. */
lab_memory lab_memory_of(const lab_rates *rates, double working_set_bytes);

typedef struct lab_floor {
  double seconds;
  double compute_s, memory_s; /* the larger of them is seconds */
  lab_memory memory;          /* that holds the working set */
} lab_floor;

/* The least time for some work: operations over the multiply-add peak or bytes over
 * the rates of the level that holds working_set_bytes, whichever takes longer.
 * Weights count as read; state at the better of the rates for reading and for
 * updating in place, inputs and outputs at the best of these and that for copying. */
lab_floor lab_floor_of(const lab_rates *rates, const stk_work *work, double working_set_bytes);

/* The same when some of the bytes come from further away: near from the level that
 * holds near_bytes, far from the one that holds far_bytes. What comes from far also
 * goes through the near one. */
lab_floor lab_floor_split(const lab_rates *rates, const stk_work *near, double near_bytes,
                          const stk_work *far, double far_bytes);

/* Puts the read and update rates of just this working set in the place of those of
 * the level that holds it: near the size of a cache they are neither the cache's nor
 * the memory's. Nothing changes beyond 1 GiB. */
strata_status lab_rates_refine(st_pool *pool, st_cpu_level level, int64_t working_set_bytes,
                               lab_rates *rates, strata_error *err);

#endif
