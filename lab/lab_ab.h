/* From two sources to a verdict: freeze, compile, controls, parity, paired timing.
 * strata lab ab, aa and pipeline are this with one stage or several; docs/lab.md says
 * what it does and why.
 *
 * Whatever is loaded runs in child processes with a deadline: a kernel that crashes or
 * hangs costs its verdict, not the run. */
#ifndef LAB_AB_H
#define LAB_AB_H

#include "lab/lab_bench.h"
#include "lab/lab_parity.h"
#include "lab/lab_side.h"
#include "os/st_child.h"

enum { LAB_SIZES_MAX = 48, LAB_CONTROLS = 3 };

typedef enum lab_kind { LAB_AB, LAB_AA, LAB_PIPELINE } lab_kind;

/* What is asked for. All pointers are the caller's. */
typedef struct lab_request {
  lab_kind kind;
  bool cuda; /* on the first GPU, kernels in CUDA C; else on the CPU */
  const stk_op *ops[LAB_STAGES_MAX];
  const char *base[LAB_STAGES_MAX]; /* variant or file, for each stage */
  const char *cand[LAB_STAGES_MAX]; /* NULL in a null run */
  int32_t n_stages;
  const int32_t *tokens; /* sizes to time; n_tokens 0: 512, 1024, 2048 */
  int32_t n_tokens;
  const int32_t *f32; /* likewise; n_f32 0: 0 and 1 where an op has the switch */
  int32_t n_f32;
  lab_settings settings;
  const char *rule;      /* file, or NULL */
  const char *directory; /* of the report: must not exist, or be empty */
  lab_toolchain tools;
  double deadline;       /* seconds for any child: for all timings of one size */
  int32_t n_threads;
  size_t cache_bytes;    /* of the machine's last cache level */
  uint64_t seed;
  void (*progress)(void *user, const char *what); /* may be NULL */
  void *user;
} lab_request;

typedef struct lab_size {
  lab_settings settings;
  char name[96];
} lab_size;

/* A test whose outcome is known beforehand. */
typedef struct lab_control {
  const char *name;
  lab_word expected, got;
  char detail[256];
} lab_control;

/* The op's own test cases against its oracle. */
typedef struct lab_oracle_result {
  int32_t n_passed, n_cases;
  lab_word word; /* of the first that did not pass */
  char detail[320];
} lab_oracle_result;

/* Timings of one size. */
typedef struct lab_timing {
  int32_t size; /* index among the timed sizes */
  int32_t n_sets, n_calls; /* of a batch */
  size_t n_bytes;
  stk_work work; /* of a batch */
  lab_outcome outcome;
  lab_samples *samples; /* st_free */
} lab_timing;

typedef struct lab_stage {
  const stk_op *op;
  lab_side base, cand; /* in a null run cand is base once more */
  double bound;        /* the candidate's; 0: exact */
  lab_control controls[LAB_CONTROLS];
  int32_t n_controls;
  lab_oracle_result base_oracle, cand_oracle;
  lab_parity *parity; /* [n_checked], st_free */
  lab_timing timings[LAB_SIZES_MAX];
  char *diff; /* st_free; NULL: none */
} lab_stage;

typedef struct lab_result {
  const lab_request *request;
  lab_rule rule;
  lab_size checked[LAB_SIZES_MAX], timed[LAB_SIZES_MAX];
  int32_t n_checked, n_timed, n_measured; /* sizes whose timings exist */
  lab_stage *stages; /* [request->n_stages], st_free */
  lab_timing total[LAB_SIZES_MAX]; /* of a pipeline */
  lab_verdict verdict;
  char reason[400];
  int64_t started; /* seconds since 1970 */
  double seconds;
} lab_result;

/* Runs it all. A kernel that fails is a verdict, not an error; errors are arguments,
 * shapes and sources that cannot be used (nothing is left in the directory then), or the
 * machine's. Release also after a failure. */
strata_status lab_ab_run(const lab_request *request, lab_result *out, strata_error *err);
void lab_result_release(lab_result *result);

/* The sizes whose first timings the verdict is made of: the total of a pipeline, else the
 * only stage. */
const lab_timing *lab_result_timings(const lab_result *result);

#endif
