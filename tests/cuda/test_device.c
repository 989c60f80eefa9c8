/* The parity suite of the GPU kernels on the first GPU; a case a kernel. Without a
 * GPU there is one line that says why, and nothing failed. */
#include <stdio.h>

#include "lab/lab_cuda.h"

enum { REPEATS = 100 };

static void show(void *user, const char *name, const char *detail) {
  (void)user;
  if (detail) printf("%s\nnot ok %s\n", detail, name);
  else printf("ok %s\n", name);
  fflush(stdout);
}

int main(int argc, char **argv) {
  char why[512];
  st_cuda *cuda = NULL;
  strata_error err;
  int32_t n_passed = 0, n_failed = 0;
  if (st_cuda_count(why, sizeof why) == 0) {
    printf("skip GPU kernels: %s\n", why);
    return 0;
  }
  strata_status status = st_cuda_open(0, NULL, &cuda, &err);
  if (status == STRATA_OK)
    status = lab_cuda_check(cuda, argc > 1 ? argv[1] : NULL, argc > 2 ? 1 : REPEATS, show, NULL, &n_passed, &n_failed, &err);
  if (status != STRATA_OK) printf("%s\nnot ok GPU\n", err.message);
  st_cuda_close(&cuda);
  return status != STRATA_OK || n_failed > 0;
}
