/* CUDA C to machine code of one chip, by NVRTC, with the embedded headers. */
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "device/cuda/st_cuda.h"
#include "device/cuda/st_cuda_api.h"
#include "kreg/st_source.h"

/* NVRTC has no C library. */
static const struct {
  const char *name, *text;
} system_headers[] = {
    {"stdint.h",
     "#pragma once\n"
     "typedef signed char int8_t; typedef unsigned char uint8_t;\n"
     "typedef short int16_t; typedef unsigned short uint16_t;\n"
     "typedef int int32_t; typedef unsigned int uint32_t;\n"
     "typedef long long int64_t; typedef unsigned long long uint64_t;\n"
     "typedef unsigned long long uintptr_t;\n"
     "#define INT32_MAX 2147483647\n"},
    {"stddef.h", "#pragma once\ntypedef decltype(sizeof(0)) size_t;\n#ifndef NULL\n#define NULL 0\n#endif\n"},
    {"stdbool.h", "#pragma once\n"},
    {"string.h", "#pragma once\n"},
};
enum { N_SYSTEM = sizeof system_headers / sizeof *system_headers, HEADERS_MAX = 512, OPTIONS_MAX = 16 };

/* The exact class needs every one of these. */
static const char *const fixed_options[] = {
    "--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false",
    "--device-as-default-execution-space"};
enum { N_FIXED = sizeof fixed_options / sizeof *fixed_options };

/* The options of one compilation. */
typedef struct options {
  char arch[40], given[128];
  const char *words[OPTIONS_MAX];
  int n;
} options;

static strata_status make_options(const st_cuda_source *source, const char *arch, options *out, strata_error *err) {
  out->n = 0;
  snprintf(out->arch, sizeof out->arch, "--gpu-architecture=%s", arch);
  out->words[out->n++] = out->arch;
  for (int i = 0; i < N_FIXED; ++i) out->words[out->n++] = fixed_options[i];
  if (strlen(source->options) >= sizeof out->given)
    ST_FAIL(err, LIMIT, "%s: options: %s: at most 127 bytes expected", source->name, source->options);
  snprintf(out->given, sizeof out->given, "%s", source->options);
  for (char *at = out->given; *at;) {
    char *end = at + strcspn(at, " ");
    if (end > at && out->n == OPTIONS_MAX)
      ST_FAIL(err, LIMIT, "%s: options: %s: fewer expected", source->name, source->options);
    if (end > at) out->words[out->n++] = at;
    at = *end ? end + 1 : end;
    *end = 0;
  }
  return STRATA_OK;
}

/* NVRTC takes headers by the names that #include uses. */
static int collect_headers(const st_cuda_sources *replacing, const char *text[HEADERS_MAX], const char *name[HEADERS_MAX]) {
  int n = 0;
  for (int i = 0; i < N_SYSTEM; ++i, ++n) {
    text[n] = system_headers[i].text;
    name[n] = system_headers[i].name;
  }
  for (int32_t i = 0; i < st_source_count() && n < HEADERS_MAX; ++i) {
    const st_source source = st_source_at(i);
    const char *suffix = strrchr(source.path, '.');
    if (!suffix || (strcmp(suffix, ".h") != 0 && strcmp(suffix, ".inc") != 0)) continue;
    const st_cuda_replaced *replaced = st_cuda_sources_find(replacing, source.path);
    text[n] = replaced ? replaced->text : source.text;
    name[n++] = source.path;
  }
  return n;
}

/* The first line of the log that is an error, or else its first line. */
static void first_error(char *log, char *out, size_t n_bytes) {
  char *line = strstr(log, "error");
  while (line && line > log && line[-1] != '\n') --line;
  if (!line) line = log;
  snprintf(out, n_bytes, "%.*s", (int)strcspn(line, "\n"), line);
}

static strata_status report(const st_cuda_nvrtc *nvrtc, nvrtc_program program, const char *name, int result,
                            strata_error *err) {
  size_t n_bytes = 0;
  void *log = NULL;
  char line[200] = "";
  if (nvrtc->log_size(program, &n_bytes) == 0 && n_bytes > 0) {
    ST_TRY(st_calloc(&log, n_bytes + 1, 1, "the compiler's log", err));
    if (nvrtc->log(program, log) == 0) first_error(log, line, sizeof line);
    st_free(log);
  }
  ST_FAIL(err, FORMAT, "%s: NVRTC, error %d: %s", name, result, line[0] ? line : "no log");
}

static strata_status take_cubin(const st_cuda_nvrtc *nvrtc, nvrtc_program program, const char *name,
                                st_cuda_cubin *out, strata_error *err) {
  void *bytes = NULL;
  int result = nvrtc->cubin_size(program, &out->n_bytes);
  if (result == 0) {
    ST_TRY(st_calloc(&bytes, out->n_bytes, 1, "a compiled kernel", err));
    out->bytes = bytes;
    result = nvrtc->cubin(program, bytes);
  }
  if (result != 0) ST_FAIL(err, FORMAT, "%s: NVRTC, error %d: machine code expected", name, result);
  return STRATA_OK;
}

strata_status st_cuda_compile(const st_cuda_nvrtc *nvrtc, const st_cuda_source *source, const char *arch,
                              st_cuda_cubin *out, strata_error *err) {
  strata_status status = STRATA_OK;
  const char *text[HEADERS_MAX], *name[HEADERS_MAX];
  const int n_headers = collect_headers(source->headers, text, name);
  nvrtc_program program = NULL;
  options o;
  *out = (st_cuda_cubin){0};
  ST_TRY(make_options(source, arch, &o, err));
  int result = nvrtc->create(&program, source->text, source->name, n_headers, text, name);
  if (result != 0) ST_FAIL_OUT(err, FORMAT, "%s: NVRTC, error %d: a program expected", source->name, result);
  result = nvrtc->compile(program, o.n, o.words);
  ST_TRY_OUT(result ? report(nvrtc, program, source->name, result, err)
                    : take_cubin(nvrtc, program, source->name, out, err));
out:
  if (program) nvrtc->destroy(&program);
  if (status != STRATA_OK) st_cuda_cubin_release(out);
  return status;
}

void st_cuda_cubin_release(st_cuda_cubin *cubin) {
  st_free(cubin->bytes);
  *cubin = (st_cuda_cubin){0};
}

strata_status st_cuda_compile_key(const st_cuda_nvrtc *nvrtc, const st_cuda_source *source, const char *arch,
                                  char hex[65], strata_error *err) {
  const st_cuda_replaced *replaced;
  strata_sha256 *hash;
  char sources[65], version[64];
  int major = 0, minor = 0;
  options o;
  nvrtc->version(&major, &minor);
  snprintf(version, sizeof version, "NVRTC %d.%d", major, minor);
  ST_TRY(make_options(source, arch, &o, err));
  ST_TRY(st_source_set_sha256(sources, err));
  ST_TRY(strata_sha256_new(&hash, err));
  strata_sha256_update(hash, version, strlen(version) + 1);
  for (int i = 0; i < o.n; ++i) strata_sha256_update(hash, o.words[i], strlen(o.words[i]) + 1);
  for (int i = 0; i < N_SYSTEM; ++i)
    strata_sha256_update(hash, system_headers[i].text, strlen(system_headers[i].text) + 1);
  strata_sha256_update(hash, sources, sizeof sources);
  for (int32_t i = 0; (replaced = st_cuda_sources_at(source->headers, i)); ++i) {
    strata_sha256_update(hash, replaced->path, strlen(replaced->path) + 1);
    strata_sha256_update(hash, replaced->text, replaced->n_bytes + 1);
  }
  strata_sha256_update(hash, source->entry, strlen(source->entry) + 1);
  strata_sha256_update(hash, source->text, strlen(source->text) + 1);
  strata_sha256_finish(&hash, hex);
  return STRATA_OK;
}
