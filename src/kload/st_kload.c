/* From source to module: choose the level, preprocess, make the key, compile what
 * is not there yet, load, check. */
#include "kload/st_kload.h"

#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "kload/st_kcheck.h"
#include "kload/st_kcomment.h"
#include "kload/st_kcompile.h"
#include "kreg/st_source.h"
#include "os/st_cpu.h"
#include "os/st_dir.h"
#include "os/st_file.h"
#include "os/st_library.h"

enum { SOURCE_BYTES_MAX = 1 << 24, FILE_BYTES_MAX = ST_KMODULE_BYTES_MAX };
static const double DEFAULT_SECONDS = 60;

/* One opening on its way. */
typedef struct opening {
  const st_kload_request *request;
  st_dir cache;
  char *include_dir;
  char *source;
  size_t source_bytes;
  st_kcomment comment;
  st_kjob job;
  char *draft_text, *draft_module; /* paths of what is being made */
  st_string log;
  st_module *module;
} opening;

/* ---- small things ------------------------------------------------------------- */

/* gives "cache/stem.suffix". */
static strata_status cache_path(const opening *o, const char *stem, const char *suffix, char **out,
                                strata_error *err) {
  char name[128];
  snprintf(name, sizeof name, "%s%s", stem, suffix);
  return st_path_join(out, o->cache.path, name, err);
}

static strata_status write_whole(const opening *o, const char *stem, const char *suffix,
                                 const char *text, size_t n_bytes, strata_error *err) {
  char *path;
  st_writer *writer = NULL;
  ST_TRY(cache_path(o, stem, suffix, &path, err));
  strata_status status = st_writer_open(path, &writer, err);
  if (status == STRATA_OK) status = st_writer_write(writer, text, n_bytes, err);
  if (status == STRATA_OK) status = st_writer_commit(writer, err);
  st_writer_close(&writer);
  st_free(path);
  return status;
}

static strata_status write_log(const opening *o, const char *stem, strata_error *err) {
  return write_whole(o, stem, ".log", o->log.text ? o->log.text : "", o->log.n_bytes, err);
}

/* fills hex with the SHA-256 of a file, "" if it cannot be read. */
static strata_status hash_file(const char *path, char hex[65], strata_error *err) {
  char *bytes;
  size_t n_bytes;
  hex[0] = 0;
  strata_status status = st_file_read(path, FILE_BYTES_MAX, &bytes, &n_bytes, NULL);
  if (status == STRATA_NOMEM) return st_error_nomem(err, path, 0);
  if (status != STRATA_OK) return STRATA_OK;
  const st_source file = {path, bytes, n_bytes};
  status = st_source_sha256(&file, hex, err);
  st_free(bytes);
  return status;
}

/* gives the words with blanks between; quoted: each as a shell reads it back. */
static strata_status join_words(const st_argv *argv, bool quoted, char **out, strata_error *err) {
  strata_status status = STRATA_OK;
  st_string text = {0};
  for (size_t i = 0; i < argv->n && status == STRATA_OK; ++i) {
    const char *word = argv->word[i];
    if (i) status = st_string_puts(&text, " ", err);
    if (quoted && status == STRATA_OK) status = st_string_puts(&text, "'", err);
    for (; *word && status == STRATA_OK; ++word)
      status = quoted && *word == '\'' ? st_string_puts(&text, "'\\''", err)
                                       : st_string_append(&text, word, 1, err);
    if (quoted && status == STRATA_OK) status = st_string_puts(&text, "'", err);
  }
  if (status != STRATA_OK) st_string_release(&text);
  *out = text.text;
  return status;
}

/* ---- before compiling ----------------------------------------------------------- */

strata_status st_kload_default_cache(char **out, strata_error *err) {
  char *folder;
  *out = NULL;
  ST_TRY(st_cache_path(&folder, err));
  strata_status status = st_path_join(out, folder, "kernels", err);
  st_free(folder);
  return status;
}

static strata_status open_cache(opening *o, strata_error *err) {
  char *path = NULL;
  if (o->request->cache_dir) return st_dir_open_private(o->request->cache_dir, &o->cache, err);
  ST_TRY(st_kload_default_cache(&path, err));
  strata_status status = st_dir_open_private(path, &o->cache, err);
  st_free(path);
  return status;
}

/* The embedded sources lie beside the modules, under a name that follows their
 * content: two versions of strata may share a cache. */
static strata_status find_headers(opening *o, strata_error *err) {
  char hex[65];
  const char *given = o->request->include_dir;
  if (given) return st_path_absolute(given, &o->include_dir, err);
  ST_TRY(st_source_set_sha256(hex, err));
  ST_TRY(cache_path(o, "sources-", hex, &o->include_dir, err));
  return st_source_write_tree(o->include_dir, err);
}

static bool names_level(const st_kcomment *comment, const char *level) {
  for (size_t i = 0; i < comment->levels.n; ++i)
    if (strcmp(level, comment->levels.word[i]) == 0) return true;
  return false;
}

static strata_status choose_level(opening *o, strata_error *err) {
  const char *wanted = o->request->level;
  if (!wanted) {
    for (int level = ST_CPU_LEVELS; level-- > 0 && !wanted;) {
      const char *name = st_cpu_level_name((st_cpu_level)level);
      if (names_level(&o->comment, name) && st_cpu_has((st_cpu_level)level)) wanted = name;
    }
    if (!wanted)
      ST_FAIL(err, UNSUPPORTED, "%s: isa: this CPU has none of its levels: %s expected",
              o->request->source, st_cpu_level_name(st_cpu_best()));
  }
  if (!names_level(&o->comment, wanted))
    ST_FAIL(err, ARG, "%s: level %s: one of its first comment expected", o->request->source, wanted);
  int level = st_cpu_level_by_name(wanted);
  if (level < 0 || !st_cpu_has((st_cpu_level)level))
    ST_FAIL(err, UNSUPPORTED, "%s: level %s: this CPU does not have it, at most %s expected",
            o->request->source, wanted, st_cpu_level_name(st_cpu_best()));
  o->job.level = st_cpu_level_name((st_cpu_level)level);
  return STRATA_OK;
}

static strata_status read_source(opening *o, strata_error *err) {
  const char *path = o->request->source;
  ST_TRY(st_file_read(path, SOURCE_BYTES_MAX, &o->source, &o->source_bytes, err));
  ST_TRY(st_kcomment_parse(o->source, o->source_bytes, path, &o->comment, err));
  o->module->relaxed_math = o->comment.relaxed_math;
  const st_source source = {path, o->source, o->source_bytes};
  ST_TRY(st_source_sha256(&source, o->module->source_sha256, err));
  return choose_level(o, err);
}

static strata_status prepare_job(opening *o, strata_error *err) {
  st_argv flags = {0};
  o->job.program = o->request->compiler ? o->request->compiler : "cc";
  o->job.source = o->request->source;
  o->job.include_dir = o->include_dir;
  o->job.asked = &o->comment.flags;
  o->job.seconds = o->request->seconds > 0 ? o->request->seconds : DEFAULT_SECONDS;
  /* One process at a time is here, so what another left behind half made can be
   * overwritten. */
  ST_TRY(cache_path(o, "draft", ".i", &o->draft_text, err));
  ST_TRY(cache_path(o, "draft", ".so", &o->draft_module, err));
  ST_TRY(st_kcompile_version(&o->job, &o->module->compiler, err));
  strata_status status = st_kcompile_code_flags(&o->job, &flags, err);
  if (status == STRATA_OK) status = join_words(&flags, false, &o->module->flags, err);
  st_argv_release(&flags);
  return status;
}

/* ---- compiling -------------------------------------------------------------------- */

/* The first line with an error in it, else the first line: a view and its length. */
static const char *first_error(const st_string *log, int *n_bytes) {
  const char *text = log->text ? log->text : "";
  const char *at = strstr(text, "error:");
  while (at && at > text && at[-1] != '\n') --at;
  if (!at) at = text;
  *n_bytes = (int)strcspn(at, "\n");
  return at;
}

/* Keeps what the compiler said, and turns its failure into an error. */
static strata_status judge(opening *o, const st_spawn_result *result, const char *stem,
                           strata_error *err) {
  const char *said = result->output.text ? result->output.text : "";
  int n_bytes;
  ST_TRY(st_string_puts(&o->log, said, err));
  if (!result->timed_out && result->exit_code == 0) return STRATA_OK;
  ST_TRY(write_log(o, stem, err));
  if (result->timed_out)
    ST_FAIL(err, LIMIT, "%s: compiling: stopped after %g s: a shorter compilation expected",
            o->job.source, o->job.seconds);
  const char *line = first_error(&o->log, &n_bytes);
  if (n_bytes > 240) n_bytes = 240;
  ST_FAIL(err, FORMAT, "%s: does not compile: %.*s: all output in %s/%s.log", o->job.source,
          n_bytes, line, o->cache.path, stem);
}

/* The hash of the source is kept with the module, so the compiler must have seen the
 * same bytes. */
static strata_status check_unchanged(const opening *o, strata_error *err) {
  char hex[65];
  ST_TRY(hash_file(o->job.source, hex, err));
  if (strcmp(hex, o->module->source_sha256) != 0)
    ST_FAIL(err, STATE, "%s: changed while it was read: a file at rest expected", o->job.source);
  return STRATA_OK;
}

static strata_status preprocess(opening *o, strata_error *err) {
  st_spawn_result result;
  strata_status status = st_kcompile_preprocess(&o->job, o->draft_text, &result, err);
  if (status == STRATA_OK) status = judge(o, &result, o->module->source_sha256, err);
  st_spawn_result_release(&result);
  return status == STRATA_OK ? check_unchanged(o, err) : status;
}

/* Hashes preprocessed text but for the lines that only say where a text is from: the
 * same source in another place is the same module. */
static void hash_text(strata_sha256 *hash, const char *text, size_t n_bytes) {
  const char *end = text + n_bytes;
  while (text < end) {
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    const char *next = newline ? newline + 1 : end;
    bool marker = next - text > 2 && text[0] == '#' && text[1] == ' ';
    if (!marker) strata_sha256_update(hash, text, (size_t)(next - text));
    text = next;
  }
}

static strata_status make_key(opening *o, strata_error *err) {
  st_module *m = o->module;
  strata_sha256 *hash = NULL;
  char *text = NULL, head[256];
  size_t n_bytes;
  snprintf(head, sizeof head, "strata module, abi %u, level %s, source %s, flags", STK_ABI, o->job.level,
           m->source_sha256);
  ST_TRY(st_file_read(o->draft_text, FILE_BYTES_MAX, &text, &n_bytes, err));
  strata_status status = strata_sha256_new(&hash, err);
  if (status == STRATA_OK) {
    const char *const parts[] = {head, m->flags, o->job.program, m->compiler};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i)
      strata_sha256_update(hash, parts[i], strlen(parts[i]) + 1);
    hash_text(hash, text, n_bytes);
    strata_sha256_finish(&hash, m->key);
  }
  st_free(text);
  return status;
}

/* Whether the module lies there whole. The loader would crash on a file that was
 * cut, so the hash decides. */
static strata_status find_cached(const opening *o, bool *found, strata_error *err) {
  char hex[65], *record_path, *record = NULL;
  size_t n_bytes = 0;
  *found = false;
  ST_TRY(hash_file(o->module->path, hex, err));
  ST_TRY(cache_path(o, o->module->key, ".sha256", &record_path, err));
  if (hex[0] && st_file_read(record_path, 64, &record, &n_bytes, NULL) == STRATA_OK)
    *found = n_bytes == 64 && memcmp(record, hex, 64) == 0;
  st_free(record);
  st_free(record_path);
  return STRATA_OK;
}

static strata_status compile(opening *o, strata_error *err) {
  st_module *m = o->module;
  st_spawn_result result;
  char hex[65];
  st_file_remove(o->draft_module);
  strata_status status = st_kcompile_link(&o->job, o->draft_text, o->draft_module, &result, err);
  if (status == STRATA_OK) status = judge(o, &result, m->key, err);
  st_spawn_result_release(&result);
  if (status != STRATA_OK) return status;
  ST_TRY(hash_file(o->draft_module, hex, err));
  ST_TRY(write_log(o, m->key, err));
  ST_TRY(write_whole(o, m->key, ".c", o->source, o->source_bytes, err));
  ST_TRY(write_whole(o, m->key, ".cmd", m->command, strlen(m->command), err));
  ST_TRY(st_file_rename(o->draft_module, m->path, err));
  ST_TRY(write_whole(o, m->key, ".sha256", hex, strlen(hex), err));
  m->compiled = true;
  return STRATA_OK;
}

static strata_status make_command(opening *o, strata_error *err) {
  st_argv argv = {0};
  strata_status status = st_kcompile_command(&o->job, o->module->path, &argv, err);
  if (status == STRATA_OK) status = join_words(&argv, true, &o->module->command, err);
  st_argv_release(&argv);
  return status;
}

/* ---- opening ---------------------------------------------------------------------- */

static strata_status make_module(opening *o, strata_error *err) {
  bool cached;
  ST_TRY(open_cache(o, err));
  ST_TRY(read_source(o, err));
  ST_TRY(find_headers(o, err));
  ST_TRY(prepare_job(o, err));
  ST_TRY(preprocess(o, err));
  ST_TRY(make_key(o, err));
  ST_TRY(cache_path(o, o->module->key, ".so", &o->module->path, err));
  ST_TRY(make_command(o, err));
  ST_TRY(find_cached(o, &cached, err));
  if (!cached) ST_TRY(compile(o, err));
  const st_kcheck_expected expected = {o->request->source, o->request->op, o->job.level};
  return st_kcheck_load(o->module->path, &expected, &o->module->library, &o->module->kernel, err);
}

static void opening_release(opening *o) {
  if (o->draft_text) st_file_remove(o->draft_text);
  if (o->draft_module) st_file_remove(o->draft_module);
  st_free(o->draft_text);
  st_free(o->draft_module);
  st_free(o->include_dir);
  st_free(o->source);
  st_kcomment_release(&o->comment);
  st_string_release(&o->log);
  st_kload_close(&o->module);
  st_dir_close(&o->cache);
}

strata_status st_kload_open(const st_kload_request *request, st_module **out, strata_error *err) {
  opening o = {.request = request, .cache.fd = -1};
  void *memory;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof *o.module, "a module", err));
  o.module = memory;
  strata_status status = make_module(&o, err);
  if (status == STRATA_OK) {
    *out = o.module;
    o.module = NULL;
  }
  opening_release(&o);
  return status;
}

void st_kload_close(st_module **module) {
  st_module *m = *module;
  if (!m) return;
  st_library_close(&m->library);
  st_free(m->path);
  st_free(m->command);
  st_free(m->compiler);
  st_free(m->flags);
  st_free(m);
  *module = NULL;
}
