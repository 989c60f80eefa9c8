/* Other programs: run with a list of arguments, never through a shell, and ended
 * when they take too long. */
#ifndef ST_SPAWN_H
#define ST_SPAWN_H

#include "core/st_mem.h"

/* A list of strings that grows; word[n] is NULL. */
typedef struct st_argv {
  char **word;
  size_t n, capacity;
} st_argv;

strata_status st_argv_add(st_argv *argv, const char *word, strata_error *err);
/* Adds the words of n_bytes of text, which blanks (space, tab, CR, LF) separate. */
strata_status st_argv_split(st_argv *argv, const char *text, size_t n_bytes, strata_error *err);
strata_status st_argv_append(st_argv *argv, const st_argv *more, strata_error *err);
void st_argv_release(st_argv *argv);

typedef struct st_spawn_result {
  int exit_code;    /* 128 + N if signal N ended it */
  bool timed_out;   /* it and its children were killed */
  st_string output; /* what it wrote, both streams; at most ST_SPAWN_OUTPUT_MAX bytes */
} st_spawn_result;

enum { ST_SPAWN_OUTPUT_MAX = 1 << 18 };

/* Runs word[0], looked for in PATH unless it has a slash, until it ends or seconds
 * have passed. Its input is empty and its messages are English. IO if it cannot be
 * started. fills *out (release it also after a failure). */
strata_status st_spawn(const st_argv *argv, double seconds, st_spawn_result *out,
                       strata_error *err);
void st_spawn_result_release(st_spawn_result *result);

#endif
