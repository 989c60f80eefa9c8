/* CPU and caches from Linux's /proc and /sys, or what sysconf knows of them. */
#include "os/st_machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/st_cpu.h"

/* ---- the CPU ------------------------------------------------------------------ */

/* Copies what follows the colon if the line is the one of that name. */
static void take_line(const char *line, const char *name, char *out, size_t n_bytes) {
  const char *rest = line + strlen(name);
  if (strncmp(line, name, strlen(name)) != 0) return;
  rest += strspn(rest, " \t");
  if (*rest != ':') return;
  rest += 1 + strspn(rest + 1, " \t");
  snprintf(out, n_bytes, "%.*s", (int)strcspn(rest, "\n"), rest);
}

/* From the first CPU's block; the others are taken to be alike. */
static void get_cpu(char *out, size_t n_bytes) {
  static const char *const names[] = {"model name",      "cpu family", "model", "stepping",
                                      "CPU implementer", "CPU part"};
  static const char *const labels[] = {"", "family ", "model ", "stepping ", "implementer ", "part "};
  enum { N = sizeof names / sizeof *names };
  char values[N][64] = {{0}}, line[256];
  size_t at = 0;
  FILE *file = fopen("/proc/cpuinfo", "re");
  while (file && fgets(line, sizeof line, file) && line[0] != '\n')
    for (size_t i = 0; i < N; ++i) take_line(line, names[i], values[i], sizeof values[i]);
  if (file) fclose(file);
  snprintf(out, n_bytes, "unknown CPU");
  for (size_t i = 0; i < N && at < n_bytes; ++i)
    if (values[i][0])
      at += (size_t)snprintf(out + at, n_bytes - at, "%s%s%s", at ? ", " : "", labels[i], values[i]);
}

/* ---- caches ------------------------------------------------------------------- */

/* Reads the first line of a file below the first CPU's caches. */
static bool read_line(int index, const char *name, char *line, size_t n_bytes) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
  FILE *file = fopen(path, "re");
  bool got = file && fgets(line, (int)n_bytes, file);
  if (file) fclose(file);
  return got;
}

/* How many numbers a list such as "0-3,8" names. */
static int32_t count_list(const char *list) {
  int32_t n = 0;
  for (int first, last, used; *list; list += used + (list[used] == ',')) {
    int got = sscanf(list, "%d%n-%d%n", &first, &used, &last, &used);
    if (got < 1) break;
    n += got == 2 && last >= first ? last - first + 1 : 1;
  }
  return n > 0 ? n : 1;
}

static void get_caches(st_cache *cache) {
  static const int names[ST_CACHES] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                       _SC_LEVEL3_CACHE_SIZE};
  char line[256];
  for (int i = 0; i < ST_CACHES; ++i) {
    long n_bytes = sysconf(names[i]);
    cache[i] = (st_cache){n_bytes > 0 ? n_bytes : 0, 1};
  }
  for (int index = 0; read_line(index, "type", line, sizeof line); ++index) {
    int level;
    long long kib;
    if (strncmp(line, "Instruction", 11) == 0) continue;
    if (!read_line(index, "level", line, sizeof line) || sscanf(line, "%d", &level) != 1) continue;
    if (level < 1 || level > ST_CACHES) continue;
    if (!read_line(index, "size", line, sizeof line) || sscanf(line, "%lldK", &kib) != 1) continue;
    cache[level - 1].n_bytes = (int64_t)kib * 1024;
    if (read_line(index, "shared_cpu_list", line, sizeof line))
      cache[level - 1].n_sharing = count_list(line);
  }
}

void st_machine_get(st_machine *out) {
  *out = (st_machine){.n_cpus = st_cpu_count()};
  get_cpu(out->cpu, sizeof out->cpu);
  get_caches(out->cache);
}
