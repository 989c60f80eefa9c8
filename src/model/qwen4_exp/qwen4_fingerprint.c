/* The hash that ties a saved state to the weights it was made with. */
#include <string.h>

#include <xxhash.h>

#include "model/qwen4_exp/qwen4_weights.h"

/* Each hash is the seed of the next, so order counts. */
static uint64_t mix(uint64_t hash, const void *data, size_t n_bytes) {
  return XXH3_64bits_withSeed(data, n_bytes, hash);
}

uint64_t qwen4_weights_fingerprint(const st_safetensors *tensors) {
  enum { SAMPLE_BYTES = 64 };
  uint64_t hash = 0;
  for (int32_t i = 0; i < st_safetensors_count(tensors); i++) {
    const st_tensor *t = st_safetensors_at(tensors, i);
    const char *dtype = st_tensor_dtype_name(t->dtype);
    size_t n = t->n_bytes < SAMPLE_BYTES ? t->n_bytes : SAMPLE_BYTES;
    hash = mix(hash, t->name, strlen(t->name));
    hash = mix(hash, dtype, strlen(dtype));
    hash = mix(hash, t->shape, (size_t)t->n_dims * sizeof *t->shape);
    hash = mix(hash, t->data, n);
    hash = mix(hash, t->data + (t->n_bytes - n) / 2, n);
    hash = mix(hash, t->data + t->n_bytes - n, n);
  }
  return hash;
}
