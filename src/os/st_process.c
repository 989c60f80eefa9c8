/* Facts about this process by POSIX calls and Linux's /proc. */
#include "os/st_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <sys/utsname.h>
#include <unistd.h>

double st_clock_seconds(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A "name: n kB" line of /proc/self/status, in bytes. */
static int64_t status_bytes(const char *format) {
  char line[256];
  long long kib = 0;
  FILE *status = fopen("/proc/self/status", "re");
  if (!status) return 0;
  while (fgets(line, sizeof line, status))
    if (sscanf(line, format, &kib) == 1) break;
  fclose(status);
  return (int64_t)kib * 1024;
}

int64_t st_process_peak_bytes(void) { return status_bytes("VmHWM: %lld kB"); }

int64_t st_process_anonymous_bytes(void) { return status_bytes("RssAnon: %lld kB"); }

int64_t st_process_file_bytes(void) { return status_bytes("RssFile: %lld kB"); }

bool st_process_executable(char *path, size_t n_bytes) {
  if (!n_bytes) return false;
  ssize_t n = readlink("/proc/self/exe", path, n_bytes);
  /* A result that fills the buffer may have been cut. */
  bool whole = n > 0 && (size_t)n < n_bytes;
  path[whole ? n : 0] = 0;
  return whole;
}

int32_t st_terminal_columns(int fd) {
  struct winsize size;
  if (!isatty(fd)) return 0;
  /* Serial lines and some emulators answer 0; 80 is what such terminals have. */
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool st_env_no_color(void) {
  const char *value = getenv("NO_COLOR");
  return value && value[0];
}

void st_system_name(char *text, size_t n_bytes) {
  struct utsname name;
  text[0] = '\0';
  if (uname(&name) == 0) snprintf(text, n_bytes, "%s %s %s", name.sysname, name.release, name.machine);
}
