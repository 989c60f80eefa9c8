/* Programs by posix_spawn. */
#include "os/st_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/st_process.h"

/* ---- lists of words --------------------------------------------------------- */

static strata_status add(st_argv *argv, const char *text, size_t n_bytes, strata_error *err) {
  void *items = argv->word;
  char *copy;
  ST_TRY(st_grow(&items, &argv->capacity, argv->n + 2, sizeof *argv->word, "arguments", err));
  argv->word = items;
  argv->word[argv->n] = NULL;
  ST_TRY(st_strndup(&copy, text, n_bytes, err));
  argv->word[argv->n++] = copy;
  argv->word[argv->n] = NULL;
  return STRATA_OK;
}

strata_status st_argv_add(st_argv *argv, const char *word, strata_error *err) {
  return add(argv, word, strlen(word), err);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

strata_status st_argv_split(st_argv *argv, const char *text, size_t n_bytes, strata_error *err) {
  for (size_t i = 0; i < n_bytes;) {
    size_t begin = i;
    while (i < n_bytes && !is_blank(text[i])) ++i;
    if (i > begin) ST_TRY(add(argv, text + begin, i - begin, err));
    else ++i;
  }
  return STRATA_OK;
}

strata_status st_argv_append(st_argv *argv, const st_argv *more, strata_error *err) {
  for (size_t i = 0; i < more->n; ++i) ST_TRY(st_argv_add(argv, more->word[i], err));
  return STRATA_OK;
}

void st_argv_release(st_argv *argv) {
  for (size_t i = 0; i < argv->n; ++i) st_free(argv->word[i]);
  st_free(argv->word);
  *argv = (st_argv){0};
}

/* ---- running ---------------------------------------------------------------- */

/* This process's environment with LC_ALL=C, so that messages can be read by
 * programs. */
static strata_status english_environment(st_argv *env, strata_error *err) {
  for (char **entry = environ; entry && *entry; ++entry)
    if (strncmp(*entry, "LC_ALL=", 7) != 0 && strncmp(*entry, "LANGUAGE=", 9) != 0)
      ST_TRY(st_argv_add(env, *entry, err));
  return st_argv_add(env, "LC_ALL=C", err);
}

/* Starts the program in a process group of its own, so that its children can be
 * ended with it; it writes to output_fd. An errno, or 0. */
static int start(const st_argv *argv, const st_argv *env, int output_fd, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int code = posix_spawn_file_actions_init(&actions);
  if (code) return code;
  code = posix_spawnattr_init(&attributes);
  if (!code) {
    code = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!code) code = posix_spawn_file_actions_adddup2(&actions, output_fd, STDOUT_FILENO);
    if (!code) code = posix_spawn_file_actions_adddup2(&actions, output_fd, STDERR_FILENO);
    if (!code) code = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (!code)
      code = posix_spawnp(pid, argv->word[0], &actions, &attributes, argv->word, env->word);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return code;
}

/* Takes what lies in the pipe; what is beyond the limit is read and dropped, since
 * a full pipe would stop the program. *open: whether more may come. */
static strata_status drain(int fd, st_string *output, bool *open, strata_error *err) {
  char piece[4096];
  ssize_t n;
  while (*open && ((n = read(fd, piece, sizeof piece)) != 0)) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return STRATA_OK;
    size_t left = ST_SPAWN_OUTPUT_MAX - output->n_bytes;
    ST_TRY(st_string_append(output, piece, (size_t)n < left ? (size_t)n : left, err));
  }
  *open = false;
  return STRATA_OK;
}

static void kill_group(pid_t pid, int *wait_status) {
  kill(-pid, SIGKILL);
  while (waitpid(pid, wait_status, 0) < 0 && errno == EINTR) {}
}

/* Reads until the program has ended. Its end is asked for as well as the pipe's,
 * because a child of it may keep the pipe open, or it may close the pipe itself. */
static strata_status follow(pid_t pid, int fd, double seconds, st_spawn_result *out,
                            int *wait_status, strata_error *err) {
  enum { TURN_MS = 5 };
  const double end = st_clock_seconds() + seconds;
  bool open = true;
  for (;;) {
    strata_status status = drain(fd, &out->output, &open, err);
    out->timed_out = st_clock_seconds() > end;
    if (status != STRATA_OK || out->timed_out) {
      kill_group(pid, wait_status);
      return status;
    }
    if (waitpid(pid, wait_status, WNOHANG) == pid) return drain(fd, &out->output, &open, err);
    poll(&(struct pollfd){.fd = open ? fd : -1, .events = POLLIN}, 1, TURN_MS);
  }
}

strata_status st_spawn(const st_argv *argv, double seconds, st_spawn_result *out,
                       strata_error *err) {
  strata_status status = STRATA_OK;
  st_argv env = {0};
  int fd[2] = {-1, -1}, wait_status = 0;
  pid_t pid;
  *out = (st_spawn_result){0};
  ST_TRY_OUT(english_environment(&env, err));
  if (pipe2(fd, O_CLOEXEC) != 0 || fcntl(fd[0], F_SETFL, O_NONBLOCK) != 0)
    ST_FAIL_OUT(err, IO, "%s: a pipe: %s", argv->word[0], strerror(errno));
  int code = start(argv, &env, fd[1], &pid);
  if (code)
    ST_FAIL_OUT(err, IO, "%s: %s: a program that can be run expected", argv->word[0],
                strerror(code));
  close(fd[1]);
  fd[1] = -1;
  ST_TRY_OUT(follow(pid, fd[0], seconds, out, &wait_status, err));
  out->exit_code = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
out:
  for (int i = 0; i < 2; ++i)
    if (fd[i] >= 0) close(fd[i]);
  st_argv_release(&env);
  return status;
}

void st_spawn_result_release(st_spawn_result *result) {
  st_string_release(&result->output);
  *result = (st_spawn_result){0};
}
