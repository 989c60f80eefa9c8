/* Files and pages by POSIX calls. */
#include "os/st_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/st_mem.h"

static strata_status open_regular(const char *path, int *fd, size_t *n_bytes, strata_error *err) {
  struct stat st;
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0) ST_FAIL(err, IO, "%s: %s: a readable file expected", path, strerror(errno));
  if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(*fd);
    *fd = -1;
    ST_FAIL(err, IO, "%s: not a regular file: a readable file expected", path);
  }
  *n_bytes = (size_t)st.st_size;
  return STRATA_OK;
}

strata_status st_mapping_open(const char *path, st_mapping *out, strata_error *err) {
  int fd;
  *out = (st_mapping){0};
  ST_TRY(open_regular(path, &fd, &out->n_bytes, err));
  if (out->n_bytes) {
    void *p = mmap(NULL, out->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      int code = errno;
      size_t n_bytes = out->n_bytes;
      close(fd);
      *out = (st_mapping){0};
      ST_FAIL(err, IO, "%s: mapping %zu bytes: %s", path, n_bytes, strerror(code));
    }
    out->data = p;
  }
  close(fd);
  return STRATA_OK;
}

void st_mapping_close(st_mapping *mapping) {
  if (mapping->data) munmap((void *)(uintptr_t)mapping->data, mapping->n_bytes);
  *mapping = (st_mapping){0};
}

strata_status st_file_read(const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                           strata_error *err) {
  strata_status status = STRATA_OK;
  int fd;
  size_t size = 0, done = 0;
  void *buffer = NULL;
  *data = NULL;
  *n_bytes = 0;
  ST_TRY(open_regular(path, &fd, &size, err));
  if (size > max_bytes)
    ST_FAIL_OUT(err, LIMIT, "%s: %zu bytes: at most %zu expected", path, size, max_bytes);
  ST_TRY_OUT(st_calloc(&buffer, size + 1, 1, path, err));
  while (done < size) {
    ssize_t got = read(fd, (char *)buffer + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) ST_FAIL_OUT(err, IO, "%s: %s at byte %zu", path, strerror(errno), done);
    if (got == 0) break;
    done += (size_t)got;
  }
  *data = buffer;
  *n_bytes = done;
  buffer = NULL;
out:
  st_free(buffer);
  close(fd);
  return status;
}

st_path_kind st_path_probe(const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) return ST_PATH_NONE;
  return S_ISDIR(st.st_mode) ? ST_PATH_DIRECTORY : ST_PATH_FILE;
}

strata_status st_path_join(char **out, const char *directory, const char *name,
                           strata_error *err) {
  void *joined;
  size_t n = strlen(directory) + strlen(name) + 2;
  *out = NULL;
  ST_TRY(st_calloc(&joined, n, 1, "a path", err));
  snprintf(joined, n, "%s/%s", directory, name);
  *out = joined;
  return STRATA_OK;
}

struct st_writer {
  int fd;
  char *path, *temp_path;
};

strata_status st_writer_open(const char *path, st_writer **out, strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory = NULL;
  st_writer *writer = NULL;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof *writer, "a file writer", err));
  writer = memory;
  writer->fd = -1;
  size_t temp_bytes = strlen(path) + sizeof ".XXXXXX";
  ST_TRY_OUT(st_strndup(&writer->path, path, strlen(path), err));
  ST_TRY_OUT(st_calloc(&memory, temp_bytes, 1, "a path", err));
  writer->temp_path = memory;
  snprintf(writer->temp_path, temp_bytes, "%s.XXXXXX", path);
  writer->fd = mkostemp(writer->temp_path, O_CLOEXEC);
  if (writer->fd < 0) {
    int code = errno;
    st_free(writer->temp_path);
    writer->temp_path = NULL;
    ST_FAIL_OUT(err, IO, "%s: %s: a path that can be written expected", path, strerror(code));
  }
  *out = writer;
  writer = NULL;
out:
  st_writer_close(&writer);
  return status;
}

strata_status st_writer_write(st_writer *writer, const void *data, size_t n_bytes,
                              strata_error *err) {
  const char *p = data;
  while (n_bytes) {
    ssize_t put = write(writer->fd, p, n_bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) ST_FAIL(err, IO, "%s: writing: %s", writer->path, strerror(errno));
    p += put;
    n_bytes -= (size_t)put;
  }
  return STRATA_OK;
}

const char *st_writer_path(const st_writer *writer) { return writer->temp_path; }

strata_status st_writer_commit(st_writer *writer, strata_error *err) {
  mode_t mask = umask(0);
  umask(mask);
  /* mkostemp makes the file private; the final one follows the user's umask. */
  bool ok = fchmod(writer->fd, 0666 & ~mask) == 0 && fsync(writer->fd) == 0 &&
            close(writer->fd) == 0;
  writer->fd = -1;
  if (!ok || rename(writer->temp_path, writer->path) != 0)
    ST_FAIL(err, IO, "%s: finishing: %s", writer->path, strerror(errno));
  st_free(writer->temp_path);
  writer->temp_path = NULL;
  return STRATA_OK;
}

void st_writer_close(st_writer **writer) {
  st_writer *w = *writer;
  if (!w) return;
  if (w->fd >= 0) close(w->fd);
  if (w->temp_path) unlink(w->temp_path);
  st_free(w->temp_path);
  st_free(w->path);
  st_free(w);
  *writer = NULL;
}

strata_status st_pages_new(void **out, size_t n_bytes, const char *what, strata_error *err) {
  *out = NULL;
  void *p = mmap(NULL, n_bytes ? n_bytes : 1, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return st_error_nomem(err, what, n_bytes);
  *out = p;
  return STRATA_OK;
}

strata_status st_huge_pages_new(void **out, size_t n_bytes, const char *what, strata_error *err) {
  const size_t align = (size_t)2 << 20;
  void *memory;
  *out = NULL;
  if (n_bytes > SIZE_MAX - align) return st_error_nomem(err, what, n_bytes);
  ST_TRY(st_pages_new(&memory, n_bytes + align, what, err));
  /* What lies before the first multiple and behind the end goes back. */
  uint8_t *begin = memory;
  const size_t before = (align - (uintptr_t)begin % align) % align;
  if (before) munmap(begin, before);
  munmap(begin + before + n_bytes, align - before);
  madvise(begin + before, n_bytes, MADV_HUGEPAGE);
  *out = begin + before;
  return STRATA_OK;
}

void st_pages_free(void *pages, size_t n_bytes) {
  if (pages) munmap(pages, n_bytes ? n_bytes : 1);
}
