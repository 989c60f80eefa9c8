/* Writing a comparison as JSON. Every json_t that could not be made is NULL, and
 * putting NULL into an object or array fails; so it is enough to look at what put
 * and push return. */
#include "lab/lab_ab_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/st_mem.h"
#include "kreg/st_source.h"
#include "lab/lab_report.h"
#include "os/st_process.h"

/* An object or array being filled; failed stays once something went wrong. */
typedef struct sink {
  bool failed;
} sink;

static void put(sink *s, json_t *object, const char *key, json_t *value) {
  s->failed |= json_object_set_new(object, key, value) != 0;
}

static void push(sink *s, json_t *array, json_t *value) {
  s->failed |= json_array_append_new(array, value) != 0;
}

/* Foreign text may not be UTF-8. */
static json_t *text(const char *value) {
  json_t *string = json_string(value);
  return string ? string : json_string("(not UTF-8)");
}

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_real(0); }
static json_t *whole(int64_t x) { return json_integer(x); }

static const char *class_name(stk_class numerics) { return numerics == STK_EXACT ? "exact" : "fast"; }

/* ---- the machine -------------------------------------------------------------- */

static json_t *machine_json(sink *s, const lab_result *r, const lab_ceilings *c, strata_error *err) {
  char sources[65] = "", system[200];
  json_t *o = json_object();
  s->failed |= st_source_set_sha256(sources, err) != STRATA_OK;
  st_system_name(system, sizeof system);
  put(s, o, "cpu", text(c->machine.cpu));
  put(s, o, "id", text(c->id));
  put(s, o, "cpus", whole(c->machine.n_cpus));
  put(s, o, "threads", whole(r->request->n_threads));
  put(s, o, "level", text(r->request->cuda ? r->stages[0].base.level : st_cpu_level_name(c->level)));
  put(s, o, "l1_bytes", whole(c->machine.cache[0].n_bytes));
  put(s, o, "l2_bytes", whole(c->machine.cache[1].n_bytes));
  put(s, o, "l3_bytes", whole(c->machine.cache[2].n_bytes));
  put(s, o, "system", text(system));
  put(s, o, "strata", text(STRATA_VERSION));
  put(s, o, "sources_sha256", text(sources));
  return o;
}

static json_t *rule_json(sink *s, const lab_result *r) {
  json_t *o = json_object();
  put(s, o, "file", text(r->request->rule ? r->request->rule : "built in"));
  put(s, o, "sha256", text(r->rule.sha256));
  put(s, o, "text", text(r->rule.text));
  put(s, o, "min_gain", number(r->rule.min_gain));
  put(s, o, "confidence", number(r->rule.confidence));
  put(s, o, "narrow", number(r->rule.narrow));
  put(s, o, "min_rounds", whole(r->rule.min_rounds));
  put(s, o, "max_rounds", whole(r->rule.max_rounds));
  put(s, o, "disturbed", number(r->rule.disturbed));
  put(s, o, "max_disturbed", number(r->rule.max_disturbed));
  return o;
}

static json_t *ceilings_json(sink *s, const lab_ceilings *c) {
  static const char *const names[LAB_MEMORIES] = {"l1", "l2", "l3", "dram"};
  json_t *o = json_object(), *rates = json_object();
  put(s, o, "flops_per_s", number(c->all.flops_per_s));
  for (int i = 0; i < LAB_MEMORIES; ++i)
    put(s, rates, names[i], number(c->all.bytes_per_s[i][ST_TRAFFIC_READ]));
  put(s, o, "bytes_per_s", rates);
  return o;
}

/* ---- a stage ------------------------------------------------------------------ */

static json_t *side_json(sink *s, const lab_side *side) {
  json_t *o = json_object();
  put(s, o, "given", text(side->given));
  put(s, o, "variant", text(side->variant));
  put(s, o, "file", text(side->file));
  put(s, o, "sha256", text(side->sha256));
  put(s, o, "module", text(side->key));
  put(s, o, "level", text(side->level));
  put(s, o, "class", text(class_name(side->numerics)));
  put(s, o, "compiler", text(side->compiler));
  put(s, o, "flags", text(side->flags));
  put(s, o, "fp_mode", text("unchanged")); /* a module that changes it is not loaded */
  return o;
}

static json_t *control_json(sink *s, const lab_control *c) {
  json_t *o = json_object();
  put(s, o, "name", text(c->name));
  put(s, o, "expected", text(lab_word_name(c->expected)));
  put(s, o, "got", text(lab_word_name(c->got)));
  put(s, o, "detail", text(c->detail));
  put(s, o, "ok", json_boolean(c->expected == c->got));
  return o;
}

static json_t *oracle_json(sink *s, const lab_oracle_result *r) {
  json_t *o = json_object();
  put(s, o, "passed", whole(r->n_passed));
  put(s, o, "n", whole(r->n_cases));
  put(s, o, "word", text(lab_word_name(r->word)));
  put(s, o, "detail", text(r->detail));
  return o;
}

static const char *byte_word(lab_byte_word word) {
  switch (word) {
    case LAB_EQUAL: return "";
    case LAB_WRONG_BYTES: return "wrong";
    case LAB_BEYOND_BOUND: return "beyond the bound";
    case LAB_NOT_A_NUMBER: return "nan";
    case LAB_UNWRITTEN: return "unwritten";
    case LAB_OUTSIDE: return "wrote outside";
  }
  return "";
}

static json_t *buffer_json(sink *s, const lab_difference *d, bool kept) {
  json_t *o = json_object();
  put(s, o, "name", text(d->tensor));
  put(s, o, "result", text(d->word != LAB_EQUAL ? "FAIL" : kept ? "POISON KEPT" : "PASS"));
  put(s, o, "word", text(byte_word(d->word)));
  put(s, o, "n", whole((int64_t)d->n));
  put(s, o, "first", whole((int64_t)d->first));
  put(s, o, "count", whole((int64_t)d->count));
  put(s, o, "max_abs", number(d->max_abs));
  put(s, o, "rel_l2", number(d->rel_l2));
  return o;
}

static json_t *parity_json(sink *s, const lab_size *size, const lab_parity *p, uint64_t seed) {
  json_t *o = json_object(), *buffers = json_array();
  put(s, o, "size", text(size->name));
  put(s, o, "seed", whole((int64_t)seed));
  put(s, o, "result", text(lab_word_name(p->word)));
  put(s, o, "detail", text(p->detail));
  for (int32_t i = 0; i < p->n_buffers; ++i) push(s, buffers, buffer_json(s, &p->buffers[i], p->kept[i]));
  put(s, o, "buffers", buffers);
  return o;
}

/* ---- timings ------------------------------------------------------------------ */

static json_t *interval_json(sink *s, const lab_estimate *e) {
  json_t *o = json_array();
  push(s, o, number(e->low));
  push(s, o, number(e->high));
  return o;
}

static json_t *sample_json(sink *s, const lab_sample *x) {
  static const char *const names[LAB_ARMS] = {"base", "cand", "null"};
  json_t *o = json_object();
  put(s, o, "round", whole(x->round));
  put(s, o, "pair", text(names[x->pair]));
  put(s, o, "order", whole(x->order));
  put(s, o, "arm", text(names[x->arm]));
  put(s, o, "at", number(x->at));
  put(s, o, "seconds", number(x->seconds));
  put(s, o, "disturbed", json_boolean(x->disturbed));
  return o;
}

static json_t *timing_json(sink *s, const lab_result *r, const lab_timing *t, const lab_ceilings *c) {
  const lab_size *size = &r->timed[t->size];
  const lab_outcome *e = &t->outcome;
  const lab_floor floor = lab_floor_of(&c->all, &t->work, (double)t->n_bytes);
  json_t *o = json_object(), *params = json_object(), *samples = json_array();
  for (int32_t i = 0; i < size->settings.n; ++i)
    put(s, params, size->settings.items[i].name, whole(size->settings.items[i].value));
  put(s, o, "size", text(size->name));
  put(s, o, "params", params);
  put(s, o, "calls", whole(t->n_calls));
  put(s, o, "buffer_sets", whole(t->n_sets));
  put(s, o, "buffer_bytes", whole((int64_t)t->n_bytes));
  put(s, o, "flops", number(t->work.flops));
  put(s, o, "bytes", number(t->work.weight_bytes + t->work.state_bytes + t->work.io_bytes));
  put(s, o, "floor_seconds", number(floor.seconds));
  put(s, o, "bound", text(floor.compute_s >= floor.memory_s ? "operations" : "bytes"));
  put(s, o, "rounds", whole(e->n_rounds));
  put(s, o, "verdict", text(lab_verdict_name(e->verdict)));
  put(s, o, "reason", text(e->reason));
  put(s, o, "base_seconds", number(e->seconds[LAB_BASE]));
  put(s, o, "cand_seconds", number(e->seconds[LAB_CAND]));
  put(s, o, "null_seconds", number(e->seconds[LAB_NULL]));
  put(s, o, "ratio", number(e->cand.ratio));
  put(s, o, "interval", interval_json(s, &e->cand));
  put(s, o, "null_ratio", number(e->null.ratio));
  put(s, o, "null_interval", interval_json(s, &e->null));
  put(s, o, "disturbed", whole(e->n_disturbed));
  for (int32_t i = 0; i < t->samples->n; ++i) push(s, samples, sample_json(s, &t->samples->items[i]));
  put(s, o, "samples", samples);
  return o;
}

/* The first comment of the op's contract. */
static json_t *contract_text(const stk_op *op) {
  char path[128];
  st_source source;
  snprintf(path, sizeof path, "%s/%s.h", op->name, op->name);
  if (!st_source_find(path, &source)) return json_string("");
  const char *end = strstr(source.text, "*/");
  size_t n = end ? (size_t)(end - source.text) + 2 : 0;
  return json_stringn(source.text, n);
}

static json_t *stage_json(sink *s, const lab_result *r, const lab_stage *stage, const lab_ceilings *c) {
  json_t *o = json_object(), *controls = json_array(), *parity = json_array(), *timings = json_array();
  json_t *oracle = json_object();
  put(s, o, "op", text(stage->op->name));
  put(s, o, "contract", whole(stage->op->contract));
  put(s, o, "class", text(class_name(stage->cand.numerics)));
  put(s, o, "bound", stage->bound > 0 ? number(stage->bound) : json_null());
  put(s, o, "contract_text", contract_text(stage->op));
  put(s, o, "base", side_json(s, &stage->base));
  put(s, o, "cand", side_json(s, &stage->cand));
  for (int32_t i = 0; i < stage->n_controls; ++i) push(s, controls, control_json(s, &stage->controls[i]));
  put(s, o, "controls", controls);
  put(s, oracle, "base", oracle_json(s, &stage->base_oracle));
  put(s, oracle, "cand", oracle_json(s, &stage->cand_oracle));
  put(s, o, "oracle", oracle);
  for (int32_t i = 0; i < r->n_checked; ++i)
    push(s, parity, parity_json(s, &r->checked[i], &stage->parity[i], r->request->seed));
  put(s, o, "parity", parity);
  put(s, o, "diff", stage->diff ? text(stage->diff) : json_string(""));
  for (int32_t i = 0; i < r->n_measured; ++i) push(s, timings, timing_json(s, r, &stage->timings[i], c));
  put(s, o, "timings", timings);
  return o;
}

static json_t *limits_json(sink *s, const lab_result *r) {
  json_t *a = json_array();
  push(s, a, text("Standalone kernels on rotating buffers with made-up inputs, on this machine, at these sizes. "
                  "Nothing is claimed for a whole model, another machine or another size."));
  push(s, a, text("Parity was tested on the listed sizes and the op's own cases; it is no proof for every input."));
  for (int32_t i = 0; i < r->request->n_stages; ++i) {
    if (r->stages[i].cand.relaxed_math)
      push(s, a, text("The candidate asks for compiler flags that may change results; equal bytes were seen with "
                      "this compiler only."));
    if (r->stages[i].bound > 0)
      push(s, a, text("The candidate is of class fast: it is near the base, within the contract's bound, not equal to it."));
  }
  return a;
}

/* The headline follows from all the rest. */
static strata_status add_headline(json_t *report, strata_error *err) {
  char *line;
  size_t n_bytes;
  ST_TRY(lab_report_headline(report, &line, &n_bytes, err));
  int failed = json_object_set_new(report, "headline", json_stringn(line, n_bytes));
  st_free(line);
  return failed ? st_error_nomem(err, "a report", n_bytes) : STRATA_OK;
}

strata_status lab_result_json(const lab_result *r, const lab_ceilings *c, const char *const *command,
                              int32_t n_command, json_t **out, strata_error *err) {
  static const char *const kinds[] = {"ab", "aa", "pipeline"};
  sink s = {false};
  char when[32];
  time_t started = (time_t)r->started;
  struct tm utc;
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&started, &utc));
  json_t *o = json_object(), *words = json_array(), *stages = json_array(), *total = json_array();
  put(&s, o, "format", text("strata lab report"));
  put(&s, o, "version", whole(1));
  put(&s, o, "kind", text(kinds[r->request->kind]));
  put(&s, o, "verdict", text(lab_verdict_name(r->verdict)));
  put(&s, o, "headline", text(""));
  put(&s, o, "reason", text(r->reason));
  for (int32_t i = 0; i < n_command; ++i) push(&s, words, text(command[i]));
  put(&s, o, "command", words);
  put(&s, o, "started", text(when));
  put(&s, o, "seconds", number(r->seconds));
  put(&s, o, "machine", machine_json(&s, r, c, err));
  put(&s, o, "rule", rule_json(&s, r));
  put(&s, o, "ceilings", ceilings_json(&s, c));
  for (int32_t i = 0; i < r->request->n_stages; ++i) push(&s, stages, stage_json(&s, r, &r->stages[i], c));
  put(&s, o, "stages", stages);
  if (r->request->kind == LAB_PIPELINE)
    for (int32_t i = 0; i < r->n_measured; ++i) push(&s, total, timing_json(&s, r, &r->total[i], c));
  put(&s, o, "total", total);
  put(&s, o, "limits", limits_json(&s, r));
  if (!s.failed) {
    strata_status status = add_headline(o, err);
    *out = status == STRATA_OK ? o : NULL;
    if (status != STRATA_OK) json_decref(o);
    return status;
  }
  *out = NULL;
  json_decref(o);
  return st_error_nomem(err, "a report", 0);
}
