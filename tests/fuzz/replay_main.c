/* Runs a fuzz entry on the files given, without a fuzzer: what was found once
 * stays fixed. Prints TAP; a crash ends the program and is the caller's to see. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* The file's bytes in memory of exactly their size, so that a read past the end
 * shows; NULL if it cannot be read. */
static uint8_t *read_file(const char *path, size_t *n_bytes) {
  uint8_t *data = NULL;
  FILE *f = fopen(path, "rb");
  if (f && fseek(f, 0, SEEK_END) == 0) {
    long size = ftell(f);
    rewind(f);
    *n_bytes = size > 0 ? (size_t)size : 0;
    data = malloc(*n_bytes ? *n_bytes : 1);
    if (size < 0 || (data && fread(data, 1, *n_bytes, f) != *n_bytes)) {
      free(data);
      data = NULL;
    }
  }
  if (f) fclose(f);
  return data;
}

int main(int argc, char **argv) {
  int n_failed = 0;
  printf("1..%d\n", argc - 1);
  for (int i = 1; i < argc; ++i) {
    size_t n_bytes = 0;
    uint8_t *data = read_file(argv[i], &n_bytes);
    fprintf(stderr, "# running %s\n", argv[i]);
    if (data) LLVMFuzzerTestOneInput(data, n_bytes);
    else ++n_failed;
    printf("%s %d - %s\n", data ? "ok" : "not ok", i, argv[i]);
    fflush(stdout);
    free(data);
  }
  return n_failed ? 1 : 0;
}
