/* Cutting a text into the pieces that byte-pair merges stay within. */
#ifndef ST_PRETOKEN_H
#define ST_PRETOKEN_H

#include "core/st_mem.h"

enum { ST_PRETOKEN_STAGES_MAX = 16 };

/* The regular expression of GPT-2, which ByteLevel uses by itself. */
extern const char ST_PRETOKEN_GPT2[];

/* Stages, each of which cuts the pieces of the one before: every match is a
 * piece and so is what lies between matches. Zero to begin with. */
typedef struct st_pretoken {
  void *codes[ST_PRETOKEN_STAGES_MAX];
  int n_stages;
  void *memory; /* how the regular expressions get memory */
} st_pretoken;

/* Adds a stage that matches the n bytes of a pattern, as it stands in
 * tokenizer.json, or that text itself if literal. UNSUPPORTED for constructs
 * that are not known to mean the same here, FORMAT for a broken pattern. */
strata_status st_pretoken_add(st_pretoken *pretoken, const char *pattern, size_t n, bool literal,
                              strata_error *err);
void st_pretoken_release(st_pretoken *pretoken);

/* What a run needs beside the stages: one per encoding. keeps a view of it. */
strata_status st_pretoken_scratch_new(const st_pretoken *pretoken, void **scratch,
                                      strata_error *err);
void st_pretoken_scratch_free(void **scratch);

/* Called for each piece, in order, none empty; an error ends the run. */
typedef strata_status (*st_piece_fn)(void *user, const char *piece, size_t n, strata_error *err);

/* Cuts n bytes of valid UTF-8. LIMIT if an expression backtracks without end. */
strata_status st_pretoken_run(const st_pretoken *pretoken, void *scratch, const char *text,
                              size_t n, st_piece_fn piece, void *user, strata_error *err);

#endif
