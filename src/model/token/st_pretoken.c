/* Pre-tokenizing with PCRE2. A stage sees each piece as a text of its own, so
 * nothing looks across the cuts of the stage before, as in the reference. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/token/st_pretoken.h"

#include <pcre2.h>
#include <string.h>

#include "model/token/st_regex.h"

const char ST_PRETOKEN_GPT2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static void *regex_alloc(size_t n, void *user) {
  void *p;
  (void)user;
  return st_calloc(&p, n, 1, "a regular expression", NULL) == STRATA_OK ? p : NULL;
}

static void regex_free(void *p, void *user) {
  (void)user;
  st_free(p);
}

static strata_status compile(st_pretoken *pretoken, const char *pattern, size_t n,
                             uint32_t options, strata_error *err) {
  strata_status status = STRATA_OK;
  pcre2_compile_context *context = pcre2_compile_context_create(pretoken->memory);
  int code;
  PCRE2_SIZE at;
  if (!context) return st_error_nomem(err, "a regular expression", n);
  pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, n, options, &code, &at, context);
  if (compiled) {
    /* Without it the expression is interpreted: slower, the same matches. */
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    pretoken->codes[pretoken->n_stages++] = compiled;
  } else if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY) {
    status = st_error_nomem(err, "a regular expression", n);
  } else {
    char text[128];
    pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
    status = st_error_set(err, STRATA_FORMAT, "regular expression: byte %zu as translated: %s",
                          (size_t)at, text);
  }
  pcre2_compile_context_free(context);
  return status;
}

strata_status st_pretoken_add(st_pretoken *pretoken, const char *pattern, size_t n, bool literal,
                              strata_error *err) {
  strata_status status = STRATA_OK;
  st_string translated = {0};
  if (pretoken->n_stages == ST_PRETOKEN_STAGES_MAX)
    ST_FAIL(err, UNSUPPORTED, "pre_tokenizer: more than %d splits: fewer expected",
            ST_PRETOKEN_STAGES_MAX);
  if (!pretoken->memory)
    pretoken->memory = pcre2_general_context_create(regex_alloc, regex_free, NULL);
  if (!pretoken->memory) return st_error_nomem(err, "a regular expression", n);
  if (literal) return compile(pretoken, pattern, n, PCRE2_UTF | PCRE2_LITERAL, err);
  ST_TRY_OUT(st_regex_translate(pattern, n, &translated, err));
  ST_TRY_OUT(
      compile(pretoken, translated.text, translated.n_bytes, PCRE2_UTF | PCRE2_UCP, err));
out:
  st_string_release(&translated);
  return status;
}

void st_pretoken_release(st_pretoken *pretoken) {
  for (int i = 0; i < pretoken->n_stages; i++) pcre2_code_free(pretoken->codes[i]);
  pcre2_general_context_free(pretoken->memory);
  *pretoken = (st_pretoken){0};
}

strata_status st_pretoken_scratch_new(const st_pretoken *pretoken, void **scratch,
                                      strata_error *err) {
  *scratch = NULL;
  if (!pretoken->n_stages) return STRATA_OK;
  *scratch = pcre2_match_data_create(1, pretoken->memory);
  return *scratch ? STRATA_OK : st_error_nomem(err, "a regular expression", sizeof(size_t));
}

void st_pretoken_scratch_free(void **scratch) {
  pcre2_match_data_free(*scratch);
  *scratch = NULL;
}

typedef struct run {
  const st_pretoken *pretoken;
  pcre2_match_data *match;
  st_piece_fn piece;
  void *user;
  strata_error *err;
} run;

/* Finds the next match from *begin on; false past the last one. */
static strata_status find(const run *r, int stage, const char *text, size_t n, size_t *begin,
                          size_t *end, bool *found) {
  const pcre2_code *code = r->pretoken->codes[stage];
  int rc = pcre2_match(code, (PCRE2_SPTR)text, n, *begin, PCRE2_NO_UTF_CHECK, r->match, NULL);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
    rc = pcre2_match(code, (PCRE2_SPTR)text, n, *begin, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                     r->match, NULL);
  *found = rc >= 0;
  if (rc == PCRE2_ERROR_NOMEMORY) return st_error_nomem(r->err, "a regular expression", n);
  if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
    ST_FAIL(r->err, LIMIT, "regular expression: code %d at byte %zu of %zu: an end expected", rc,
            *begin, n);
  if (*found) {
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(r->match);
    *begin = bounds[0];
    *end = bounds[1];
  }
  return STRATA_OK;
}

/* stage says what cuts this piece next. Recurses once per stage, so at most
 * ST_PRETOKEN_STAGES_MAX deep. */
static strata_status run_stage(const run *r, int stage, const char *text, size_t n) {
  size_t done = 0, from = 0, last_end = SIZE_MAX;
  if (n == 0) return STRATA_OK;
  if (stage == r->pretoken->n_stages) return r->piece(r->user, text, n, r->err);
  while (from <= n) {
    size_t begin = from, end = from;
    bool found;
    ST_TRY(find(r, stage, text, n, &begin, &end, &found));
    if (!found) break;
    if (begin == end && begin == last_end) {
      /* An empty match right behind a match says nothing: step on. */
      for (from++; from < n && ((uint8_t)text[from] & 0xc0) == 0x80;) from++;
      continue;
    }
    ST_TRY(run_stage(r, stage + 1, text + done, begin - done));
    ST_TRY(run_stage(r, stage + 1, text + begin, end - begin));
    done = from = last_end = end;
  }
  return run_stage(r, stage + 1, text + done, n - done);
}

strata_status st_pretoken_run(const st_pretoken *pretoken, void *scratch, const char *text,
                              size_t n, st_piece_fn piece, void *user, strata_error *err) {
  run r = {pretoken, scratch, piece, user, err};
  return run_stage(&r, 0, text, n);
}
