/* Parsing the first comment: foreign bytes. */
#include "kload/st_kcomment.h"

#include <string.h>

/* A view of the bytes that are still to be read. */
typedef struct cursor {
  const char *at, *end;
} cursor;

static void skip_blanks(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\t')) ++c->at;
}

static bool take(cursor *c, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0) return false;
  c->at += n;
  return true;
}

/* The rest of the line, without what lies behind the comment's end. *closed: the
 * comment ends in it. */
static cursor take_line(cursor *c, bool *closed) {
  cursor line = {c->at, c->end};
  const char *newline = memchr(c->at, '\n', (size_t)(c->end - c->at));
  if (newline) line.end = newline;
  c->at = newline ? newline + 1 : c->end;
  const char *close = memmem(line.at, (size_t)(line.end - line.at), "*/", 2);
  *closed = close != NULL;
  if (close) line.end = close;
  return line;
}

static bool begins_with(const char *text, const char *start) {
  return strncmp(text, start, strlen(start)) == 0;
}

static bool is_level_name(const char *word) {
  return strlen(word) < 32 && strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(word);
}

static strata_status parse_levels(cursor line, const char *name, st_argv *levels,
                                  strata_error *err) {
  ST_TRY(st_argv_split(levels, line.at, (size_t)(line.end - line.at), err));
  if (!levels->n) ST_FAIL(err, FORMAT, "%s: isa: no CPU level: at least one expected", name);
  for (size_t i = 0; i < levels->n; ++i)
    if (!is_level_name(levels->word[i]))
      ST_FAIL(err, FORMAT, "%s: isa: %s: the name of a CPU level expected", name, levels->word[i]);
  return STRATA_OK;
}

static bool is_allowed(const char *flag) {
  static const char *const kinds[] = {"-O", "-f", "-m", "-D", "--param="};
  static const char *const files[] = {"-fplugin", "-fprofile", "-fauto-profile", "-fdump"};
  bool known = false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) known |= begins_with(flag, kinds[i]);
  for (size_t i = 0; i < sizeof files / sizeof *files; ++i)
    if (begins_with(flag, files[i])) return false;
  return known && !strchr(flag, '/') && !strstr(flag, "=native");
}

static bool relaxes_math(const char *flag) {
  static const char *const whole[] = {
      "-Ofast", "-ffast-math", "-funsafe-math-optimizations", "-fassociative-math",
      "-freciprocal-math", "-ffinite-math-only", "-fno-signed-zeros", "-fcx-limited-range",
      "-fcx-fortran-rules", "-fsingle-precision-constant", "-fapprox-func", "-mdaz-ftz",
  };
  static const char *const begin[] = {"-ffp-model=", "-ffp-contract=", "-mrecip", "-mfpmath=",
                                      "-fexcess-precision=", "-fdenormal-fp-math"};
  if (strcmp(flag, "-ffp-contract=off") == 0) return false;
  for (size_t i = 0; i < sizeof whole / sizeof *whole; ++i)
    if (strcmp(flag, whole[i]) == 0) return true;
  for (size_t i = 0; i < sizeof begin / sizeof *begin; ++i)
    if (begins_with(flag, begin[i])) return true;
  return false;
}

static strata_status parse_flags(cursor line, const char *name, st_kcomment *out,
                                 strata_error *err) {
  ST_TRY(st_argv_split(&out->flags, line.at, (size_t)(line.end - line.at), err));
  for (size_t i = 0; i < out->flags.n; ++i) {
    const char *flag = out->flags.word[i];
    if (!is_allowed(flag))
      ST_FAIL(err, FORMAT,
              "%s: flags: %s: -O, -f, -m, -D or --param= expected, no file and no =native", name,
              flag);
    out->relaxed_math |= relaxes_math(flag);
  }
  return STRATA_OK;
}

strata_status st_kcomment_parse(const char *text, size_t n_bytes, const char *name,
                                st_kcomment *out, strata_error *err) {
  cursor c = {text, text + n_bytes};
  bool closed;
  *out = (st_kcomment){0};
  bool opened = take(&c, "/*");
  skip_blanks(&c);
  if (!opened || !take(&c, "isa:"))
    ST_FAIL(err, FORMAT, "%s: first line: no CPU level: \"/* isa: LEVEL ...\" expected", name);
  cursor line = take_line(&c, &closed);
  /* A NUL would end a word early. */
  if (memchr(line.at, 0, (size_t)(line.end - line.at)))
    ST_FAIL(err, FORMAT, "%s: first line: a NUL byte: text expected", name);
  ST_TRY(parse_levels(line, name, &out->levels, err));
  if (closed) return STRATA_OK;

  line = take_line(&c, &closed);
  skip_blanks(&line);
  if (take(&line, "*")) skip_blanks(&line);
  if (!take(&line, "flags:")) return STRATA_OK;
  if (memchr(line.at, 0, (size_t)(line.end - line.at)))
    ST_FAIL(err, FORMAT, "%s: flags: a NUL byte: text expected", name);
  return parse_flags(line, name, out, err);
}

void st_kcomment_release(st_kcomment *comment) {
  st_argv_release(&comment->levels);
  st_argv_release(&comment->flags);
  *comment = (st_kcomment){0};
}
