/* libFuzzer entry: any bytes as a trace. Its length and its hash are made to fit, so
 * that what lies behind them is reached; a trace that is accepted becomes a case, and
 * all that a kernel would read is read. */
#include <stdlib.h>
#include <string.h>

#include "lab/lab_trace.h"

enum { HASH_BYTES = 64, BYTES_MAX = 1 << 22 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Stops the fuzzer: a promise of the header is broken. */
static void check(bool ok) {
  if (!ok) abort();
}

/* Keeps the compiler from leaving out the reads. */
static volatile uint8_t sink;

static void make_fit(uint8_t *data, size_t n_bytes) {
  char hex[HASH_BYTES + 1];
  strata_sha256 *hash;
  const uint64_t length = n_bytes;
  if (n_bytes < sizeof(st_trace_head) + HASH_BYTES || strata_sha256_new(&hash, NULL) != STRATA_OK) return;
  memcpy(data + offsetof(st_trace_head, n_bytes), &length, sizeof length);
  strata_sha256_update(hash, data, n_bytes - HASH_BYTES);
  strata_sha256_finish(&hash, hex);
  memcpy(data + n_bytes - HASH_BYTES, hex, HASH_BYTES);
}

static void read_case(const lab_trace *trace) {
  lab_case c;
  strata_error err;
  if (lab_trace_case(trace, (lab_fill){0}, &c, &err) != STRATA_OK) {
    check(err.status == STRATA_UNSUPPORTED || err.status == STRATA_NOMEM);
    return;
  }
  for (int32_t i = 0; i < c.n; ++i) {
    check((*c.tensors[i].slot == NULL) == (c.tensors[i].n == 0));
    for (size_t at = 0; at < c.buffers[i].n_bytes; ++at) sink ^= c.buffers[i].data[at];
  }
  lab_trace_put_outputs(trace, &c, &c);
  lab_case_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  lab_trace trace;
  strata_error err;
  if (n_bytes > BYTES_MAX) return 0;
  uint8_t *copy = malloc(n_bytes ? n_bytes : 1);
  if (!copy) return 0;
  if (n_bytes) memcpy(copy, data, n_bytes);
  make_fit(copy, n_bytes);
  strata_status status = lab_trace_read("fuzz", copy, n_bytes, &trace, &err);
  check((status == STRATA_OK) == (trace.op != NULL));
  if (status == STRATA_OK) read_case(&trace);
  else check(err.status == status && err.message[0] && !strpbrk(err.message, "\n\r\033"));
  lab_trace_close(&trace);
  free(copy);
  return 0;
}
