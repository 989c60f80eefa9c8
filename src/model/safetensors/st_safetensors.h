/* Reading safetensors checkpoints: one file, or a directory with an index.
 *
 * File format: u64 little-endian header length, a JSON object of that length
 * {"name": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ..,
 * "__metadata__": {..}}, then the data, offsets counted from its start. The
 * file is foreign: every length, offset and shape is checked before it is used,
 * and an error names the file, the tensor and, where it helps, the byte.
 *
 * Refused (FORMAT): truncated files; header lengths past the file or over
 * ST_SAFETENSORS_HEADER_MAX; JSON that is not as above; unknown dtypes; shapes
 * with more than ST_TENSOR_DIMS_MAX dimensions or whose product overflows;
 * data_offsets that end before they begin, leave the file, disagree with the
 * shape, or overlap another tensor's (gaps are allowed); two tensors of one
 * name, in one file or in two shards; an index that names a file outside the
 * directory ("/" or ".."), a missing shard (IO), or a tensor that its shard
 * does not have. */
#ifndef ST_SAFETENSORS_H
#define ST_SAFETENSORS_H

#include "core/st_error.h"

enum { ST_TENSOR_DIMS_MAX = 8 };
#define ST_SAFETENSORS_HEADER_MAX ((size_t)256 << 20)

typedef enum st_tensor_dtype {
  ST_DTYPE_F32, ST_DTYPE_F16, ST_DTYPE_BF16, ST_DTYPE_F64,
  ST_DTYPE_I64, ST_DTYPE_I32, ST_DTYPE_I16, ST_DTYPE_I8,
  ST_DTYPE_U64, ST_DTYPE_U32, ST_DTYPE_U16, ST_DTYPE_U8, ST_DTYPE_BOOL,
  ST_DTYPE_F8_E4M3, ST_DTYPE_F8_E5M2,
} st_tensor_dtype;

const char *st_tensor_dtype_name(st_tensor_dtype dtype); /* "BF16" */
size_t st_tensor_dtype_bytes(st_tensor_dtype dtype);

typedef struct st_tensor {
  const char *name;
  const char *file;    /* path of its file */
  const uint8_t *data; /* a view into the mapped file; any alignment */
  size_t n_bytes;
  int64_t n_elems;
  int64_t shape[ST_TENSOR_DIMS_MAX];
  int32_t n_dims;
  st_tensor_dtype dtype;
} st_tensor;

typedef struct st_safetensors st_safetensors;

/* path: a .safetensors file, or a directory with model.safetensors.index.json,
 * or with exactly one *.safetensors file, or with several and no index (then
 * all of them). Maps the files; reads only headers. */
strata_status st_safetensors_open(const char *path, st_safetensors **out, strata_error *err);
void st_safetensors_close(st_safetensors **tensors);
/* The path or label it was opened with. */
const char *st_safetensors_path(const st_safetensors *tensors);

/* Tensors in ascending order of name. */
int32_t st_safetensors_count(const st_safetensors *tensors);
const st_tensor *st_safetensors_at(const st_safetensors *tensors, int32_t index);
/* NULL if there is none. */
const st_tensor *st_safetensors_find(const st_safetensors *tensors, const char *name);

/* Parses one file image in memory (for tests and the fuzzer): fills the callers
 * object like open, the data staying the caller's. */
strata_status st_safetensors_parse(const char *label, const uint8_t *image, size_t n_bytes,
                                   st_safetensors **out, strata_error *err);

#endif
