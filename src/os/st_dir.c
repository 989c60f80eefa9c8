/* Folders by POSIX calls. */
#include "os/st_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/st_mem.h"
#include "os/st_file.h"

strata_status st_dir_make(const char *path, strata_error *err) {
  char *part;
  ST_TRY(st_strndup(&part, path, strlen(path), err));
  /* One that is there already is fine; whether it is a folder shows in the end. */
  for (size_t i = 1; i < strlen(path); ++i) {
    if (path[i] != '/') continue;
    part[i] = 0;
    mkdir(part, 0700);
    part[i] = '/';
  }
  struct stat st;
  int code = mkdir(path, 0700) == 0 ? 0 : errno;
  st_free(part);
  if (code == 0 || (stat(path, &st) == 0 && S_ISDIR(st.st_mode))) return STRATA_OK;
  ST_FAIL(err, IO, "%s: %s: a folder that can be made expected", path, strerror(code));
}

strata_status st_dir_each(const char *path, strata_status (*found)(void *user, const char *name, strata_error *err),
                          void *user, strata_error *err) {
  strata_status status = STRATA_OK;
  const struct dirent *entry;
  DIR *dir = opendir(path);
  if (!dir) ST_FAIL(err, IO, "%s: %s: a folder that can be read expected", path, strerror(errno));
  while (status == STRATA_OK && (entry = readdir(dir)))
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) status = found(user, entry->d_name, err);
  closedir(dir);
  return status;
}

static strata_status refuse(void *user, const char *name, strata_error *err) {
  (void)name;
  ST_FAIL(err, ARG, "%s: it is there already: a new or an empty folder expected", (const char *)user);
}

strata_status st_dir_make_empty(const char *path, strata_error *err) {
  ST_TRY(st_dir_make(path, err));
  return st_dir_each(path, refuse, (void *)(uintptr_t)path, err);
}

strata_status st_dir_make_temporary(char **out, strata_error *err) {
  static const char pattern[] = "/tmp/strata-XXXXXX";
  char *path;
  *out = NULL;
  ST_TRY(st_strndup(&path, pattern, sizeof pattern - 1, err));
  if (!mkdtemp(path)) {
    int code = errno;
    st_free(path);
    ST_FAIL(err, IO, "/tmp: %s: a folder to write in expected", strerror(code));
  }
  *out = path;
  return STRATA_OK;
}

void st_dir_remove(const char *path) { rmdir(path); }

static strata_status check_private(const char *path, int fd, strata_error *err) {
  struct stat st;
  if (fstat(fd, &st) != 0) ST_FAIL(err, IO, "%s: %s", path, strerror(errno));
  if (st.st_uid != geteuid())
    ST_FAIL(err, STATE, "%s: belongs to user %u: a folder of user %u expected", path,
            (unsigned)st.st_uid, (unsigned)geteuid());
  if (st.st_mode & (S_IWGRP | S_IWOTH))
    ST_FAIL(err, STATE, "%s: mode %04o: a folder that only its owner can write to expected", path,
            (unsigned)(st.st_mode & 07777));
  return STRATA_OK;
}

/* What was looked at is what is open: nobody can put another folder in between. */
static strata_status open_private(const char *path, int *fd, strata_error *err) {
  ST_TRY(st_dir_make(path, err));
  *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*fd < 0) ST_FAIL(err, IO, "%s: %s: a folder expected", path, strerror(errno));
  return check_private(path, *fd, err);
}

strata_status st_dir_make_private(const char *path, strata_error *err) {
  int fd = -1;
  strata_status status = open_private(path, &fd, err);
  if (fd >= 0) close(fd);
  return status;
}

strata_status st_path_absolute(const char *path, char **out, strata_error *err) {
  *out = NULL;
  char *found = realpath(path, NULL);
  if (!found) ST_FAIL(err, IO, "%s: %s: a folder expected", path, strerror(errno));
  strata_status status = st_strndup(out, found, strlen(found), err);
  free(found);
  return status;
}

strata_status st_dir_open_private(const char *path, st_dir *out, strata_error *err) {
  strata_status status = STRATA_OK;
  *out = (st_dir){.fd = -1};
  ST_TRY_OUT(open_private(path, &out->fd, err));
  ST_TRY_OUT(st_path_absolute(path, &out->path, err));
  while (flock(out->fd, LOCK_EX) != 0)
    if (errno != EINTR) ST_FAIL_OUT(err, IO, "%s: locking: %s", path, strerror(errno));
out:
  if (status != STRATA_OK) st_dir_close(out);
  return status;
}

void st_dir_close(st_dir *dir) {
  if (dir->fd >= 0) close(dir->fd);
  st_free(dir->path);
  *dir = (st_dir){.fd = -1};
}

strata_status st_cache_path(char **out, strata_error *err) {
  char text[4096];
  struct passwd entry, *user = NULL;
  *out = NULL;
  if (getpwuid_r(geteuid(), &entry, text, sizeof text, &user) != 0 || !user ||
      user->pw_dir[0] != '/')
    ST_FAIL(err, IO, "user %u: no home folder: an entry of the user database expected",
            (unsigned)geteuid());
  return st_path_join(out, user->pw_dir, ".cache/strata", err);
}

strata_status st_file_rename(const char *from, const char *to, strata_error *err) {
  if (rename(from, to) != 0)
    ST_FAIL(err, IO, "%s: %s: a path that can be written expected", to, strerror(errno));
  return STRATA_OK;
}

void st_file_remove(const char *path) { unlink(path); }
