/* The sources of the kernels, inside the library: every contract, shared header
 * and kernel, as bytes, so that a kernel can be compiled at run time on a machine
 * that has no source tree of strata.
 *
 * A path is the one that an #include names: "strata/kernel.h",
 * "common/k_simd.h", "gdn_scan/gdn_scan.c". Oracles and the ops' test cases are
 * not among them: they are linked in, and nobody compiles them at run time. */
#ifndef ST_SOURCE_H
#define ST_SOURCE_H

#include "core/st_error.h"

typedef struct st_source {
  const char *path;
  const char *text; /* n_bytes, and a NUL behind */
  size_t n_bytes;
} st_source;

/* Sources in a fixed order: 0 .. st_source_count() - 1. */
int32_t st_source_count(void);
st_source st_source_at(int32_t index);

/* false, and all NULL, if there is no such path. */
bool st_source_find(const char *path, st_source *out);

/* The file that a built-in variant is compiled from: op "gdn_scan" and variant
 * "avx2_tb8" give gdn_scan/gdn_scan_tb8.c. A file of the whole variant's name comes
 * before one of its tag, and that before the op's own. */
bool st_source_of_variant(const char *op, const char *variant, st_source *out);

/* SHA-256 of a source's bytes, as 64 hex digits and a NUL. */
strata_status st_source_sha256(const st_source *source, char hex[65], strata_error *err);
/* SHA-256 over all sources: path, NUL, text, NUL of each in their order. */
strata_status st_source_set_sha256(char hex[65], strata_error *err);

/* Writes the sources as files: directory/include/strata/kernel.h and
 * directory/kernels/<path>, the two folders that #include is relative to. Folders
 * are made; a file that has its bytes already is left alone. Each file appears in
 * one step, so several processes may do this at once. */
strata_status st_source_write_tree(const char *directory, strata_error *err);

#endif
