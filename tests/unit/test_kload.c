/* Kernels compiled and loaded at run time, with the system's compiler: the same bytes
 * as the linked ones, and a clear no to whatever is wrong with a source, a module
 * or the place where modules lie. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/st_mem.h"
#include "kload/st_kcheck.h"
#include "kload/st_kload.h"
#include "kreg/st_kreg.h"
#include "kreg/st_source.h"
#include "lab/lab_case.h"
#include "os/st_dir.h"
#include "os/st_file.h"
#include "os/st_fpmode.h"
#include "os/st_spawn.h"

static char folder[128], cache[160], tree[160];

/* ---- files ---------------------------------------------------------------------- */

static const char *in_folder(const char *name) {
  static char path[4][256];
  static int next;
  char *p = path[next++ % 4];
  snprintf(p, sizeof path[0], "%s/%s", folder, name);
  return p;
}

static const char *write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
  return path;
}

/* A module's file with another suffix: KEY.log of KEY.so. */
static const char *beside(const char *module, const char *suffix) {
  static char path[512];
  snprintf(path, sizeof path, "%.*s%s", (int)strlen(module) - 3, module, suffix);
  return path;
}

static void run_program(const char *const *words) {
  st_argv argv = {0};
  st_spawn_result result;
  while (*words) assert_int_equal(st_argv_add(&argv, *words++, NULL), STRATA_OK);
  assert_int_equal(st_spawn(&argv, 60, &result, NULL), STRATA_OK);
  assert_int_equal(result.exit_code, 0);
  st_spawn_result_release(&result);
  st_argv_release(&argv);
}

static int set_up(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/test_kload.XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(cache, sizeof cache, "%s/cache", folder);
  snprintf(tree, sizeof tree, "%s/tree", folder);
  return st_source_write_tree(tree, NULL) == STRATA_OK ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  run_program((const char *const[]){"rm", "-rf", folder, NULL});
  return 0;
}

/* ---- candidates ------------------------------------------------------------------- */

/* A kernel of embed whose run gives *args the answer. */
static char *candidate(const char *comment, const char *code, const char *answer) {
  static char text[2048];
  snprintf(text, sizeof text,
           "%s\n"
           "#include \"embed/embed.h\"\n"
           "%s\n"
           "static void run(const void *args, int32_t part, int32_t n_parts) {\n"
           "  (void)part, (void)n_parts;\n"
           "  **(int *const *)args = (%s);\n"
           "}\n"
           "STK_KERNEL_LEVEL(embed, STK_EMBED_CONTRACT, stk_embed_args, STK_EXACT, run);\n",
           comment, code, answer);
  return text;
}
#define SCALAR "/* isa: scalar */"

static strata_status open_as(const char *source, const char *level, st_module **out,
                             strata_error *err) {
  const st_kload_request request = {
      .source = source, .level = level, .cache_dir = cache, .include_dir = tree};
  return st_kload_open(&request, out, err);
}

static st_module *open_good(const char *source) {
  st_module *module;
  strata_error err;
  if (open_as(source, NULL, &module, &err) != STRATA_OK) fail_msg("%s", err.message);
  return module;
}

static int answer_of_kernel(const stk_kernel *kernel) {
  int answer = -1, *args = &answer;
  kernel->run(&args, 0, 1);
  return answer;
}
static int answer_of(const st_module *module) { return answer_of_kernel(module->kernel); }

static void expect_refused(const st_kload_request *request, strata_status status,
                           const char *words) {
  st_module *module = (st_module *)(uintptr_t)1;
  strata_error err = {0};
  assert_int_equal(st_kload_open(request, &module, &err), status);
  assert_null(module);
  if (!strstr(err.message, words)) fail_msg("%s\n  expected in it: %s", err.message, words);
  assert_null(strchr(err.message, '\n'));
}

static void expect_source_refused(const char *text, strata_status status, const char *words) {
  const char *path = write_file(in_folder("refused.c"), text);
  const st_kload_request request = {.source = path, .cache_dir = cache, .include_dir = tree};
  expect_refused(&request, status, words);
}

/* ---- the same bytes ----------------------------------------------------------------- */

static void compare_runs(const stk_op *op, const stk_kernel *linked, const stk_kernel *loaded) {
  const lab_fill fill = {.seed = 7, .poison = 0x5a, .guard = 0x5e};
  for (int32_t i = 0; i < op->n_cases; i++) {
    const void *shape = (const char *)op->cases + (size_t)i * op->args_bytes;
    lab_case want, got;
    assert_int_equal(lab_case_init(&want, op, shape, fill, NULL), STRATA_OK);
    assert_int_equal(lab_case_init(&got, op, shape, fill, NULL), STRATA_OK);
    lab_case_run(&want, linked, 1);
    lab_case_run(&got, loaded, 2);
    lab_difference d = lab_case_compare(&want, &got);
    if (d.tensor)
      fail_msg("%s.%s, case %d: %s differs at %zu", op->name, linked->variant, i, d.tensor, d.first);
    lab_case_release(&want);
    lab_case_release(&got);
  }
}

static void compare_builds(const stk_op *op, const stk_kernel *linked) {
  st_source source;
  char path[512];
  st_module *module;
  strata_error err;
  assert_true(st_source_of_variant(linked->op, linked->variant, &source));
  snprintf(path, sizeof path, "%s/kernels/%s", tree, source.path);
  if (open_as(path, linked->isa, &module, &err) != STRATA_OK) fail_msg("%s", err.message);
  assert_ptr_not_equal(module->kernel, linked);
  assert_ptr_not_equal(module->kernel->run, linked->run);
  assert_string_equal(module->kernel->op, linked->op);
  assert_string_equal(module->kernel->variant, linked->variant);
  assert_string_equal(module->kernel->isa, linked->isa);
  assert_int_equal(module->kernel->numerics, linked->numerics);
  compare_runs(op, linked, module->kernel);
  st_kload_close(&module);
}

static void test_same_bytes(void **state) {
  (void)state;
  int n = 0;
  for (int op = 0; op < ST_OPS; op++) {
    const stk_kernel *kernel;
    if (strncmp(st_kreg_op((st_op)op)->name, "gdn_", 4) != 0) continue;
    for (int32_t i = 0; (kernel = st_kreg_variant((st_op)op, i)); i++) {
      if (strchr(kernel->variant, '_') || !st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa)))
        continue;
      compare_builds(st_kreg_op((st_op)op), kernel);
      n++;
    }
  }
  assert_true(n >= 4);
}

/* A variant's source is found by its name; that it is the right one shows here. */
static void test_tagged_variant(void **state) {
  (void)state;
  const stk_op *op = st_kreg_op(ST_OP_gdn_scan);
  const stk_kernel *kernel;
  for (int32_t i = 0; (kernel = st_kreg_variant(ST_OP_gdn_scan, i)); i++)
    if (strchr(kernel->variant, '_') && st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa))) {
      compare_builds(op, kernel);
      return;
    }
  print_message("this CPU has no level with tagged variants\n");
  skip();
}

/* ---- keys ---------------------------------------------------------------------------- */

static void test_cache(void **state) {
  (void)state;
  const char *path = write_file(in_folder("edited.c"), candidate(SCALAR, "", "41"));
  st_module *first = open_good(path), *again = open_good(path);
  assert_true(first->compiled);
  assert_false(again->compiled);
  assert_string_equal(first->path, again->path);
  st_kload_close(&again);

  /* The same file, edited, while the old module is open. */
  write_file(path, candidate(SCALAR, "", "42"));
  st_module *edited = open_good(path);
  assert_true(edited->compiled);
  assert_string_not_equal(first->key, edited->key);
  assert_string_not_equal(first->source_sha256, edited->source_sha256);
  assert_int_equal(answer_of(first), 41);
  assert_int_equal(answer_of(edited), 42);

  /* The same source elsewhere is the same module. */
  const char *elsewhere = write_file(in_folder("elsewhere.c"), candidate(SCALAR, "", "42"));
  st_module *moved = open_good(elsewhere);
  assert_false(moved->compiled);
  assert_string_equal(moved->key, edited->key);
  st_kload_close(&first);
  st_kload_close(&edited);
  st_kload_close(&moved);
  assert_null(moved);
}

static strata_status count_entry(void *user, const char *name, strata_error *err) {
  (void)name, (void)err;
  ++*(int *)user;
  return STRATA_OK;
}

/* Files in the cache. */
static int entries(void) {
  int n = 0;
  assert_int_equal(st_dir_each(cache, count_entry, &n, NULL), STRATA_OK);
  return n;
}

/* A copy is another module of the same code, and leaves no file behind. */
static void test_load_copy(void **state) {
  (void)state;
  st_module *module = open_good(write_file(in_folder("copied.c"), candidate(SCALAR, "", "43")));
  const st_kcheck_expected expected = {"copied.c", NULL, "scalar"};
  const int n_before = entries();
  st_library *library[2];
  const stk_kernel *kernel[2];
  strata_error err;
  for (int i = 0; i < 2; ++i)
    if (st_kcheck_load_copy(module->path, &expected, &library[i], &kernel[i], &err) != STRATA_OK) fail_msg("%s", err.message);
  assert_int_equal(entries(), n_before);
  assert_ptr_not_equal(kernel[0], kernel[1]);
  assert_ptr_not_equal(kernel[0], module->kernel);
  assert_int_equal(answer_of_kernel(kernel[0]), 43);
  assert_int_equal(answer_of_kernel(kernel[1]), 43);
  for (int i = 0; i < 2; ++i) st_library_close(&library[i]);

  assert_int_equal(st_kcheck_load_copy(in_folder("none.so"), &expected, &library[0], &kernel[0], &err), STRATA_IO);
  assert_null(library[0]);
  st_kload_close(&module);
}

static void test_header_in_key(void **state) {
  (void)state;
  write_file(in_folder("helper.h"), "#define ANSWER 1\n");
  const char *path = write_file(in_folder("with_header.c"),
                                candidate(SCALAR, "#include \"helper.h\"", "ANSWER"));
  st_module *first = open_good(path);
  write_file(in_folder("helper.h"), "#define ANSWER 2\n");
  st_module *second = open_good(path);
  assert_int_equal(answer_of(first), 1);
  assert_int_equal(answer_of(second), 2);
  assert_string_equal(first->source_sha256, second->source_sha256);
  st_kload_close(&first);
  st_kload_close(&second);
}

static void test_flags(void **state) {
  (void)state;
  const char *code = "#ifndef ASKED\n#define ASKED 0\n#endif";
  const char *path = write_file(in_folder("flags.c"), candidate(SCALAR, code, "ASKED"));
  st_module *plain = open_good(path);
  assert_int_equal(answer_of(plain), 0);
  assert_false(plain->relaxed_math);
  assert_non_null(strstr(plain->flags, "-ffp-contract=off"));
  assert_null(strstr(plain->flags, "-DASKED"));

  write_file(path, candidate("/* isa: scalar\n * flags: -O3 -DASKED=5 */", code, "ASKED"));
  st_module *asked = open_good(path);
  assert_int_equal(answer_of(asked), 5);
  assert_false(asked->relaxed_math);
  assert_non_null(strstr(asked->flags, "-O2"));
  assert_non_null(strstr(asked->flags, "-O3 -DASKED=5"));

  write_file(path, candidate("/* isa: scalar\n * flags: -ffp-contract=fast */", code, "ASKED"));
  st_module *relaxed = open_good(path);
  assert_true(relaxed->relaxed_math);
  st_kload_close(&plain);
  st_kload_close(&asked);
  st_kload_close(&relaxed);
}

static void test_kept_files(void **state) {
  (void)state;
  static const char *const suffixes[] = {".so", ".c", ".cmd", ".log", ".sha256"};
  const char *text = candidate(SCALAR, "#warning \"said by the compiler\"", "3");
  const char *path = write_file(in_folder("kept.c"), text);
  st_module *module = open_good(path);
  char *kept;
  size_t n_bytes;
  struct stat st;
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
    assert_int_equal(st_path_probe(beside(module->path, suffixes[i])), ST_PATH_FILE);
  assert_int_equal(st_file_read(beside(module->path, ".c"), 1 << 20, &kept, &n_bytes, NULL), STRATA_OK);
  assert_string_equal(kept, text);
  st_free(kept);
  assert_int_equal(st_file_read(beside(module->path, ".log"), 1 << 20, &kept, &n_bytes, NULL), STRATA_OK);
  assert_non_null(strstr(kept, "said by the compiler"));
  st_free(kept);
  assert_non_null(strstr(module->command, "-Wl,-Bsymbolic"));
  assert_non_null(strstr(module->command, "-shared"));
  assert_int_equal(stat(cache, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0700);
  st_kload_close(&module);
}

/* A module that is damaged where it lies is made anew. */
static void test_damaged_module(void **state) {
  (void)state;
  const char *path = write_file(in_folder("damaged.c"), candidate(SCALAR, "", "9"));
  st_module *module = open_good(path);
  char *so = strdup(module->path), *bytes;
  size_t n_bytes;
  st_kload_close(&module);
  for (int damage = 0; damage < 4; damage++) {
    assert_int_equal(st_file_read(so, 1 << 24, &bytes, &n_bytes, NULL), STRATA_OK);
    FILE *f = fopen(damage == 3 ? beside(so, ".sha256") : so, "wb");
    bytes[n_bytes / 2] ^= 1;
    if (damage == 1) n_bytes = 1000;
    if (damage >= 2) n_bytes = 0;
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    fclose(f);
    st_free(bytes);
    module = open_good(path);
    assert_true(module->compiled);
    assert_int_equal(answer_of(module), 9);
    st_kload_close(&module);
  }
  module = open_good(path);
  assert_false(module->compiled);
  st_kload_close(&module);
  free(so);
}

/* ---- names --------------------------------------------------------------------------- */

/* A module that called this one instead of its own would answer 1000. */
__attribute__((visibility("default"))) int kload_helper(void);
int kload_helper(void) { return 1000; }

static void test_names_do_not_meet(void **state) {
  (void)state;
  st_module *module[3];
  for (int i = 0; i < 3; i++) {
    char code[160], name[32];
    /* Even a name that asks to be seen. */
    snprintf(code, sizeof code,
             "__attribute__((%s)) int kload_helper(void);\nint kload_helper(void) { return %d; }",
             i < 2 ? "visibility(\"default\"), noinline" : "noinline", 10 + i);
    snprintf(name, sizeof name, "helper_%d.c", i);
    module[i] = open_good(write_file(in_folder(name), candidate(SCALAR, code, "kload_helper()")));
  }
  for (int i = 0; i < 3; i++) assert_int_equal(answer_of(module[i]), 10 + i);
  for (int i = 0; i < 3; i++) st_kload_close(&module[i]);
}

static void test_strange_names(void **state) {
  (void)state;
  static const char *const names[] = {"a b.c", "it's.c", "\"q\".c", "$(touch pwned).c", "`id`;&|.c",
                                      "-o.c", "@x.c", "no_suffix", "new\nline.c"};
  char before[256];
  assert_non_null(getcwd(before, sizeof before));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char answer[16];
    snprintf(answer, sizeof answer, "%d", (int)(500 + i));
    write_file(in_folder(names[i]), candidate(SCALAR, "", answer));
    st_module *module = open_good(in_folder(names[i]));
    assert_int_equal(answer_of(module), 500 + i);
    st_kload_close(&module);
    /* Relative, where the name itself begins the argument. */
    assert_int_equal(chdir(folder), 0);
    module = open_good(names[i]);
    assert_int_equal(chdir(before), 0);
    assert_false(module->compiled);
    st_kload_close(&module);
  }
  assert_int_equal(st_path_probe(in_folder("pwned")), ST_PATH_NONE);
}

/* ---- refusals ------------------------------------------------------------------------ */

static void test_bad_source(void **state) {
  (void)state;
  expect_source_refused("", STRATA_FORMAT, "first line: no CPU level");
  expect_source_refused(candidate("/* gdn */", "", "1"), STRATA_FORMAT, "first line: no CPU level");
  expect_source_refused(candidate("/* isa: */", "", "1"), STRATA_FORMAT, "isa: no CPU level");
  expect_source_refused(candidate("/* isa: Scalar! */", "", "1"), STRATA_FORMAT, "isa: Scalar!");
  expect_source_refused(candidate("/* isa: vax */", "", "1"), STRATA_UNSUPPORTED, "none of its levels");
  expect_source_refused(candidate("/* isa: scalar\n * flags: -o /etc/x */", "", "1"), STRATA_FORMAT,
                        "flags: -o:");
  expect_source_refused(candidate("/* isa: scalar\n * flags: -march=native */", "", "1"),
                        STRATA_FORMAT, "flags: -march=native");
  expect_source_refused(candidate(SCALAR, "int x = ;", "1"), STRATA_FORMAT,
                        "refused.c:3:9: error: expected expression");
  expect_source_refused(candidate(SCALAR, "int x = ;", "1"), STRATA_FORMAT, ".log");
  expect_source_refused(candidate(SCALAR, "#include \"none.h\"", "1"), STRATA_FORMAT,
                        "none.h: No such file");
  expect_source_refused(candidate(SCALAR, "extern int missing(void);", "missing()"), STRATA_FORMAT,
                        "missing");
  const st_kload_request none = {.source = in_folder("none.c"), .cache_dir = cache};
  expect_refused(&none, STRATA_IO, "none.c: No such file");
}

/* The text of a candidate with one word replaced. */
static void expect_descriptor_refused(const char *word, const char *other, strata_status status,
                                      const char *words) {
  char text[2048];
  const char *plain = candidate(SCALAR, "", "1"), *at = strstr(plain, word);
  assert_non_null(at);
  snprintf(text, sizeof text, "%.*s%s%s", (int)(at - plain), plain, other, at + strlen(word));
  expect_source_refused(text, status, words);
}

static void test_bad_descriptor(void **state) {
  (void)state;
  const char *row = "STK_KERNEL_LEVEL(embed, STK_EMBED_CONTRACT, stk_embed_args, STK_EXACT, run);";
  expect_descriptor_refused(row, "void *unused = (void *)run;", STRATA_FORMAT, "no descriptor");
  expect_descriptor_refused("(embed,", "(nothing,", STRATA_FORMAT, "op nothing: an op of this program");
  expect_descriptor_refused("STK_EMBED_CONTRACT,", "STK_EMBED_CONTRACT + 6,", STRATA_FORMAT,
                            "contract 7 of embed: 1 expected");
  expect_descriptor_refused("stk_embed_args, STK", "char, STK", STRATA_FORMAT, "args of 1 bytes");
  expect_descriptor_refused("STK_EXACT", "(stk_class)9", STRATA_FORMAT, "numerics 9");
  expect_descriptor_refused(", run)", ", NULL)", STRATA_FORMAT, "an empty field");
  expect_descriptor_refused("STK_KERNEL_LEVEL(embed,", "STK_KERNEL(embed, x, \"avx512\",",
                            STRATA_FORMAT, "isa avx512: scalar, for which it was compiled");
  expect_descriptor_refused("#include \"embed/embed.h\"",
                            "#include \"embed/embed.h\"\n#undef STK_ABI\n#define STK_ABI 99u",
                            STRATA_FORMAT, "ABI 99: 1 expected");
  const char *path = write_file(in_folder("other_op.c"), candidate(SCALAR, "", "1"));
  const st_kload_request request = {
      .source = path, .op = "linear", .cache_dir = cache, .include_dir = tree};
  expect_refused(&request, STRATA_ARG, "op embed: linear expected");
}

static void test_levels(void **state) {
  (void)state;
  const char *path = write_file(in_folder("levels.c"),
                                candidate("/* isa: scalar avx2 avx512 neon vax */", "", "1"));
  st_module *module = open_good(path);
  assert_string_equal(module->kernel->isa, st_cpu_level_name(st_cpu_best()));
  st_kload_close(&module);
  st_kload_request request = {.source = path, .cache_dir = cache, .include_dir = tree};
  request.level = "vax";
  expect_refused(&request, STRATA_UNSUPPORTED, "level vax: this CPU does not have it");
  request.level = "mmx";
  expect_refused(&request, STRATA_ARG, "level mmx: one of its first comment expected");
}

/* What -Ofast links in changes the mode on x86; a constructor of one's own does on
 * every machine. */
static void test_floating_point_mode(void **state) {
  (void)state;
  const st_fpmode before = st_fpmode_get();
#if defined(__x86_64__)
  const char *change = "#include <immintrin.h>\n"
                       "__attribute__((constructor)) static void change(void)"
                       " { _mm_setcsr(_mm_getcsr() | 0x8040); }";
#elif defined(__aarch64__)
  const char *change = "__attribute__((constructor)) static void change(void)"
                       " { __asm__ volatile(\"msr fpcr, %0\" : : \"r\"(1ul << 24)); }";
#else
  const char *change = NULL;
#endif
  if (!change) skip();
  expect_source_refused(candidate(SCALAR, change, "1"), STRATA_UNSUPPORTED, "floating-point mode");
  assert_true(st_fpmode_equal(before, st_fpmode_get()));

  /* Compilers differ in whether they link that code into shared objects; where one
   * does, the module is refused, and elsewhere it says that its results may differ. */
  const char *path = write_file(in_folder("fast.c"), candidate("/* isa: scalar\n * flags: -Ofast */", "", "1"));
  st_module *module;
  strata_error err;
  strata_status status = open_as(path, NULL, &module, &err);
  if (status == STRATA_OK) assert_true(module->relaxed_math);
  else assert_non_null(strstr(err.message, "floating-point mode: loading changes it"));
  assert_true(st_fpmode_equal(before, st_fpmode_get()));
  st_kload_close(&module);
}

static void test_bad_cache(void **state) {
  (void)state;
  const char *path = write_file(in_folder("plain.c"), candidate(SCALAR, "", "1"));
  st_kload_request request = {.source = path, .include_dir = tree};
  request.cache_dir = in_folder("open_cache");
  assert_int_equal(mkdir(request.cache_dir, 0700), 0);
  assert_int_equal(chmod(request.cache_dir, 0770), 0);
  expect_refused(&request, STRATA_STATE, "mode 0770: a folder that only its owner can write to");
  assert_int_equal(chmod(request.cache_dir, 0702), 0);
  expect_refused(&request, STRATA_STATE, "mode 0702");
  request.cache_dir = path;
  expect_refused(&request, STRATA_IO, "a folder");
  request.cache_dir = "";
  expect_refused(&request, STRATA_IO, "a folder");
  if (geteuid() == 0) {
    request.cache_dir = in_folder("foreign");
    assert_int_equal(mkdir(request.cache_dir, 0700), 0);
    assert_int_equal(chown(request.cache_dir, 65534, 65534), 0);
    expect_refused(&request, STRATA_STATE, "belongs to user 65534");
  }
}

static const char *write_script(const char *name, const char *text) {
  const char *path = write_file(in_folder(name), text);
  assert_int_equal(chmod(path, 0700), 0);
  return path;
}

static void test_bad_compiler(void **state) {
  (void)state;
  const char *path = write_file(in_folder("plain.c"), candidate(SCALAR, "", "1"));
  st_kload_request request = {.source = path, .cache_dir = cache, .include_dir = tree};
  request.compiler = "no-such-compiler";
  expect_refused(&request, STRATA_IO, "compiler no-such-compiler: it cannot be run: a C compiler");
  request.compiler = write_script("fails", "#!/bin/sh\nexit 3\n");
  expect_refused(&request, STRATA_IO, "exit code 3: a C compiler expected");
  request.compiler = write_script("silent", "#!/bin/sh\n[ $1 = --version ] || { kill -9 $$; }\n");
  expect_refused(&request, STRATA_FORMAT, "does not compile");
}

/* A compiler that takes too long is killed, and so is what it has started: the pipe
 * that its child holds has no writer left. */
static void test_slow_compiler(void **state) {
  (void)state;
  char script[512];
  const char *fifo = in_folder("fifo");
  assert_int_equal(mkfifo(fifo, 0600), 0);
  int fd = open(fifo, O_RDONLY | O_NONBLOCK);
  snprintf(script, sizeof script,
           "#!/bin/sh\n[ $1 = --version ] && exit\necho >%s\nsleep 100 3>%s\n", fifo, fifo);
  const st_kload_request request = {.source = write_file(in_folder("slow.c"), candidate(SCALAR, "", "1")),
                                    .cache_dir = cache,
                                    .include_dir = tree,
                                    .compiler = write_script("slow", script),
                                    .seconds = 1};
  expect_refused(&request, STRATA_LIMIT, "stopped after 1 s");
  struct pollfd end = {.fd = fd, .events = POLLIN};
  char byte;
  assert_int_equal(read(fd, &byte, 1), 1); /* It had got that far. */
  end.revents = 0;
  assert_int_equal(poll(&end, 1, 20000), 1);
  assert_true(end.revents & POLLHUP);
  close(fd);
}

static void test_default_headers(void **state) {
  (void)state;
  const char *path = write_file(in_folder("default.c"), candidate(SCALAR, "", "77"));
  const st_kload_request request = {.source = path, .cache_dir = cache};
  st_module *module;
  strata_error err;
  if (st_kload_open(&request, &module, &err) != STRATA_OK) fail_msg("%s", err.message);
  assert_int_equal(answer_of(module), 77);
  st_kload_close(&module);
  st_kload_close(&module);
}

/* ---- several at once ------------------------------------------------------------------- */

/* Runs work in three processes at once; returns how many said yes, or -1 if one failed. */
static int in_processes(int (*work)(void)) {
  enum { N = 3 };
  pid_t pid[N];
  int n = 0;
  for (int i = 0; i < N; i++)
    if ((pid[i] = fork()) == 0) _exit(work());
  for (int i = 0; i < N; i++) {
    int wait_status;
    assert_int_equal(waitpid(pid[i], &wait_status, 0), pid[i]);
    if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) > 1) n = -N;
    else n += WEXITSTATUS(wait_status);
  }
  return n < 0 ? -1 : n;
}

/* 1: it compiled the module, 0: it found it. */
static int open_shared(void) {
  const st_kload_request request = {.source = in_folder("shared.c"), .cache_dir = in_folder("shared")};
  st_module *module;
  if (st_kload_open(&request, &module, NULL) != STRATA_OK) return 2;
  return answer_of(module) != 21 ? 3 : module->compiled;
}

static int write_shared_tree(void) {
  return st_source_write_tree(in_folder("shared_tree"), NULL) == STRATA_OK ? 0 : 2;
}

static void test_processes(void **state) {
  (void)state;
  write_file(in_folder("shared.c"), candidate(SCALAR, "", "21"));
  assert_int_equal(in_processes(open_shared), 1);
  assert_int_equal(in_processes(write_shared_tree), 0);
}

/* ---- failing memory -------------------------------------------------------------------- */

/* A compiler that copies what the real one has made, so that many runs cost little. */
static const char *copying_compiler(void) {
  static char script[1024];
  snprintf(script, sizeof script,
           "#!/bin/sh\n"
           "[ $1 = --version ] && exit\n"
           "while [ $# -gt 1 ]; do\n"
           "  [ $1 = -E ] && made=%s/made.i\n"
           "  [ $1 = -o ] && cp ${made:-%s/made.so} $2\n"
           "  shift\n"
           "done\n",
           folder, folder);
  return write_script("copying", script);
}

static void test_failing_memory(void **state) {
  (void)state;
  const char *path = write_file(in_folder("memory.c"), candidate(SCALAR, "", "4"));
  st_module *module = open_good(path);
  const char *made[] = {"cp", module->path, in_folder("made.so"), NULL};
  run_program(made);
  write_file(in_folder("made.i"), "int x;\n");
  st_kload_close(&module);
  const st_kload_request request = {
      .source = path, .cache_dir = cache, .include_dir = tree, .compiler = copying_compiler()};
  int failures = 0;
  for (;; failures++) {
    strata_error err = {0};
    st_mem_fail_at(failures);
    strata_status status = st_kload_open(&request, &module, &err);
    st_mem_fail_at(-1);
    if (status == STRATA_OK) break;
    assert_null(module);
    if (status != STRATA_NOMEM) fail_msg("allocation %d: %s", failures, err.message);
  }
  assert_true(module->compiled);
  assert_int_equal(answer_of(module), 4);
  assert_true(failures > 100);
  st_kload_close(&module);
}

static void test_write_tree(void **state) {
  (void)state;
  char path[256];
  const char *other = in_folder("other_tree");
  struct stat first, second;
  snprintf(path, sizeof path, "%s/kernels/common/k_simd.h", other);
  for (int failures = 0;; failures++) {
    st_mem_fail_at(failures);
    strata_status status = st_source_write_tree(other, NULL);
    st_mem_fail_at(-1);
    if (status == STRATA_OK) break;
    assert_int_equal(status, STRATA_NOMEM);
  }
  assert_int_equal(stat(path, &first), 0);
  assert_int_equal(st_source_write_tree(other, NULL), STRATA_OK);
  assert_int_equal(stat(path, &second), 0);
  assert_int_equal(first.st_ino, second.st_ino);
  /* A file that is not what it should be comes back. */
  write_file(path, "int damaged;\n");
  assert_int_equal(st_source_write_tree(other, NULL), STRATA_OK);
  assert_int_equal(stat(path, &second), 0);
  assert_int_equal(first.st_size, second.st_size);
  assert_int_equal(st_source_write_tree(path, NULL), STRATA_IO);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_bytes),      cmocka_unit_test(test_tagged_variant),
      cmocka_unit_test(test_cache),           cmocka_unit_test(test_load_copy), cmocka_unit_test(test_header_in_key),
      cmocka_unit_test(test_flags),           cmocka_unit_test(test_kept_files),
      cmocka_unit_test(test_damaged_module),  cmocka_unit_test(test_names_do_not_meet),
      cmocka_unit_test(test_strange_names),   cmocka_unit_test(test_bad_source),
      cmocka_unit_test(test_bad_descriptor),  cmocka_unit_test(test_levels),
      cmocka_unit_test(test_floating_point_mode), cmocka_unit_test(test_bad_cache),
      cmocka_unit_test(test_bad_compiler),    cmocka_unit_test(test_slow_compiler),
      cmocka_unit_test(test_default_headers),
      cmocka_unit_test(test_processes),
      cmocka_unit_test(test_failing_memory),  cmocka_unit_test(test_write_tree),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
