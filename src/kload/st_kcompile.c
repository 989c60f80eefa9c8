/* Command lines for the compiler. */
#include "kload/st_kcompile.h"

#include <string.h>

/* From the Makefile: "base" and each CPU level. */
static const struct {
  const char *name, *flags;
} flag_rows[] = {
#define ST_KERNEL_FLAGS(name, flags) {#name, flags},
#include "kload/st_kernel_flags.inc"
#undef ST_KERNEL_FLAGS
};

static strata_status add_row(st_argv *argv, const char *name, strata_error *err) {
  for (size_t i = 0; i < sizeof flag_rows / sizeof *flag_rows; ++i)
    if (strcmp(name, flag_rows[i].name) == 0)
      return st_argv_split(argv, flag_rows[i].flags, strlen(flag_rows[i].flags), err);
  ST_FAIL(err, INTERNAL, "compile flags: %s: a CPU level of this build expected", name);
}

static strata_status add_all(st_argv *argv, const char *const *words, size_t n, strata_error *err) {
  for (size_t i = 0; i < n; ++i) ST_TRY(st_argv_add(argv, words[i], err));
  return STRATA_OK;
}
#define ADD(argv, ...)                                      \
  ST_TRY(add_all((argv), (const char *const[]){__VA_ARGS__}, \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), err))

/* Adds the strings as one word. */
static strata_status add_joined(st_argv *argv, const char *a, const char *b, const char *c,
                                strata_error *err) {
  st_string word = {0};
  strata_status status = st_string_puts(&word, a, err);
  if (status == STRATA_OK) status = st_string_puts(&word, b, err);
  if (status == STRATA_OK) status = st_string_puts(&word, c, err);
  if (status == STRATA_OK) status = st_argv_add(argv, word.text, err);
  st_string_release(&word);
  return status;
}

strata_status st_kcompile_code_flags(const st_kjob *job, st_argv *argv, strata_error *err) {
  ST_TRY(add_row(argv, "base", err));
  ST_TRY(add_row(argv, job->level, err));
  return st_argv_append(argv, job->asked, err);
}

static strata_status add_preprocessor_flags(const st_kjob *job, st_argv *argv, strata_error *err) {
  ADD(argv, "-DSTK_MODULE");
  ST_TRY(add_joined(argv, "-DSTK_LEVEL=", job->level, "", err));
  ST_TRY(add_joined(argv, "-DSTK_LEVEL_", job->level, "", err));
  ST_TRY(add_joined(argv, "-I", job->include_dir, "/include", err));
  return add_joined(argv, "-I", job->include_dir, "/kernels", err);
}

/* A module must neither be seen by another nor see the program's own names; the
 * flags stand behind those asked for, so they hold. */
static strata_status add_linker_flags(st_argv *argv, strata_error *err) {
  ADD(argv, "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic");
  return STRATA_OK;
}

/* A name that begins with - or @ would be an option or a list of options. */
static strata_status add_path(st_argv *argv, const char *path, strata_error *err) {
  return add_joined(argv, path[0] == '/' ? "" : "./", path, "", err);
}

strata_status st_kcompile_command(const st_kjob *job, const char *output, st_argv *argv,
                                  strata_error *err) {
  ADD(argv, job->program);
  ST_TRY(st_kcompile_code_flags(job, argv, err));
  ST_TRY(add_linker_flags(argv, err));
  ST_TRY(add_preprocessor_flags(job, argv, err));
  ADD(argv, "-x", "c");
  ST_TRY(add_path(argv, job->source, err));
  ADD(argv, "-o", output, "-lm");
  return STRATA_OK;
}

static strata_status run(const st_kjob *job, strata_status built, const st_argv *argv,
                         st_spawn_result *result, strata_error *err) {
  return built == STRATA_OK ? st_spawn(argv, job->seconds, result, err) : built;
}

static strata_status preprocess_command(const st_kjob *job, const char *output, st_argv *argv,
                                        strata_error *err) {
  ADD(argv, job->program);
  ST_TRY(st_kcompile_code_flags(job, argv, err));
  ST_TRY(add_preprocessor_flags(job, argv, err));
  ADD(argv, "-E", "-x", "c");
  ST_TRY(add_path(argv, job->source, err));
  ADD(argv, "-o", output);
  return STRATA_OK;
}

strata_status st_kcompile_preprocess(const st_kjob *job, const char *output,
                                     st_spawn_result *result, strata_error *err) {
  st_argv argv = {0};
  *result = (st_spawn_result){0};
  strata_status status = preprocess_command(job, output, &argv, err);
  status = run(job, status, &argv, result, err);
  st_argv_release(&argv);
  return status;
}

static strata_status link_command(const st_kjob *job, const char *preprocessed, const char *output,
                                  st_argv *argv, strata_error *err) {
  ADD(argv, job->program);
  ST_TRY(st_kcompile_code_flags(job, argv, err));
  ST_TRY(add_linker_flags(argv, err));
  ADD(argv, "-x", "cpp-output", preprocessed, "-o", output, "-lm");
  return STRATA_OK;
}

strata_status st_kcompile_link(const st_kjob *job, const char *preprocessed, const char *output,
                               st_spawn_result *result, strata_error *err) {
  st_argv argv = {0};
  *result = (st_spawn_result){0};
  strata_status status = link_command(job, preprocessed, output, &argv, err);
  status = run(job, status, &argv, result, err);
  st_argv_release(&argv);
  return status;
}

strata_status st_kcompile_version(const st_kjob *job, char **version, strata_error *err) {
  st_argv argv = {0};
  st_spawn_result result = {0};
  *version = NULL;
  strata_status status = st_argv_add(&argv, job->program, err);
  if (status == STRATA_OK) status = st_argv_add(&argv, "--version", err);
  status = run(job, status, &argv, &result, err);
  if (status == STRATA_IO)
    st_error_set(err, status, "compiler %s: it cannot be run: a C compiler (gcc, clang) expected",
                 job->program);
  if (status == STRATA_OK && (result.exit_code != 0 || result.timed_out))
    status = st_error_set(err, STRATA_IO, "compiler %s --version: exit code %d%s: a C compiler expected",
                          job->program, result.exit_code, result.timed_out ? ", too slow" : "");
  if (status == STRATA_OK)
    status = st_strndup(version, result.output.text ? result.output.text : "",
                        result.output.n_bytes, err);
  st_spawn_result_release(&result);
  st_argv_release(&argv);
  return status;
}
