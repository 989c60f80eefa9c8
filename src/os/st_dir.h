/* Folders: making them, private ones, and one process at a time in them. */
#ifndef ST_DIR_H
#define ST_DIR_H

#include "core/st_error.h"

/* Makes a folder and those above it, as far as they are missing, for this user
 * alone (mode 0700). */
strata_status st_dir_make(const char *path, strata_error *err);

/* As st_dir_make; ARG if the folder is there and has something in it. */
strata_status st_dir_make_empty(const char *path, strata_error *err);
/* Makes a new one below /tmp; gives its path (st_free). */
strata_status st_dir_make_temporary(char **out, strata_error *err);
/* Calls found with the name of each thing in a folder, in any order, until one call says
 * other than OK, which is returned then. IO if the folder cannot be read. */
strata_status st_dir_each(const char *path, strata_status (*found)(void *user, const char *name, strata_error *err),
                          void *user, strata_error *err);
/* Removes a folder if it is there and empty. */
void st_dir_remove(const char *path);

/* As st_dir_make; STATE if it belongs to another user or others can write to it: what
 * lies in it could be anybody's. */
strata_status st_dir_make_private(const char *path, strata_error *err);

/* As st_dir_make_private, and holds the folder: until close nobody else, in this process
 * or another, holds it. */
typedef struct st_dir {
  char *path; /* absolute */
  int fd;
} st_dir;

strata_status st_dir_open_private(const char *path, st_dir *out, strata_error *err);
void st_dir_close(st_dir *dir);

/* gives the path of a folder that is there, from the root (st_free). */
strata_status st_path_absolute(const char *path, char **out, strata_error *err);

/* gives ~/.cache/strata (st_free), the home folder being that of the user database. It
 * need not exist. IO if the user has no home. */
strata_status st_cache_path(char **out, strata_error *err);

/* Moves a file in one step, over what was there. */
strata_status st_file_rename(const char *from, const char *to, strata_error *err);
/* Removes a file if there is one. */
void st_file_remove(const char *path);

#endif
