/* The zoo: kernels of gdn_post that are wrong, each in its own way, made of the shipped
 * source. The laboratory must find each out and say what is wrong with it, in the word
 * meant for it; and must let the good one through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/st_mem.h"
#include "gdn_post/gdn_post.h"
#include "kreg/st_kreg.h"
#include "kreg/st_source.h"
#include "lab/lab_ab.h"
#include "qsa_flash/qsa_flash.h"
#include "os/st_dir.h"
#include "os/st_file.h"
#include "os/st_spawn.h"

/* In front of every animal: it is compiled in a quarter of the time, and no less wrong. */
#define FIRST_COMMENT "/* isa: scalar\n * flags: -O0 */\n"

static char folder[128];

static void write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

static void remove_tree(const char *path) {
  const char *const words[] = {"rm", "-rf", path};
  st_argv argv = {0};
  st_spawn_result result;
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
    assert_int_equal(st_argv_add(&argv, words[i], NULL), STRATA_OK);
  assert_int_equal(st_spawn(&argv, 60, &result, NULL), STRATA_OK);
  st_spawn_result_release(&result);
  st_argv_release(&argv);
}

static int set_up(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/strata-zoo-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  remove_tree(folder);
  return 0;
}

/* The shipped kernel with other code around its run: `code` is the body of
 * animal(a, args, part, n_parts). */
static const char *make_animal(const char *code) {
  static char path[256], text[65536];
  st_source source;
  assert_true(st_source_find("gdn_post/gdn_post.c", &source));
  const char *last = strstr(source.text, "STK_KERNEL_LEVEL");
  assert_non_null(last);
  snprintf(text, sizeof text,
           FIRST_COMMENT "%.*s\n#include <fenv.h>\n#include <math.h>\n#include <string.h>\n"
           "static void animal(const void *args, int32_t part, int32_t n_parts) {\n"
           "  const stk_gdn_post_args *a = args;\n"
           "  const int64_t n = (int64_t)a->n_tokens * a->v_heads * a->v_dim;\n"
           "  (void)a, (void)n;\n%s\n}\n"
           "STK_KERNEL_LEVEL(gdn_post, STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, animal);\n",
           (int)(last - source.text), source.text, code);
  snprintf(path, sizeof path, "%s/animal.c", folder);
  write_text(path, text);
  return path;
}

/* How long a trial goes on: one that hangs is killed after `deadline` seconds; many
 * rounds take some five on a slow machine. */
typedef struct trial_length {
  int rounds, calls;
  double deadline;
} trial_length;
static const trial_length short_trial = {4, 12, 3}, long_trial = {40, 36, 60};

/* Asks for a verdict on a candidate at small sizes. */
static lab_word word_of(const char *path, trial_length length, char *reason, size_t n_bytes, lab_verdict *verdict) {
  static const int32_t f32[] = {0, 1}, tokens[] = {37};
  static char cache[160], directory[160], rule[160], rounds_rule[80];
  strata_error err = {0};
  lab_result r;
  snprintf(cache, sizeof cache, "%s/cache", folder);
  snprintf(directory, sizeof directory, "%s/report", folder);
  snprintf(rule, sizeof rule, "%s/rule.json", folder);
  snprintf(rounds_rule, sizeof rounds_rule, "{\"min_rounds\": %d, \"max_rounds\": %d, \"calls\": %d}",
           length.rounds, length.rounds, length.calls);
  write_text(rule, rounds_rule);
  lab_request q = {.kind = LAB_AB, .ops = {&stk_gdn_post_op}, .base = {"scalar"}, .cand = {path}, .n_stages = 1,
                   .tokens = tokens, .n_tokens = 1, .f32 = f32, .n_f32 = 2,
                   .settings = {.items = {{"Hv", 2}}, .n = 1},
                   .directory = directory, .rule = rule, .tools = {.cache_dir = cache, .seconds = 60}, .deadline = length.deadline,
                   .n_threads = 1, .cache_bytes = 1 << 20, .seed = 21};
  remove_tree(directory);
  if (lab_ab_run(&q, &r, &err) != STRATA_OK) {
    snprintf(reason, n_bytes, "%s", err.message);
    *verdict = LAB_NO_VERDICT;
    lab_result_release(&r);
    return LAB_WORDS;
  }
  lab_word word = r.stages[0].cand_oracle.word;
  for (int32_t i = 0; i < r.n_checked && word == LAB_PASS; ++i) word = r.stages[0].parity[i].word;
  *verdict = r.verdict;
  snprintf(reason, n_bytes, "%s", r.reason);
  lab_result_release(&r);
  return word;
}

static const struct animal {
  const char *name, *code;
  lab_word word;
  const char *detail; /* is in the reason; NULL: whatever */
} zoo[] = {
    {"writes left of an output",
     "run(args, part, n_parts); if (a->outputs & 2) ((uint16_t *)a->yh)[-3] = 7;", LAB_WROTE_OUTSIDE,
     "yh, 6 bytes before its start"},
    {"writes right of an output",
     "run(args, part, n_parts); if (a->outputs & 2) a->yh[n + 2] = 7;", LAB_WROTE_OUTSIDE, "yh, 4 bytes past its end"},
    {"writes far past the end", "run(args, part, n_parts); if (a->outputs & 2) a->yh[n + 400] = 7;", LAB_CRASHED,
     "past the end of yh"},
    {"leaves the last head unwritten",
     "stk_gdn_post_args b = *a; uint16_t keep[512]; int64_t d = a->v_dim;\n"
     "if (a->outputs & 2) memcpy(keep, a->yh + n - d, 2 * (size_t)d);\n"
     "run(&b, part, n_parts);\n"
     "if (a->outputs & 2 && part == n_parts - 1) memcpy(a->yh + n - d, keep, 2 * (size_t)d);",
     LAB_LEFT_UNWRITTEN, "yh is unwritten"},
    {"returns the previous call's output",
     "static uint16_t old[1 << 20]; static uint16_t now[1 << 20];\n"
     "if (n > 1 << 20 || !(a->outputs & 2)) { run(args, part, n_parts); return; }\n"
     "stk_gdn_post_args b = *a; b.yh = now; run(&b, part, n_parts);\n"
     "if (part == 0) { memcpy(a->yh, old, 2 * (size_t)n); memcpy(old, now, 2 * (size_t)n); }",
     LAB_STALE, NULL},
    {"writes only on its first call",
     "static int calls; if (part == n_parts - 1) ++calls; if (calls <= 1) run(args, part, n_parts);",
     LAB_FIRST_CALL_ONLY, NULL},
    {"NaN everywhere",
     "run(args, part, n_parts); for (int64_t i = 0; i < n; ++i) { if (a->outputs & 1) a->y[i] = NAN;"
     " if (a->outputs & 2) a->yh[i] = 0x7e00; }",
     LAB_NAN, "is NaN"},
    {"wrong by one bit in one place",
     "run(args, part, n_parts); if (a->outputs & 2 && part == 0) a->yh[n / 3] ^= 1;", LAB_WRONG_RESULT, "1 of "},
    {"depends on the part count",
     "run(args, part, n_parts); if (a->outputs & 2 && n_parts > 1 && part == 0) a->yh[0] ^= 1;", LAB_ON_PARTS, NULL},
    {"depends on the contents of padding",
     "run(args, part, n_parts); if (a->outputs & 2 && part == 0 && isnan(((const float *)a->o)[n])) a->yh[0] ^= 1;",
     LAB_ON_PADDING, NULL},
    {"depends on old output",
     "static int odd; if (!(a->outputs & 2)) { run(args, part, n_parts); return; }\n"
     "if (part == n_parts - 1) odd = ((const uint8_t *)a->yh)[2 * n - 1] == 0x5a;\n"
     "run(args, part, n_parts); if (odd && part == 0) a->yh[0] ^= 1;",
     LAB_ON_OLD_OUTPUT, NULL},
    {"leaks the rounding mode", "run(args, part, n_parts); fesetround(FE_UPWARD);", LAB_FP_MODE, NULL},
    {"leaks the flush mode", "run(args, part, n_parts);\n#if defined(__x86_64__)\n"
                             "__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);\n#else\n"
                             "fesetround(FE_UPWARD);\n#endif",
     LAB_FP_MODE, NULL},
    {"crashes", "*(volatile int *)8 = 1;", LAB_CRASHED, "SIGSEGV"},
    {"exits", "extern void _exit(int); _exit(0);", LAB_CRASHED, "exit"},
    {"hangs", "for (;;) if (((volatile const stk_gdn_post_args *)a)->n_tokens < 0) return;", LAB_HUNG, NULL},
    {"not repeatable",
     "static int calls; run(args, part, n_parts); if (a->outputs & 2 && part == 0 && ++calls == 2) a->yh[0] ^= 1;",
     LAB_NOT_REPEATABLE, NULL},
    {"changes an input", "run(args, part, n_parts); ((float *)(uintptr_t)a->z)[0] += 1;", LAB_WROTE_INPUT, "byte 0 of z"},
    {"changes an input and puts it back",
     "volatile float *z = (volatile float *)(uintptr_t)a->z; const float keep = z[3]; z[3] = 7;\n"
     "run(args, part, n_parts); z[3] = keep;",
     LAB_WROTE_INPUT, "byte 12 of z"},
    {"writes beside an input", "run(args, part, n_parts); ((float *)(uintptr_t)a->z)[n + 2] = 7;", LAB_WROTE_OUTSIDE,
     "8 bytes past the end of z"},
    {"flushes denormals while it computes", "\n#if defined(__x86_64__)\n"
                                            "const unsigned mode = __builtin_ia32_stmxcsr();\n"
                                            "__builtin_ia32_ldmxcsr(mode | 0x8040); run(args, part, n_parts);\n"
                                            "__builtin_ia32_ldmxcsr(mode);\n#else\n"
                                            "run(args, part, n_parts);\n"
                                            "if (a->outputs & 1) for (int64_t i = 0; i < n; ++i)"
                                            " if (fabsf(a->y[i]) < 0x1p-126f) a->y[i] = 0;\n#endif",
     LAB_WRONG_RESULT, "y differs"},
    {"remembers results by address",
     "static const void *last; static uint16_t old[1 << 16];\n"
     "if (n > 1 << 16 || a->outputs != 2) { run(args, part, n_parts); return; }\n"
     "if (part > 0) return;\n"
     "if (a->o == last) { memcpy(a->yh, old, 2 * (size_t)n); return; }\n"
     "for (int32_t i = 0; i < n_parts; ++i) run(args, i, n_parts);\n"
     "memcpy(old, a->yh, 2 * (size_t)n); last = a->o;",
     LAB_STALE, NULL},
    {"computes in memory that all parts share",
     "static volatile int32_t mine; extern int usleep(unsigned); mine = part; usleep(2000);\n"
     "run(args, part, n_parts); if (mine != part && a->outputs & 2) a->yh[0] ^= 1;",
     LAB_ON_OTHER_PARTS, NULL},
    {"depends on a part count that only timings have",
     "run(args, part, n_parts); if (a->outputs & 2 && n_parts % 4 == 0 && part == 0) a->yh[0] ^= 1;", LAB_ON_PARTS, NULL},
    {"leaves the flush mode on threads of the pool", "run(args, part, n_parts);\n"
                                                     "if (n_parts % 4 == 0) {\n#if defined(__x86_64__)\n"
                                                     "__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);\n"
                                                     "#else\nfesetround(FE_UPWARD);\n#endif\n}",
     LAB_FP_MODE, NULL},
};

/* Pass every check before the timing, in which each of twelve copies is called three times
 * a batch. */
static const struct animal late_ones[] = {
    {"stops working after many calls",
     "static int calls; if (part == 0) ++calls; if (calls < 60) run(args, part, n_parts);", LAB_PASS, "a timed batch"},
    {"leaves the rounding mode after many calls",
     "static int calls; if (part == 0) ++calls; run(args, part, n_parts); if (calls > 60) fesetround(FE_UPWARD);",
     LAB_PASS, "a timed batch"},
};

static bool is_judged_right(const struct animal *animal, trial_length length) {
  char reason[600];
  lab_verdict verdict;
  lab_word word = word_of(make_animal(animal->code), length, reason, sizeof reason, &verdict);
  bool right = word == animal->word && verdict == LAB_WRONG && (!animal->detail || strstr(reason, animal->detail));
  if (!right)
    print_message("%s: %s expected; %s, %s: %s\n", animal->name, lab_word_name(animal->word),
                  word < LAB_WORDS ? lab_word_name(word) : "error", lab_verdict_name(verdict), reason);
  return right;
}

static void test_zoo(void **state) {
  (void)state;
  int n_bad = 0;
  for (size_t i = 0; i < sizeof zoo / sizeof *zoo; ++i) n_bad += !is_judged_right(&zoo[i], short_trial);
  assert_int_equal(n_bad, 0);
}

static void test_late_ones(void **state) {
  (void)state;
  int n_bad = 0;
  for (size_t i = 0; i < sizeof late_ones / sizeof *late_ones; ++i)
    n_bad += !is_judged_right(&late_ones[i], long_trial);
  assert_int_equal(n_bad, 0);
}

static void test_the_good_one_passes(void **state) {
  (void)state;
  char reason[600];
  lab_verdict verdict;
  assert_int_equal(word_of(make_animal("run(args, part, n_parts);"), short_trial, reason, sizeof reason, &verdict), LAB_PASS);
  assert_int_not_equal(verdict, LAB_WRONG);
}

/* ---- refused before anything runs, and nothing left behind ------------------------ */

static void expect_refused(const char *path, const char *words) {
  char reason[600], directory[160];
  lab_verdict verdict;
  assert_int_equal(word_of(path, short_trial, reason, sizeof reason, &verdict), LAB_WORDS);
  if (!strstr(reason, words)) fail_msg("%s expected: %s", words, reason);
  snprintf(directory, sizeof directory, "%s/report", folder);
  assert_int_equal(st_path_probe(directory), ST_PATH_NONE);
}

static void test_refused(void **state) {
  (void)state;
  char path[200];
  snprintf(path, sizeof path, "%s/refused.c", folder);
  expect_refused("scalar", "a candidate that differs from the base expected");
  expect_refused("no_such_variant", "a variant of gdn_post");
  expect_refused("/no/such/file.c", "a C file expected");
  write_text(path, "/* isa: scalar */\nint x = ;\n");
  expect_refused(path, "error");
  write_text(path, "/* isa: scalar */\n#include \"embed/embed.h\"\nstatic void run(const void *a, int32_t p, int32_t n) "
                   "{ (void)a, (void)p, (void)n; }\nSTK_KERNEL_LEVEL(embed, STK_EMBED_CONTRACT, stk_embed_args, STK_EXACT, run);\n");
  expect_refused(path, "gdn_post");
  write_text(path, "/* isa: scalar */\n#include \"gdn_post/gdn_post.h\"\nstatic void run(const void *a, int32_t p, int32_t n) "
                   "{ (void)a, (void)p, (void)n; }\n__attribute__((constructor)) static void go(void) { __builtin_trap(); }\n"
                   "STK_KERNEL_LEVEL(gdn_post, STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_EXACT, run);\n");
  expect_refused(path, "as it was loaded");
  write_text(path, "/* isa: scalar */\n#include \"gdn_post/gdn_post.h\"\nstatic void run(const void *a, int32_t p, int32_t n) "
                   "{ (void)a, (void)p, (void)n; }\n"
                   "STK_KERNEL_LEVEL(gdn_post, STK_GDN_POST_CONTRACT, stk_gdn_post_args, STK_FAST, run);\n");
  expect_refused(path, "has no bound");
}

/* ---- what must not be read -------------------------------------------------------- */

typedef struct pick_args {
  const float *x;
  const int32_t *ids;
  float *y;
  int32_t n;
} pick_args;

static const char *check(const void *args) {
  (void)args;
  return NULL;
}

static int32_t tensors(void *args, stk_tensor *tensors) {
  pick_args *a = args;
  tensors[0] = STK_TENSOR("x", a->x, a->n, STK_F32, STK_IN, STK_FILL_UNIFORM, -1, 1);
  tensors[1] = STK_TENSOR("ids", a->ids, a->n, STK_I32, STK_IN, STK_FILL_UNREAD, 0, 0);
  tensors[2] = STK_TENSOR("y", a->y, a->n, STK_F32, STK_OUT, STK_FILL_NONE, 0, 0);
  return 3;
}

static void work(const void *args, stk_work *w) {
  (void)args;
  (void)w;
}

static void copy(const void *args, int32_t part, int32_t n_parts) {
  const pick_args *a = args;
  int64_t begin, end;
  stk_slice(a->n, 1, part, n_parts, &begin, &end);
  for (int64_t i = begin; i < end; ++i) a->y[i] = a->x[i];
}

static void copy_by_ids(const void *args, int32_t part, int32_t n_parts) {
  const pick_args *a = args;
  copy(args, part, n_parts);
  if (part == 0 && a->ids[3] < 0) a->y[0] += 1;
}

static const pick_args cases[] = {{.n = 100}};
extern const stk_kernel stk_pick__oracle;
const stk_kernel stk_pick__oracle = STK_KERNEL_FIELDS(pick, oracle, "scalar", 1, pick_args, STK_EXACT, copy);
STK_OP(pick, 1, pick_args, NULL);

static void test_reads_what_it_must_not(void **state) {
  (void)state;
  const stk_kernel reads = STK_KERNEL_FIELDS(pick, reads, "scalar", 1, pick_args, STK_EXACT, copy_by_ids);
  lab_trial trial = {.op = &stk_pick_op, .shape = cases, .seed = 1, .base = lab_runner_of(&stk_pick__oracle), .cand = lab_runner_of(&stk_pick__oracle)};
  lab_parity parity = {0};
  assert_int_equal(lab_parity_check(&trial, &parity, NULL), STRATA_OK);
  assert_int_equal(parity.word, LAB_PASS);
  trial.cand = lab_runner_of(&reads);
  assert_int_equal(lab_parity_check(&trial, &parity, NULL), STRATA_OK);
  assert_int_equal(parity.word, LAB_ON_UNREAD);
}

static const stk_kernel *flash;

/* Under budget qsa_flash derives its list; this one looks at it all the same. */
static void derive_and_look(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_flash_args *a = args;
  flash->run(args, part, n_parts);
  if (part == 0 && a->n_ids[0] == -1 && a->ids[0] < 0) a->out[0] += 1;
}

static void test_reads_a_list_that_it_should_derive(void **state) {
  (void)state;
  const lab_settings settings = {
      .items = {{"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"B", 64}, {"pos0", 0}, {"T", 37}, {"f16", 0}}, .n = 7};
  const stk_kernel reads = STK_KERNEL_FIELDS(qsa_flash, reads, "scalar", STK_QSA_FLASH_CONTRACT,
                                             stk_qsa_flash_args, STK_EXACT, derive_and_look);
  lab_args args;
  lab_parity parity = {0};
  flash = st_kreg_variant(ST_OP_qsa_flash, 0);
  assert_string_equal(flash->isa, "scalar");
  assert_int_equal(lab_args_make(&stk_qsa_flash_op, &settings, &args, NULL), STRATA_OK);
  lab_trial trial = {.op = &stk_qsa_flash_op, .shape = args.bytes, .seed = 21,
                     .base = lab_runner_of(stk_qsa_flash_op.oracle), .cand = lab_runner_of(flash)};
  assert_int_equal(lab_parity_check(&trial, &parity, NULL), STRATA_OK);
  assert_int_equal(parity.word, LAB_PASS);
  trial.cand = lab_runner_of(&reads);
  assert_int_equal(lab_parity_check(&trial, &parity, NULL), STRATA_OK);
  assert_int_equal(parity.word, LAB_ON_UNREAD);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_zoo), cmocka_unit_test(test_late_ones),
      cmocka_unit_test(test_the_good_one_passes),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_reads_what_it_must_not),
      cmocka_unit_test(test_reads_a_list_that_it_should_derive),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
