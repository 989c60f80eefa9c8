/* Runs one kernel of gdn_scan some times, for a count of its instructions: the
 * difference between two numbers of repeats is what a run costs, whatever the
 * program does besides.
 *
 *   scan_repeat VARIANT REPEATS
 *
 * 64 tokens, 3 value heads of 128 with one key head, decays as a model has them: the
 * strong ones of the tests cost passes of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gdn_scan/gdn_scan.h"
#include "kreg/st_kreg.h"
#include "lab/lab_case.h"

int main(int argc, char **argv) {
  const stk_gdn_scan_args shape = {.n_tokens = 64, .k_heads = 1, .v_heads = 3, .k_dim = 128, .v_dim = 128};
  const stk_kernel *kernel;
  strata_error err;
  lab_case c;
  if (argc != 3) return 2;
  for (int32_t i = 0; (kernel = st_kreg_variant(ST_OP_gdn_scan, i)); ++i)
    if (strcmp(kernel->variant, argv[1]) == 0) break;
  if (!kernel) return 2;
  if (lab_case_init(&c, &stk_gdn_scan_op, &shape, (lab_fill){.seed = 1}, &err) != STRATA_OK) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  float *gb = (float *)(uintptr_t)((stk_gdn_scan_args *)c.args)->gb;
  for (int i = 0; i < shape.v_heads * shape.n_tokens; ++i) gb[2 * i] = 0.95f + 0.05f * (float)(i % 7) / 7;
  memset(((stk_gdn_scan_args *)c.args)->state, 0, stk_gdn_state_floats(shape.v_heads, shape.k_dim, shape.v_dim) * sizeof(float));
  for (int i = 0; i < atoi(argv[2]); ++i) lab_case_run(&c, kernel, 1);
  lab_case_release(&c);
  return 0;
}
