/* libFuzzer entry: any bytes as a safetensors file. A set that is accepted is
 * read to its last byte, so that a wrong bound shows. */
#include "model/safetensors/st_safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Stops the fuzzer: a promise of the header is broken. */
static void check(bool ok) {
  if (!ok) abort();
}

/* Keeps the compiler from leaving out the reads. */
static volatile uint8_t sink;

static void read_all(const st_safetensors *set) {
  for (int32_t i = 0; i < st_safetensors_count(set); i++) {
    const st_tensor *t = st_safetensors_at(set, i);
    int64_t n_elems = 1;
    for (int32_t d = 0; d < t->n_dims; d++) n_elems *= t->shape[d];
    check(n_elems == t->n_elems);
    check((size_t)n_elems * st_tensor_dtype_bytes(t->dtype) == t->n_bytes);
    check(i == 0 || strcmp(st_safetensors_at(set, i - 1)->name, t->name) < 0);
    check(st_safetensors_find(set, t->name) == t);
    for (size_t b = 0; b < t->n_bytes; b++) sink ^= t->data[b];
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  st_safetensors *set;
  strata_error err;
  strata_status status = st_safetensors_parse("fuzz", data, n_bytes, &set, &err);
  check((status == STRATA_OK) == (set != NULL));
  if (set)
    read_all(set);
  else
    check(err.status == status && err.message[0] && !strpbrk(err.message, "\n\r\033"));
  st_safetensors_close(&set);
  return 0;
}
