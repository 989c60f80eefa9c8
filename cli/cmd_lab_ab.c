/* strata lab ab, aa and pipeline: from sources to a verdict. */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli_lab.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "kreg/st_kreg.h"
#include "lab/lab_ab_json.h"
#include "lab/lab_cuda_bench.h"
#include "lab/lab_report.h"
#include "os/st_file.h"

enum { NAME_BYTES = 1024, COMMAND_MAX = 40 };

typedef struct ab_args {
  const char *op, *base, *cand, *base_dir, *cand_dir, *stages;
  const char *tokens, *f32, *set, *rule, *report, *compiler, *backend;
  float deadline;
  int32_t threads;
  uint64_t seed;
  cli_ceilings_args ceilings;
  bool json;
} ab_args;

static const ab_args ab_defaults = {.deadline = 60, .seed = 21, .backend = "cpu", .stages = "gdn_pre,gdn_scan,gdn_post"};

#define OPTIONS_COMMON                                                                              \
  {0, "T", "LIST", CLI_TEXT, offsetof(ab_args, tokens), 0, 0, NULL,                                 \
   "numbers of tokens to time (default 512,1024,2048); these and 1,3,37,300 are checked"},          \
      {0, "f32", "LIST", CLI_TEXT, offsetof(ab_args, f32), 0, 0, NULL,                              \
       "0, 1 or 0,1: without and with the f32 output, where an op has it (default 0,1)"},           \
      {0, "set", "LIST", CLI_TEXT, offsetof(ab_args, set), 0, 0, NULL,                              \
       "other sizes than the released model's, such as Hk=4,Hv=8,pos0=1"},                          \
      {0, "rule", "FILE", CLI_TEXT, offsetof(ab_args, rule), 0, 0, NULL,                            \
       "what makes a verdict (default: a win is more than 3 % and outside the noise)"},             \
      {0, "report", "DIR", CLI_TEXT, offsetof(ab_args, report), 0, 0, NULL,                         \
       "where the report goes; must not exist yet (default: a new folder here)"},                   \
      {0, "deadline", "S", CLI_REAL, offsetof(ab_args, deadline), 0.1, 86400, NULL,                 \
       "seconds after which a check, or the timing of one size, is killed (default 60)"},           \
      {0, "backend", "cpu|cuda", CLI_CHOICE, offsetof(ab_args, backend), 0, 0, "cpu|cuda",          \
       "where the kernels run: C on the CPU, or CUDA C on the first GPU (default cpu)"},            \
      {0, "seed", "S", CLI_SEED, offsetof(ab_args, seed), 0, 0, NULL,                               \
       "of the inputs (default 21)"},                                                               \
      {0, "cc", "PROG", CLI_TEXT, offsetof(ab_args, compiler), 0, 0, NULL,                          \
       "the C compiler (default cc)"},                                                              \
      CLI_OPTIONS_CEILINGS(ab_args), CLI_OPTION_THREADS(ab_args), CLI_OPTION_JSON(ab_args)

static const cli_option ab_options[] = {
    {0, "op", "OP", CLI_TEXT, offsetof(ab_args, op), 0, 0, NULL, "the op (strata lab list)"},
    {0, "base", "V|FILE", CLI_TEXT, offsetof(ab_args, base), 0, 0, NULL,
     "what to compare with: a variant or a C file (default: the variant this machine takes)"},
    {0, "cand", "V|FILE", CLI_TEXT, offsetof(ab_args, cand), 0, 0, NULL, "the candidate, likewise"},
    OPTIONS_COMMON,
};
static const cli_option aa_options[] = {
    {0, "op", "OP", CLI_TEXT, offsetof(ab_args, op), 0, 0, NULL, "the op (strata lab list)"},
    {0, "base", "V|FILE", CLI_TEXT, offsetof(ab_args, base), 0, 0, NULL,
     "a variant or a C file (default: the variant this machine takes)"},
    OPTIONS_COMMON,
};
static const cli_option pipeline_options[] = {
    {0, "stages", "OPS", CLI_TEXT, offsetof(ab_args, stages), 0, 0, NULL,
     "the ops in order (default gdn_pre,gdn_scan,gdn_post)"},
    {0, "base-dir", "DIR", CLI_TEXT, offsetof(ab_args, base_dir), 0, 0, NULL,
     "has OP.c for some of the stages; the others take this machine's variant"},
    {0, "cand-dir", "DIR", CLI_TEXT, offsetof(ab_args, cand_dir), 0, 0, NULL,
     "has OP.c for some of the stages; the others take the base's source"},
    OPTIONS_COMMON,
};

/* Everything that a request points into. */
typedef struct ab_job {
  const ab_args *args;
  lab_request request;
  cli_ids tokens, f32;
  char names[2][LAB_STAGES_MAX][NAME_BYTES]; /* base's, cand's */
  char directory[NAME_BYTES];
  const char *command[COMMAND_MAX];
  int32_t n_command;
  lab_ceilings ceilings;
  st_kernel_set chosen;
} ab_job;

/* ---- the request ------------------------------------------------------------- */

static strata_status find_op(const char *name, size_t n_bytes, const stk_op **out, strata_error *err) {
  char word[64];
  snprintf(word, sizeof word, "%.*s", (int)n_bytes, name);
  int op = st_kreg_op_by_name(word);
  if (op < 0) ST_FAIL(err, ARG, "%s: the name of an op expected (strata lab list)", word);
  *out = st_kreg_op((st_op)op);
  return STRATA_OK;
}

/* The one that this machine takes; a name that freezing refuses if there is none. */
static const char *chosen_variant(const ab_job *job, const stk_op *op) {
  const stk_cuda_kernel *gpu = st_cuda_kernel_of(op->name, 0);
  if (job->request.cuda) return gpu ? gpu->variant : "cuda";
  return job->chosen.kernel[st_kreg_op_by_name(op->name)]->variant;
}

static strata_status one_stage(ab_job *job, lab_kind kind, strata_error *err) {
  lab_request *q = &job->request;
  const ab_args *args = job->args;
  if (!args->op) ST_FAIL(err, ARG, "--op: the name of an op expected (strata lab list)");
  ST_TRY(find_op(args->op, strlen(args->op), &q->ops[0], err));
  if (kind == LAB_AB && !args->cand) ST_FAIL(err, ARG, "--cand: a variant of %s or a C file expected", args->op);
  q->base[0] = args->base ? args->base : chosen_variant(job, q->ops[0]);
  q->cand[0] = kind == LAB_AB ? args->cand : NULL;
  q->n_stages = 1;
  return STRATA_OK;
}

/* DIR/OP.c (OP.cu) if it is there, else otherwise. */
static strata_status stage_source(const char *directory, const stk_op *op, const char *suffix, const char *otherwise,
                                  char name[NAME_BYTES], strata_error *err) {
  int n = directory ? snprintf(name, NAME_BYTES, "%s/%s.%s", directory, op->name, suffix) : 0;
  if (n >= NAME_BYTES) ST_FAIL(err, LIMIT, "%s: a shorter path expected", directory);
  if (!directory || st_path_probe(name) != ST_PATH_FILE) snprintf(name, NAME_BYTES, "%s", otherwise);
  return STRATA_OK;
}

static strata_status stages(ab_job *job, strata_error *err) {
  lab_request *q = &job->request;
  const char *suffix = q->cuda ? "cu" : "c";
  const ab_args *args = job->args;
  if (!args->cand_dir) ST_FAIL(err, ARG, "--cand-dir: a folder with the candidates' sources expected");
  for (const char *at = args->stages; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] != 0)) {
    int32_t s = q->n_stages;
    if (s == LAB_STAGES_MAX) ST_FAIL(err, ARG, "--stages: %s: at most %d ops expected", args->stages, LAB_STAGES_MAX);
    ST_TRY(find_op(at, strcspn(at, ","), &q->ops[s], err));
    ST_TRY(stage_source(args->base_dir, q->ops[s], suffix, chosen_variant(job, q->ops[s]), job->names[0][s], err));
    ST_TRY(stage_source(args->cand_dir, q->ops[s], suffix, job->names[0][s], job->names[1][s], err));
    q->base[s] = job->names[0][s];
    q->cand[s] = job->names[1][s];
    ++q->n_stages;
  }
  if (q->n_stages == 0) ST_FAIL(err, ARG, "--stages: names of ops expected");
  return STRATA_OK;
}

/* strata-lab-gdn_scan-20261129-235900 */
static void default_directory(ab_job *job) {
  char when[32];
  time_t now = time(NULL);
  struct tm local;
  strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
  snprintf(job->directory, sizeof job->directory, "strata-lab-%s-%s",
           job->request.kind == LAB_PIPELINE ? "pipeline" : job->request.ops[0]->name, when);
}

static void progress(void *user, const char *what) {
  (void)user;
  cli_progress_note(what);
}

/* The words that repeat the run: those options that differ from the defaults. */
static void note_command(ab_job *job, const char *name) {
  static const struct {
    const char *option;
    size_t offset;
  } texts[] = {{"--op", offsetof(ab_args, op)}, {"--stages", offsetof(ab_args, stages)},
               {"--base", offsetof(ab_args, base)}, {"--cand", offsetof(ab_args, cand)},
               {"--base-dir", offsetof(ab_args, base_dir)}, {"--cand-dir", offsetof(ab_args, cand_dir)},
               {"--T", offsetof(ab_args, tokens)}, {"--f32", offsetof(ab_args, f32)},
               {"--set", offsetof(ab_args, set)}, {"--rule", offsetof(ab_args, rule)},
               {"--cc", offsetof(ab_args, compiler)}, {"--backend", offsetof(ab_args, backend)}};
  static const char *const start[] = {"strata", "lab"};
  for (int i = 0; i < 2; ++i) job->command[job->n_command++] = start[i];
  job->command[job->n_command++] = name;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
    const char *value = *(const char *const *)((const char *)job->args + texts[i].offset);
    const char *usual = *(const char *const *)((const char *)&ab_defaults + texts[i].offset);
    if (!value || value == usual) continue;
    job->command[job->n_command++] = texts[i].option;
    job->command[job->n_command++] = value;
  }
}

static strata_status make_request(ab_job *job, lab_kind kind, strata_error *err) {
  const ab_args *args = job->args;
  lab_request *q = &job->request;
  *q = (lab_request){.kind = kind, .rule = args->rule, .tools = {.compiler = args->compiler, .seconds = 60},
                     .deadline = (double)args->deadline, .seed = args->seed, .progress = progress};
  st_cpu_level level;
  q->cuda = strcmp(args->backend, "cuda") == 0;
  ST_TRY(cli_lab_level(&level, err));
  st_kernel_set_choose(&job->chosen, level);
  ST_TRY(kind == LAB_PIPELINE ? stages(job, err) : one_stage(job, kind, err));
  if (args->tokens) ST_TRY(cli_ids_parse(&job->tokens, args->tokens, "--T", 1, 1 << 20, err));
  if (args->f32) ST_TRY(cli_ids_parse(&job->f32, args->f32, "--f32", 0, 1, err));
  if (args->set) ST_TRY(lab_settings_parse(&q->settings, args->set, err));
  q->tokens = job->tokens.items;
  q->n_tokens = (int32_t)job->tokens.n;
  q->f32 = job->f32.items;
  q->n_f32 = (int32_t)job->f32.n;
  q->n_threads = args->threads ? args->threads : st_cpu_count();
  default_directory(job);
  q->directory = args->report ? args->report : job->directory;
  if (q->cuda) ST_TRY(lab_cuda_ceilings(&job->ceilings, err));
  else ST_TRY(cli_lab_ceilings(&args->ceilings, q->n_threads, &job->ceilings, err));
  q->cache_bytes = (size_t)job->ceilings.machine.cache[2].n_bytes;
  return STRATA_OK;
}

static const char *headline_of(const json_t *report) { return json_string_value(json_object_get(report, "headline")); }

/* ---- printing ------------------------------------------------------------------- */

static void print_side(const char *name, const lab_side *side) {
  printf("  %-5s %s: %s, %s, sha256 %.16s\n", name, side->given, side->level,
         side->numerics == STK_EXACT ? "exact" : "fast", side->sha256);
}

static void print_parity(const lab_result *r, const lab_stage *stage) {
  for (int32_t i = 0; i < r->n_checked; ++i) {
    const lab_parity *p = &stage->parity[i];
    if (p->word != LAB_PASS) {
      printf("  FAIL %-16s %s: %s\n", r->checked[i].name, lab_word_name(p->word), p->detail);
      continue;
    }
    printf("  PASS %-16s", r->checked[i].name);
    for (int32_t b = 0; b < p->n_buffers; ++b) printf(" %s%s", p->buffers[b].tensor, p->kept[b] ? "(untouched)" : "");
    printf("\n");
  }
}

static void print_stage(const lab_result *r, const lab_stage *stage) {
  int32_t n_ok = 0;
  printf("%s, contract %u\n", stage->op->name, stage->op->contract);
  print_side("base", &stage->base);
  if (r->request->kind != LAB_AA) print_side("cand", &stage->cand);
  printf("  compiler %s\n", stage->base.compiler);
  for (int32_t i = 0; i < stage->n_controls; ++i) n_ok += stage->controls[i].got == stage->controls[i].expected;
  printf("  controls %d of %d as expected; test cases base %d/%d, cand %d/%d; seed %llu\n", n_ok, stage->n_controls,
         stage->base_oracle.n_passed, stage->base_oracle.n_cases, stage->cand_oracle.n_passed,
         stage->cand_oracle.n_cases, (unsigned long long)r->request->seed);
  if (stage->cand_oracle.word != LAB_PASS)
    printf("  FAIL %s: %s\n", lab_word_name(stage->cand_oracle.word), stage->cand_oracle.detail);
  print_parity(r, stage);
}

/* "1.2345 [1.2300, 1.2400]", or a dash where there were no pairs. */
static const char *ratio_text(const lab_estimate *e, char text[40]) {
  if (e->ratio > 0) snprintf(text, 40, "%.4f [%.4f, %.4f]", e->ratio, e->low, e->high);
  else snprintf(text, 40, "-");
  return text;
}

static void print_timing(const char *what, const lab_result *r, const lab_timing *t, const lab_ceilings *c) {
  const lab_outcome *o = &t->outcome;
  const bool aa = r->request->kind == LAB_AA;
  lab_floor floor = lab_floor_of(&c->all, &t->work, (double)t->n_bytes);
  const double ms = t->n_calls > 0 ? 1e3 / t->n_calls : 0;
  char cand[40], null[40];
  printf("%-10s %-16s %9.4f %9.4f %9.4f  %-23s  %-23s  %6d %5d  %s%s%s\n", what,
         r->timed[t->size].name, floor.seconds * ms, o->seconds[LAB_BASE] * ms,
         o->seconds[aa ? LAB_NULL : LAB_CAND] * ms, ratio_text(&o->cand, cand), ratio_text(&o->null, null), o->n_rounds,
         o->n_disturbed, lab_verdict_name(o->verdict), o->reason[0] ? ": " : "", o->reason);
}

static void print_timings(const lab_result *r, const lab_ceilings *c) {
  if (r->n_measured == 0) return;
  printf("\n%-10s %-16s %9s %9s %9s  %-23s  %-23s  %6s %5s  %s\n", "ms a call", "size", "floor", "base",
         r->request->kind == LAB_AA ? "copy" : "cand", "cand/base [95 %]", "null/base [95 %]", "rounds", "dist.", "verdict");
  for (int32_t s = 0; s < r->request->n_stages; ++s)
    for (int32_t i = 0; i < r->n_measured; ++i)
      print_timing(r->stages[s].op->name, r, &r->stages[s].timings[i], c);
  for (int32_t i = 0; i < r->n_measured && r->request->kind == LAB_PIPELINE; ++i)
    print_timing("total", r, &r->total[i], c);
}

static strata_status print_result(const ab_job *job, const lab_result *r, json_t *report, strata_error *err) {
  if (job->args->json) {
    if (json_dumpf(report, stdout, JSON_INDENT(1)) != 0) ST_FAIL(err, IO, "standard output: writing failed");
    printf("\n");
    return cli_flush(err);
  }
  for (int32_t s = 0; s < r->request->n_stages; ++s) print_stage(r, &r->stages[s]);
  print_timings(r, &job->ceilings);
  printf("\n%s\nreport: %s/report.html\n", headline_of(report), r->request->directory);
  return cli_flush(err);
}

/* ---- the commands ---------------------------------------------------------------- */

static strata_status run_job(ab_job *job, strata_error *err) {
  strata_status status = STRATA_OK;
  lab_result result = {0};
  json_t *report = NULL;
  ST_TRY_OUT(lab_ab_run(&job->request, &result, err));
  cli_progress_note(NULL);
  ST_TRY_OUT(lab_result_json(&result, &job->ceilings, job->command, job->n_command, &report, err));
  ST_TRY_OUT(lab_report_write(report, job->request.directory, err));
  ST_TRY_OUT(print_result(job, &result, report, err));
  if (result.verdict == LAB_WRONG) ST_FAIL_OUT(err, NUMERICS, "%s", headline_of(report));
  if (result.verdict == LAB_NO_VERDICT) ST_FAIL_OUT(err, NO_VERDICT, "%s", headline_of(report));
out:
  cli_progress_note(NULL);
  json_decref(report);
  if (result.request) lab_result_release(&result);
  return status;
}

static strata_status run(const void *args, const cli_words *words, lab_kind kind, const char *name,
                         strata_error *err) {
  static ab_job job; /* some hundred KiB */
  job = (ab_job){.args = args};
  if (words->n) ST_FAIL(err, ARG, "lab %s: %s: no word expected", name, words->items[0]);
  note_command(&job, name);
  strata_status status = make_request(&job, kind, err);
  if (status == STRATA_OK) status = run_job(&job, err);
  cli_ids_release(&job.tokens);
  cli_ids_release(&job.f32);
  return status;
}

static strata_status run_ab(const void *args, const cli_words *words, strata_error *err) {
  return run(args, words, LAB_AB, "ab", err);
}
static strata_status run_aa(const void *args, const cli_words *words, strata_error *err) {
  return run(args, words, LAB_AA, "aa", err);
}
static strata_status run_pipeline(const void *args, const cli_words *words, strata_error *err) {
  return run(args, words, LAB_PIPELINE, "pipeline", err);
}

#define COMMAND(name_, summary_, usage_, details_, options_, run_)                                   \
  {.name = name_, .summary = summary_, .usage = usage_, .details = details_, .options = options_,    \
   .n_options = sizeof options_ / sizeof *options_, .defaults = &ab_defaults,                        \
   .args_bytes = sizeof ab_defaults, .run = run_}

const cli_command cmd_lab_ab = COMMAND(
    "lab ab", "compare two kernels: the same bytes? which is faster?", "--op OP --cand V|FILE [options]",
    "Freezes and compiles both, runs controls, compares all outputs byte for byte at many sizes, then times "
    "pairs in alternating order beside a null run, and gives a verdict.\n"
    "Exit code 0: a verdict (faster, same, slower); 1: wrong bytes; 2: bad arguments; 3: no verdict.",
    ab_options, run_ab);
const cli_command cmd_lab_aa = COMMAND(
    "lab aa", "compare a kernel with itself: this machine's noise", "--op OP [options]",
    "The null run alone: two copies of one kernel, timed as lab ab does.", aa_options, run_aa);
const cli_command cmd_lab_pipeline = COMMAND(
    "lab pipeline", "compare two chains of kernels", "--cand-dir DIR [options]",
    "As lab ab, for ops that feed one another: each by itself on equal inputs, and their total.",
    pipeline_options, run_pipeline);
