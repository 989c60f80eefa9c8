/* A line "OP SHA256" for each op: what the oracle makes of all its test cases, for
 * a comparison between machines. On one machine the parity suite says that the
 * kernels give the oracle's bytes; equal lines then say that those of two machines
 * do. A NaN is hashed as the quiet one without a sign, since which NaN an operation
 * gives is the hardware's choice. */
#include <stdio.h>
#include <string.h>

#include <strata/strata.h>

#include "kreg/st_kreg.h"
#include "lab/lab_case.h"

enum { SEEDS = 4 };

static void hash_floats(strata_sha256 *hash, const uint8_t *data, size_t n) {
  static const uint32_t one_nan = 0x7fc00000;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    memcpy(&bits, data + 4 * i, sizeof bits);
    strata_sha256_update(hash, (bits & 0x7fffffff) > 0x7f800000 ? &one_nan : &bits, sizeof bits);
  }
}

static void hash_results(strata_sha256 *hash, const lab_case *c) {
  for (int32_t i = 0; i < c->n; ++i) {
    const stk_tensor *tensor = &c->tensors[i];
    if (tensor->dtype == STK_F32) hash_floats(hash, c->buffers[i].data, tensor->n);
    /* Tables of pointers differ from run to run. */
    else if (tensor->dtype != STK_U8) strata_sha256_update(hash, c->buffers[i].data, c->buffers[i].n_bytes);
  }
}

static strata_status hash_case(strata_sha256 *hash, const stk_op *op, int32_t index, uint64_t seed,
                               strata_error *err) {
  lab_case c;
  ST_TRY(lab_case_init(&c, op, (const char *)op->cases + (size_t)index * op->args_bytes,
                       (lab_fill){.seed = seed}, err));
  lab_case_run(&c, op->oracle, 1);
  hash_results(hash, &c);
  lab_case_release(&c);
  return STRATA_OK;
}

static strata_status hash_op(const stk_op *op, strata_error *err) {
  strata_status status = STRATA_OK;
  strata_sha256 *hash;
  char hex[65];
  ST_TRY(strata_sha256_new(&hash, err));
  for (int32_t i = 0; i < op->n_cases && status == STRATA_OK; ++i)
    for (uint64_t seed = 1; seed <= SEEDS && status == STRATA_OK; ++seed)
      status = hash_case(hash, op, i, seed, err);
  strata_sha256_finish(&hash, hex);
  if (status == STRATA_OK) printf("%s %s\n", op->name, hex);
  return status;
}

int main(void) {
  strata_error err;
  for (int op = 0; op < ST_OPS; ++op)
    if (hash_op(st_kreg_op((st_op)op), &err) != STRATA_OK) {
      fprintf(stderr, "case_hashes: %s\n", err.message);
      return 1;
    }
  return 0;
}
