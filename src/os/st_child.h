/* A child process for work that may crash or hang: a fork that shares one block of
 * memory with its parent, ends when the parent does, and is killed at a deadline. */
#ifndef ST_CHILD_H
#define ST_CHILD_H

#include "core/st_error.h"

/* Zeroed memory that a child forked later shares with its parent. */
strata_status st_shared_new(void **out, size_t n_bytes, const char *what, strata_error *err);
void st_shared_free(void *memory, size_t n_bytes);

typedef enum st_child_end {
  ST_CHILD_DONE,    /* work returned; so its status is known */
  ST_CHILD_CRASHED, /* a signal, or exit from within */
  ST_CHILD_HUNG,    /* killed at the deadline */
} st_child_end;

typedef struct st_child_result {
  st_child_end end;
  int signal;            /* of a crash, 0 if it called exit */
  const char *name;      /* "SIGSEGV", ...; "exit" */
  const void *address;   /* that SIGSEGV or SIGBUS was about, in the child's memory */
} st_child_result;

/* Forks, runs work(user) in the child and waits at most deadline seconds for it.
 * Returns what work returned, its error included; with another end than DONE,
 * STRATA_OK. The caller has no other threads. Output of work to stdout or stderr
 * is not flushed by the child. */
strata_status st_child_run(strata_status (*work)(void *user, strata_error *err), void *user,
                           double deadline, st_child_result *out, strata_error *err);

#endif
