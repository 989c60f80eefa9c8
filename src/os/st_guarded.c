/* Mapping pages with a closed one on either side. */
#include "os/st_guarded.h"

#include <sys/mman.h>
#include <unistd.h>

strata_status st_guarded_new(st_guarded *out, size_t n_bytes, size_t margin, const char *what,
                             strata_error *err) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  *out = (st_guarded){0};
  if (n_bytes > SIZE_MAX / 2 || margin > SIZE_MAX / 8) return st_error_nomem(err, what, n_bytes);
  const size_t rounded = (n_bytes + 63) / 64 * 64;
  const size_t open = (rounded + 2 * margin + page - 1) / page * page;
  void *p = mmap(NULL, open + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return st_error_nomem(err, what, open);
  if (mprotect((uint8_t *)p + page, open, PROT_READ | PROT_WRITE) != 0) {
    munmap(p, open + 2 * page);
    return st_error_nomem(err, what, open);
  }
  out->pages = p;
  out->n_pages_bytes = open + 2 * page;
  out->front = out->pages + page;
  out->data = out->front + open - margin - rounded;
  out->front_bytes = (size_t)(out->data - out->front);
  out->n_bytes = n_bytes;
  out->back = out->data + n_bytes;
  out->back_bytes = rounded - n_bytes + margin;
  return STRATA_OK;
}

void st_guarded_free(st_guarded *g) {
  if (g->pages) munmap(g->pages, g->n_pages_bytes);
  *g = (st_guarded){0};
}

/* Pages that a tensor has to itself: it cannot fail for another reason than a bug. */
void st_guarded_let_write(st_guarded *g, bool allowed) {
  const size_t n_bytes = g->front_bytes + g->n_bytes + g->back_bytes;
  if (g->pages) mprotect(g->front, n_bytes, allowed ? PROT_READ | PROT_WRITE : PROT_READ);
}
