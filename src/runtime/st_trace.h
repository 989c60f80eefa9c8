/* A trace: one call of a kernel as a file, its inputs before and its outputs after.
 *
 * All numbers are little-endian, as the machines are that write and read it:
 *
 *   head     st_trace_head
 *   args     the op's args struct without pointers; args_bytes of them
 *   rows     [n_tensors] st_trace_row, in the order of the op's tensors
 *   data     of each row in turn: its bytes before the call, if it is an input, and
 *            after it, if it is an output
 *   sha256   64 hex digits, over everything before them
 *
 * Every part begins at a multiple of 64 bytes; nothing else lies between the parts.
 * The contract's number and args_bytes say whether an args struct is still the one that
 * this program has. Tables of pointers (U8) have a row but no bytes. */
#ifndef ST_TRACE_H
#define ST_TRACE_H

#include <strata/kernel.h>

#include "core/st_error.h"

#define ST_TRACE_MAGIC "STKTRACE"
#define ST_TRACE_BYTES_MAX ((uint64_t)4 << 30)
enum { ST_TRACE_VERSION = 1, ST_TRACE_ALIGN = 64, ST_TRACE_ARGS_MAX = 4096, ST_TRACE_NAME_BYTES = 32 };

typedef struct st_trace_head {
  char magic[8];
  uint32_t version, contract, args_bytes, n_tensors;
  int32_t layer;     /* -1: outside the layers */
  int32_t call;      /* its number among those captured in this layer */
  uint32_t numerics; /* stk_class of the kernel that left the outputs */
  uint32_t reserved;
  uint64_t n_bytes;  /* of the file */
  char op[ST_TRACE_NAME_BYTES], variant[ST_TRACE_NAME_BYTES];
  uint8_t zeros[16];
} st_trace_head;

typedef struct st_trace_row {
  char name[ST_TRACE_NAME_BYTES];
  uint32_t dtype, role;
  uint64_t n;             /* elements; 0: the call had no such tensor */
  uint64_t before, after; /* where its bytes begin in the file; 0: there are none */
} st_trace_row;

/* A parsed trace: views of the file's bytes. */
typedef struct st_trace {
  const st_trace_head *head;
  const void *args;
  const st_trace_row *rows;
  const uint8_t *bytes;
} st_trace;

static inline uint64_t st_trace_row_bytes(const st_trace_row *row) {
  return row->n * stk_dtype_bytes((stk_dtype)row->dtype);
}

/* Checks all sizes, places and the hash; knows nothing of ops. data is aligned to 8
 * bytes. FORMAT, with name in front. */
strata_status st_trace_parse(const char *name, const uint8_t *data, size_t n_bytes, st_trace *out,
                             strata_error *err);

/* What is to be written: head's op, variant, contract, args_bytes, n_tensors, layer, call
 * and numerics, rows' name, dtype, role and n. The rest follows. */
typedef struct st_trace_call {
  st_trace_head head;
  const void *args;
  st_trace_row rows[STK_TENSORS_MAX];
  const void *before[STK_TENSORS_MAX], *after[STK_TENSORS_MAX];
} st_trace_call;

/* Writes it whole or not at all. ARG if path is there already. */
strata_status st_trace_write(const char *path, st_trace_call *call, strata_error *err);

#endif
