/* libFuzzer entry: any bytes as the source of a kernel. What its first comment asks
 * for must keep what st_kcomment.h promises. */
#include <stdlib.h>
#include <string.h>

#include "kload/st_kcomment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void must(bool holds) {
  if (!holds) abort();
}

static void check_word(const char *word) {
  must(word[0] != 0 && !strpbrk(word, " \t\r\n"));
  must(!strstr(word, "*/"));
}

static void check_flag(const char *flag) {
  check_word(flag);
  must(flag[0] == '-' && strchr("OfmD-", flag[1]) && flag[1] != 0);
  must(flag[1] != '-' || strncmp(flag, "--param=", 8) == 0);
  must(!strchr(flag, '/') && !strstr(flag, "=native"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  st_kcomment comment;
  strata_error err;
  if (st_kcomment_parse((const char *)data, n_bytes, "input", &comment, &err) == STRATA_OK) {
    must(comment.levels.n > 0);
    for (size_t i = 0; i < comment.levels.n; i++) {
      check_word(comment.levels.word[i]);
      must(!strpbrk(comment.levels.word[i], "-=\"'$/."));
    }
    for (size_t i = 0; i < comment.flags.n; i++) check_flag(comment.flags.word[i]);
    must(!comment.relaxed_math || comment.flags.n > 0);
  } else {
    must(err.status == STRATA_FORMAT && !strchr(err.message, '\n'));
  }
  st_kcomment_release(&comment);
  return 0;
}
