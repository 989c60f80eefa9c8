/* The embedded sources. The Makefile writes kreg/st_sources.inc, a row for each
 * file: ST_SOURCE(symbol, "path", "file"). The assembler's .incbin takes the bytes
 * as they are, on every machine that gcc and clang know. */
#include "kreg/st_source.h"

#include <stdio.h>
#include <string.h>

#define ST_SOURCE(symbol, path, file)                 \
  __asm__(".pushsection .rodata\n"                    \
          "st_source_" #symbol ":\n"                  \
          ".incbin \"" file "\"\n"                    \
          "st_source_" #symbol "_end: .byte 0\n"      \
          ".popsection\n");                           \
  extern const char st_source_##symbol[], st_source_##symbol##_end[];
#include "kreg/st_sources.inc"
#undef ST_SOURCE

static const struct {
  const char *path, *text, *end;
} table[] = {
#define ST_SOURCE(symbol, path, file) {path, st_source_##symbol, st_source_##symbol##_end},
#include "kreg/st_sources.inc"
#undef ST_SOURCE
};

int32_t st_source_count(void) { return (int32_t)(sizeof table / sizeof *table); }

st_source st_source_at(int32_t index) {
  return (st_source){table[index].path, table[index].text,
                     (size_t)(table[index].end - table[index].text)};
}

bool st_source_find(const char *path, st_source *out) {
  for (int32_t i = 0; i < st_source_count(); ++i)
    if (strcmp(path, table[i].path) == 0) {
      *out = st_source_at(i);
      return true;
    }
  *out = (st_source){0};
  return false;
}

/* op/op.c, or op/op_suffix.c. */
static bool find_of_op(const char *op, const char *suffix, st_source *out) {
  char path[256];
  int n = suffix ? snprintf(path, sizeof path, "%s/%s_%s.c", op, op, suffix)
                 : snprintf(path, sizeof path, "%s/%s.c", op, op);
  *out = (st_source){0};
  return n > 0 && (size_t)n < sizeof path && st_source_find(path, out);
}

bool st_source_of_variant(const char *op, const char *variant, st_source *out) {
  const char *tag = strchr(variant, '_');
  return find_of_op(op, variant, out) || (tag && find_of_op(op, tag + 1, out)) ||
         (!tag && find_of_op(op, NULL, out));
}

strata_status st_source_sha256(const st_source *source, char hex[65], strata_error *err) {
  strata_sha256 *hash;
  hex[0] = 0;
  ST_TRY(strata_sha256_new(&hash, err));
  strata_sha256_update(hash, source->text, source->n_bytes);
  strata_sha256_finish(&hash, hex);
  return STRATA_OK;
}

strata_status st_source_set_sha256(char hex[65], strata_error *err) {
  strata_sha256 *hash;
  hex[0] = 0;
  ST_TRY(strata_sha256_new(&hash, err));
  for (int32_t i = 0; i < st_source_count(); ++i) {
    st_source source = st_source_at(i);
    strata_sha256_update(hash, source.path, strlen(source.path) + 1);
    strata_sha256_update(hash, source.text, source.n_bytes + 1);
  }
  strata_sha256_finish(&hash, hex);
  return STRATA_OK;
}
