/* strata lab replay: kernels on the inputs of captured calls. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_lab.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "kreg/st_kreg.h"
#include "lab/lab_replay.h"
#include "os/st_dir.h"
#include "os/st_file.h"
#include "os/st_machine.h"

typedef struct replay_args {
  const char *kernel, *base, *rule, *compiler;
  float deadline;
  int32_t threads;
  bool time, json;
} replay_args;

static const replay_args replay_defaults = {.deadline = 60};

static const cli_option replay_options[] = {
    {0, "kernel", "V|FILE", CLI_TEXT, offsetof(replay_args, kernel), 0, 0, NULL,
     "a variant or a C file (default: every variant that this CPU can run)"},
    {0, "time", NULL, CLI_FLAG, offsetof(replay_args, time), 0, 0, NULL,
     "time the kernel beside --base, too, on the captured inputs"},
    {0, "base", "V|FILE", CLI_TEXT, offsetof(replay_args, base), 0, 0, NULL,
     "with --time: what to compare with (default: the variant this machine takes)"},
    {0, "rule", "FILE", CLI_TEXT, offsetof(replay_args, rule), 0, 0, NULL,
     "what makes a verdict (default: a win is more than 3 % and outside the noise)"},
    {0, "deadline", "S", CLI_REAL, offsetof(replay_args, deadline), 0.1, 86400, NULL,
     "seconds after which a check or a timing is killed (default 60)"},
    {0, "cc", "PROG", CLI_TEXT, offsetof(replay_args, compiler), 0, 0, NULL,
     "the C compiler (default cc)"},
    CLI_OPTION_THREADS(replay_args),
    CLI_OPTION_JSON(replay_args),
};

/* A kernel and the name it is shown by. */
typedef struct contestant {
  const char *name;
  lab_replay_kernel kernel;
} contestant;

enum { CONTESTANTS_MAX = 32 };

typedef struct replay_job {
  const replay_args *args;
  char **paths;
  lab_trace *traces; /* [n_traces] */
  int n_traces;
  char *directory; /* of frozen sources; NULL: none */
  lab_side base, cand;
  lab_rule rule;
  size_t cache_bytes;
  int n_passed, n_failed; /* comparisons */
  lab_verdict verdicts[LAB_SIZES_MAX];
  int32_t n_verdicts;
  const char *reason; /* of the first timing without a verdict */
  json_t *rows;
} replay_job;

/* ---- what to run ----------------------------------------------------------------- */

/* Exit code 1 is for kernels: a file that cannot be used is a bad argument. */
static strata_status open_trace(const char *path, lab_trace *out, strata_error *err) {
  strata_status status = lab_trace_open(path, out, err);
  if (status == STRATA_FORMAT || status == STRATA_IO) status = err->status = STRATA_ARG;
  return status;
}

static strata_status open_traces(replay_job *job, const cli_words *words, strata_error *err) {
  if (words->n == 0) ST_FAIL(err, ARG, "lab replay: no trace: files that strata run --capture wrote expected");
  if (job->args->time && words->n > LAB_SIZES_MAX)
    ST_FAIL(err, ARG, "--time: %d traces: at most %d expected", words->n, LAB_SIZES_MAX);
  job->paths = words->items;
  job->traces = calloc((size_t)words->n, sizeof *job->traces);
  if (!job->traces) return st_error_nomem(err, "traces", (size_t)words->n * sizeof *job->traces);
  for (; job->n_traces < words->n; job->n_traces++)
    ST_TRY(open_trace(words->items[job->n_traces], &job->traces[job->n_traces], err));
  return STRATA_OK;
}

static bool can_run(const stk_kernel *kernel) {
  return st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa));
}

/* NULL if given is not a variant of op that this CPU can run. */
static const stk_kernel *find_variant(const stk_op *op, const char *given) {
  const stk_kernel *kernel;
  for (int32_t i = 0; (kernel = st_kreg_variant((st_op)st_kreg_op_by_name(op->name), i)); i++)
    if (strcmp(kernel->variant, given) == 0 && can_run(kernel)) return kernel;
  return NULL;
}

static strata_status prepare_side(replay_job *job, lab_side *side, const char *given, const char *place,
                                  strata_error *err) {
  const lab_toolchain tools = {.compiler = job->args->compiler, .seconds = 60};
  cli_progress_note("compiling");
  ST_TRY(lab_side_freeze(side, job->traces[0].op, false, given, job->directory, place, err));
  strata_status status = lab_side_compile(side, &tools, err);
  cli_progress_note(NULL);
  return status;
}

static strata_status prepare_base(replay_job *job, strata_error *err) {
  st_cpu_level level;
  st_kernel_set chosen;
  st_machine machine;
  ST_TRY(cli_lab_level(&level, err));
  st_kernel_set_choose(&chosen, level);
  const stk_kernel *usual = chosen.kernel[st_kreg_op_by_name(job->traces[0].op->name)];
  ST_TRY(lab_rule_read(job->args->rule, &job->rule, err));
  ST_TRY(prepare_side(job, &job->base, job->args->base ? job->args->base : usual->variant, "base", err));
  if (job->base.numerics != STK_EXACT) ST_FAIL(err, ARG, "%s: a base of class exact expected", job->base.given);
  if (strcmp(job->base.sha256, job->cand.sha256) == 0 && strcmp(job->base.level, job->cand.level) == 0)
    ST_FAIL(err, ARG, "%s: a kernel that differs from the base expected", job->cand.given);
  st_machine_get(&machine);
  job->cache_bytes = (size_t)machine.cache[ST_CACHES - 1].n_bytes;
  return STRATA_OK;
}

static strata_status check_args(const replay_args *args, strata_error *err) {
  if (args->time && !args->kernel) ST_FAIL(err, ARG, "--time: without --kernel: --kernel V or FILE expected");
  if (!args->time && (args->base || args->rule)) ST_FAIL(err, ARG, "--base, --rule: without --time: --time expected");
  return STRATA_OK;
}

/* Compiles what has to be; a variant that is only checked runs as it is linked in. */
static strata_status prepare(replay_job *job, const cli_words *words, strata_error *err) {
  const replay_args *args = job->args;
  ST_TRY(check_args(args, err));
  ST_TRY(open_traces(job, words, err));
  if (!args->kernel) return STRATA_OK;
  for (int i = 1; i < job->n_traces; i++)
    if (job->traces[i].op != job->traces[0].op)
      ST_FAIL(err, ARG, "%s: a call of %s: one of %s, as in %s, expected", job->paths[i],
              job->traces[i].op->name, job->traces[0].op->name, job->paths[0]);
  if (!args->time && find_variant(job->traces[0].op, args->kernel)) return STRATA_OK;
  ST_TRY(st_dir_make_temporary(&job->directory, err));
  ST_TRY(prepare_side(job, &job->cand, args->kernel, "cand", err));
  return args->time ? prepare_base(job, err) : STRATA_OK;
}

static void remove_frozen(replay_job *job) {
  static const char *const places[] = {"base", "cand"};
  char path[LAB_PATH_MAX];
  if (!job->directory) return;
  if (job->base.frozen[0]) st_file_remove(job->base.frozen);
  if (job->cand.frozen[0]) st_file_remove(job->cand.frozen);
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", job->directory, places[i]);
    st_dir_remove(path);
  }
  st_dir_remove(job->directory);
  strata_free(job->directory);
}

static int list_contestants(const replay_job *job, const stk_op *op, contestant *out) {
  const stk_kernel *kernel;
  int n = 0;
  if (job->args->time) out[n++] = (contestant){job->base.given, {NULL, &job->base}};
  if (job->cand.op) {
    out[n++] = (contestant){job->cand.given, {NULL, &job->cand}};
  } else if (job->args->kernel) {
    kernel = find_variant(op, job->args->kernel);
    out[n++] = (contestant){kernel->variant, {kernel, NULL}};
  } else {
    for (int32_t i = 0; (kernel = st_kreg_variant((st_op)st_kreg_op_by_name(op->name), i)); i++)
      if (can_run(kernel) && n < CONTESTANTS_MAX) out[n++] = (contestant){kernel->variant, {kernel, NULL}};
  }
  return n;
}

/* ---- parity ---------------------------------------------------------------------- */

static void print_comparison(const char *kernel, const char *against, const lab_parity *p, double bound) {
  char text[256];
  printf("  %s %-14s %-8s", p->word == LAB_PASS ? "PASS" : "FAIL", kernel, against);
  if (p->word != LAB_PASS) printf(" %s: %s", lab_word_name(p->word), p->detail);
  for (int32_t i = 0; i < p->n_buffers && p->word == LAB_PASS; i++)
    printf(" %s%s", p->buffers[i].tensor, p->kept[i] ? "(untouched)" : "");
  printf("\n");
  for (int32_t i = 0; i < p->n_buffers && p->word != LAB_PASS; i++) {
    const lab_difference *d = &p->buffers[i];
    lab_difference_describe(d, bound, text, sizeof text);
    printf("    %s %s\n", d->word == LAB_EQUAL ? "PASS" : "FAIL", d->word == LAB_EQUAL ? d->tensor : text);
  }
}

static json_t *comparison_json(const lab_parity *p) {
  json_t *buffers = json_array();
  for (int32_t i = 0; i < p->n_buffers; i++) {
    const lab_difference *d = &p->buffers[i];
    json_array_append_new(
        buffers, json_pack("{s:s, s:b, s:I, s:I, s:o, s:o}", "name", d->tensor, "pass", d->word == LAB_EQUAL,
                           "first", (json_int_t)d->first, "differing", (json_int_t)d->count, "max_abs",
                           cli_json_number(d->max_abs), "relative_l2", cli_json_number(d->rel_l2)));
  }
  return json_pack("{s:s, s:s, s:o}", "word", lab_word_name(p->word), "detail", p->detail, "buffers", buffers);
}

/* Both comparisons of one kernel; *passed is cleared if one fails. */
static strata_status check_one(replay_job *job, const lab_trace *trace, const contestant *c, json_t *kernels,
                               bool *passed, strata_error *err) {
  lab_replay_parity parity;
  ST_TRY(lab_replay_check(trace, &c->kernel, (double)job->args->deadline, &parity, err));
  const int n_failed = (parity.oracle.word != LAB_PASS) + (parity.captured.word != LAB_PASS);
  job->n_failed += n_failed;
  job->n_passed += 2 - n_failed;
  *passed &= n_failed == 0;
  if (job->args->json) {
    json_array_append_new(kernels, json_pack("{s:s, s:o, s:o}", "kernel", c->name, "oracle",
                                             comparison_json(&parity.oracle), "captured",
                                             comparison_json(&parity.captured)));
  } else {
    print_comparison(c->name, "oracle", &parity.oracle, trace->op->fast_bound);
    print_comparison(c->name, "captured", &parity.captured, trace->op->fast_bound);
  }
  return STRATA_OK;
}

/* ---- timing ---------------------------------------------------------------------- */

/* Seconds of one call, of a batch's. */
static double of_call(const lab_timing *t, double seconds) { return t->n_calls > 0 ? seconds / t->n_calls : 0; }

static void print_timing(const lab_timing *t) {
  const lab_outcome *o = &t->outcome;
  printf("  one call: base %.1f us, kernel %.1f us; kernel/base %.4f (%.4f to %.4f), base/base %.4f "
         "(%.4f to %.4f); %d rounds, %d disturbed; %s%s%s\n",
         1e6 * of_call(t, o->seconds[LAB_BASE]), 1e6 * of_call(t, o->seconds[LAB_CAND]), o->cand.ratio,
         o->cand.low, o->cand.high, o->null.ratio, o->null.low, o->null.high, o->n_rounds, o->n_disturbed,
         lab_verdict_name(o->verdict), o->reason[0] ? ": " : "", o->reason);
}

static json_t *estimate_json(const lab_estimate *e) {
  return json_pack("{s:o, s:o, s:o, s:i}", "ratio", cli_json_number(e->ratio), "low", cli_json_number(e->low),
                   "high", cli_json_number(e->high), "pairs", (int)e->n_pairs);
}

static json_t *timing_json(const lab_timing *t) {
  const lab_outcome *o = &t->outcome;
  return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:i, s:i}", "verdict", lab_verdict_name(o->verdict), "reason",
                   o->reason, "base_seconds", cli_json_number(of_call(t, o->seconds[LAB_BASE])),
                   "kernel_seconds", cli_json_number(of_call(t, o->seconds[LAB_CAND])), "kernel",
                   estimate_json(&o->cand), "null", estimate_json(&o->null), "rounds", (int)o->n_rounds,
                   "disturbed", (int)o->n_disturbed);
}

static strata_status time_one(replay_job *job, const lab_trace *trace, json_t *row, strata_error *err) {
  lab_timing timing;
  const lab_replay_race race = {
      .trace = trace, .base = &job->base, .cand = &job->cand, .rule = &job->rule,
      .deadline = (double)job->args->deadline, .cache_bytes = job->cache_bytes,
      .n_threads = job->args->threads ? job->args->threads : st_cpu_count()};
  cli_progress_note("timing");
  strata_status status = lab_replay_time(&race, &timing, err);
  cli_progress_note(NULL);
  if (status == STRATA_OK) {
    const lab_outcome *o = &timing.outcome;
    job->verdicts[job->n_verdicts++] = o->verdict;
    if (o->verdict == LAB_NO_VERDICT && !job->reason) job->reason = o->reason;
    if (job->args->json) json_object_set_new(row, "timing", timing_json(&timing));
    else print_timing(&timing);
  }
  strata_free(timing.samples);
  return status;
}

/* ---- command --------------------------------------------------------------------- */

static json_t *trace_json(const char *path, const st_trace_head *head) {
  return json_pack("{s:s, s:s, s:i, s:i, s:s, s:o}", "file", path, "op", head->op, "layer", (int)head->layer,
                   "call", (int)head->call, "left_by", head->variant, "kernels", json_array());
}

static strata_status replay(replay_job *job, int index, strata_error *err) {
  const lab_trace *trace = &job->traces[index];
  const st_trace_head *head = trace->call.head;
  contestant contestants[CONTESTANTS_MAX + 1];
  bool passed = true;
  json_t *row = trace_json(job->paths[index], head);
  if (!row) return st_error_nomem(err, "the result", 0);
  json_array_append_new(job->rows, row);
  if (!job->args->json)
    printf("%s: %s, contract %u, layer %d, call %d, left by %s\n", job->paths[index], head->op, head->contract,
           head->layer, head->call, head->variant);
  const int n = list_contestants(job, trace->op, contestants);
  for (int i = 0; i < n; i++)
    ST_TRY(check_one(job, trace, &contestants[i], json_object_get(row, "kernels"), &passed, err));
  if (job->args->time && passed) ST_TRY(time_one(job, trace, row, err));
  return cli_interrupted() ? st_error_set(err, STRATA_CANCELLED, "lab replay: interrupted") : STRATA_OK;
}

static strata_status print_end(replay_job *job, lab_verdict verdict, strata_error *err) {
  const int n = job->n_passed + job->n_failed;
  if (job->args->json)
    return cli_json_print(json_pack("{s:O, s:i, s:i}", "traces", job->rows, "passed", job->n_passed, "failed",
                                    job->n_failed), err);
  if (job->n_failed) printf("FAILED %d/%d\n", job->n_failed, n);
  else printf("ALL PASS %d/%d%s%s\n", n, n, job->n_verdicts ? ", " : "",
              job->n_verdicts ? lab_verdict_name(verdict) : "");
  return cli_flush(err);
}

static strata_status replay_all(replay_job *job, strata_error *err) {
  job->rows = json_array();
  for (int i = 0; i < job->n_traces; i++) ST_TRY(replay(job, i, err));
  const lab_verdict verdict = lab_stats_overall(job->verdicts, job->n_verdicts);
  ST_TRY(print_end(job, verdict, err));
  if (job->n_failed)
    ST_FAIL(err, NUMERICS, "lab replay: %d of %d comparisons: equal bytes expected", job->n_failed,
            job->n_passed + job->n_failed);
  for (int32_t i = 0; i < job->n_verdicts; i++)
    if (job->verdicts[i] == LAB_WRONG) ST_FAIL(err, NUMERICS, "lab replay: a timed batch left other bytes than base's");
  if (job->n_verdicts && verdict == LAB_NO_VERDICT)
    ST_FAIL(err, NO_VERDICT, "lab replay: no verdict: %s", job->reason ? job->reason : "see the timings");
  return STRATA_OK;
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  replay_job *job = calloc(1, sizeof *job);
  if (!job) return st_error_nomem(err, "a replay", sizeof *job);
  job->args = command_args;
  strata_status status = prepare(job, words, err);
  if (status == STRATA_OK) status = replay_all(job, err);
  json_decref(job->rows);
  for (int i = 0; i < job->n_traces; i++) lab_trace_close(&job->traces[i]);
  remove_frozen(job);
  free(job->traces);
  free(job);
  return status;
}

const cli_command cmd_lab_replay = {
    .name = "lab replay",
    .summary = "run kernels on calls captured from a model",
    .usage = "TRACE ... [options]",
    .details =
        "A TRACE is a call that strata run --capture wrote. The kernel runs on its inputs, in "
        "several parts and over several surroundings; what it leaves is compared, buffer by "
        "buffer, with the oracle's result and with what the model's own kernel had left. The last "
        "line is ALL PASS n/n; a mismatch exits 1.\n"
        "With --time both kernels are compiled from frozen sources, and timed in pairs as lab ab "
        "does; without a verdict it exits 3.",
    .options = replay_options,
    .n_options = sizeof replay_options / sizeof replay_options[0],
    .defaults = &replay_defaults,
    .args_bytes = sizeof replay_defaults,
    .run = run};
