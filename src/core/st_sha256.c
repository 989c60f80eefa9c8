/* SHA-256, by libmd. */
#include <sha256.h>

#include "core/st_error.h"
#include "core/st_mem.h"

struct strata_sha256 {
  SHA2_CTX context;
};

strata_status strata_sha256_new(strata_sha256 **out, strata_error *err) {
  void *memory;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "a hash", err));
  *out = memory;
  SHA256Init(&(*out)->context);
  return STRATA_OK;
}

void strata_sha256_update(strata_sha256 *hash, const void *data, size_t n_bytes) {
  SHA256Update(&hash->context, data, n_bytes);
}

void strata_sha256_finish(strata_sha256 **hash, char hex[65]) {
  SHA256End(&(*hash)->context, hex);
  st_free(*hash);
  *hash = NULL;
}
