/* fork, a deadline, and what a crash was about. */
#include "os/st_child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/st_process.h"

/* How the child says what became of it. */
typedef struct note {
  strata_status status;
  strata_error error;
  bool returned;
  const void *address;
} note;

/* A signal handler has no other way to find it. Set in the child alone. */
static note *note_of_child;

strata_status st_shared_new(void **out, size_t n_bytes, const char *what, strata_error *err) {
  *out = NULL;
  void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return st_error_nomem(err, what, n_bytes);
  *out = p;
  return STRATA_OK;
}

void st_shared_free(void *memory, size_t n_bytes) {
  if (memory) munmap(memory, n_bytes);
}

/* Notes the address and dies of the same signal. */
static void on_fault(int signal_number, siginfo_t *info, void *context) {
  (void)context;
  note_of_child->address = info->si_addr;
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

/* Its handler has a stack of its own: running out of stack is a fault too. */
static void set_signals(void) {
  /* Whatever the parent does on a signal is not the child's business. */
  static const int usual[] = {SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGINT, SIGTERM};
  static char stack[64 * 1024];
  for (size_t i = 0; i < sizeof usual / sizeof *usual; ++i) signal(usual[i], SIG_DFL);
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigaltstack(&alternate, NULL);
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
}

static _Noreturn void be_child(strata_status (*work)(void *, strata_error *), void *user, note *n) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  note_of_child = n;
  set_signals();
  n->status = work(user, &n->error);
  n->returned = true;
  _exit(0);
}

/* Waits until the other end of the pipe is closed, or for the deadline. */
static bool ended_in_time(int fd, double deadline) {
  double end = st_clock_seconds() + deadline;
  for (;;) {
    double left = end - st_clock_seconds();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n = poll(&p, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
    if (n > 0) return true;
    if (n == 0 && left <= 0) return false;
    if (n < 0 && errno != EINTR) return false;
  }
}

static const char *name_of(int signal_number) {
  switch (signal_number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGILL: return "SIGILL";
    case SIGFPE: return "SIGFPE";
    case SIGABRT: return "SIGABRT";
    case SIGKILL: return "SIGKILL";
    case SIGTRAP: return "SIGTRAP";
    case 0: return "exit";
    default: return "a signal";
  }
}

strata_status st_child_run(strata_status (*work)(void *user, strata_error *err), void *user,
                           double deadline, st_child_result *out, strata_error *err) {
  void *memory;
  int fds[2];
  *out = (st_child_result){.end = ST_CHILD_CRASHED, .name = ""};
  ST_TRY(st_shared_new(&memory, sizeof(note), "a child process", err));
  note *n = memory;
  if (pipe(fds) != 0) {
    st_shared_free(memory, sizeof *n);
    ST_FAIL(err, IO, "a child process: pipe: %s", strerror(errno));
  }
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    close(fds[0]);
    be_child(work, user, n);
  }
  int fork_error = errno, wait_status = 0;
  close(fds[1]);
  if (pid > 0) {
    if (!ended_in_time(fds[0], deadline)) {
      out->end = ST_CHILD_HUNG;
      kill(pid, SIGKILL);
    }
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {}
  }
  close(fds[0]);
  strata_status status = STRATA_OK;
  if (pid < 0) {
    status = st_error_set(err, STRATA_IO, "a child process: fork: %s", strerror(fork_error));
  } else if (n->returned) {
    out->end = ST_CHILD_DONE;
    status = n->status;
    if (status != STRATA_OK && err) *err = n->error;
  } else {
    out->signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    out->name = name_of(out->signal);
    out->address = n->address;
  }
  st_shared_free(memory, sizeof *n);
  return status;
}
