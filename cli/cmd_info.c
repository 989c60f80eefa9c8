/* strata info: what a model is and what it will take, before it is loaded. */
#include <stdio.h>

#include "cli_args.h"
#include "cli_term.h"
#include "core/st_error.h"

enum { INFO_CTX_DEFAULT = 512 };

typedef struct info_args {
  const char *model, *kv;
  int32_t ctx, window, threads;
  bool verbose, json;
} info_args;

static const info_args info_defaults = {.window = 512};

static const cli_option info_options[] = {
    CLI_OPTION_MODEL(info_args),
    {0, "ctx", "N", CLI_INT, offsetof(info_args, ctx), 1, 2147483647, NULL,
     "plan the memory for a sequence of N tokens (default: 512, or the model's positions if those "
     "are fewer)"},
    CLI_OPTION_KV(info_args),
    CLI_OPTION_WINDOW(info_args),
    CLI_OPTION_THREADS(info_args),
    {'v', "verbose", NULL, CLI_FLAG, offsetof(info_args, verbose), 0, 0, NULL,
     "list the tensors that the model does not use"},
    CLI_OPTION_JSON(info_args),
};

static void print_line(const char *name, const char *value) { printf("%-20s %s\n", name, value); }

static void print_model(const cli_model *m, bool verbose) {
  const strata_model_info *info = &m->info;
  const char *name, *value;
  print_line("model", m->path);
  print_line("architecture", info->architecture);
  for (int32_t i = 0; strata_model_describe(m->model, i, &name, &value); i++)
    print_line(name, value);
  printf("%-20s %lld\n", "parameters", (long long)info->n_parameters);
  printf("%-20s %d tensors, %lld bytes\n", "weights", info->n_tensors,
         (long long)info->weight_bytes);
  print_line("types", info->dtypes);
  printf("%-20s %d tensors of the files\n", "not used", info->n_ignored);
  for (int32_t i = 0; verbose && (name = strata_model_ignored_tensor(m->model, i)); i++)
    print_line("", name);
}

static void print_plan(const cli_model *m, const strata_memory_plan *plan, int32_t n_tokens) {
  char gpu[512];
  strata_gpu_describe(gpu, sizeof gpu);
  printf("%-20s %s, %d threads\n", "computes with", strata_engine_isa(m->engine),
         strata_engine_threads(m->engine));
  printf("%-20s %s\n\n", "GPU", gpu);
  printf("memory for a sequence of %d tokens, in bytes\n", n_tokens);
  for (int32_t i = 0; i < plan->n_rows; i++)
    printf("  %-18s %15lld\n", plan->rows[i].component, (long long)plan->rows[i].bytes);
  printf("  %-18s %15lld\n", "total", (long long)plan->total_bytes);
}

static json_t *model_json(const cli_model *m) {
  const strata_model_info *info = &m->info;
  const char *name, *value;
  json_t *description = json_object(), *eos = json_array(), *ignored = json_array();
  for (int32_t i = 0; strata_model_describe(m->model, i, &name, &value); i++)
    json_object_set_new(description, name, json_string(value));
  for (int32_t i = 0; i < info->n_eos_ids; i++)
    json_array_append_new(eos, json_integer(info->eos_ids[i]));
  for (int32_t i = 0; (name = strata_model_ignored_tensor(m->model, i)); i++)
    json_array_append_new(ignored, json_string(name));
  return json_pack(
      "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:i, s:s, s:o, s:o, s:o}",
      "path", m->path, "architecture", info->architecture, "layers", (int)info->n_layers,
      "gdn_layers", (int)info->n_gdn_layers, "qsa_layers", (int)info->n_qsa_layers, "hidden_size",
      (int)info->hidden_size, "vocab_size", (int)info->vocab_size, "max_positions",
      (int)info->max_positions, "experts", (int)info->n_experts, "experts_used",
      (int)info->n_experts_used, "parameters", (json_int_t)info->n_parameters, "weight_bytes",
      (json_int_t)info->weight_bytes, "tensors", (int)info->n_tensors, "types", info->dtypes,
      "eos_ids", eos, "ignored_tensors", ignored, "description", description);
}

static json_t *plan_json(const strata_memory_plan *plan, int32_t n_tokens) {
  json_t *rows = json_array();
  for (int32_t i = 0; i < plan->n_rows; i++)
    json_array_append_new(rows, json_pack("{s:s, s:I}", "component", plan->rows[i].component,
                                          "bytes", (json_int_t)plan->rows[i].bytes));
  return json_pack("{s:i, s:o, s:I}", "tokens", (int)n_tokens, "components", rows, "total_bytes",
                   (json_int_t)plan->total_bytes);
}

static json_t *info_json(const cli_model *m, const strata_memory_plan *plan, int32_t n_tokens) {
  char gpu[512];
  strata_gpu_describe(gpu, sizeof gpu);
  return json_pack("{s:o, s:o, s:{s:s, s:i, s:s}}", "model", model_json(m), "memory",
                   plan_json(plan, n_tokens), "engine", "isa", strata_engine_isa(m->engine),
                   "threads", (int)strata_engine_threads(m->engine), "gpu", gpu);
}

static strata_status show(const cli_model *m, const info_args *args, strata_error *err) {
  strata_session_options options = {.window = args->window, .kv = cli_kv(args->kv)};
  strata_memory_plan plan;
  int32_t max_positions = m->info.max_positions;
  int32_t n_tokens = max_positions < INFO_CTX_DEFAULT ? max_positions : INFO_CTX_DEFAULT;
  if (args->ctx) n_tokens = args->ctx;
  if (n_tokens > max_positions)
    ST_FAIL(err, ARG, "--ctx: %d: at most the model's %d positions expected", n_tokens,
            max_positions);
  ST_TRY(strata_model_plan(m->model, &options, n_tokens, &plan, err));
  if (args->json) return cli_json_print(info_json(m, &plan, n_tokens), err);
  print_model(m, args->verbose);
  print_plan(m, &plan, n_tokens);
  return cli_flush(err);
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  const info_args *args = command_args;
  cli_model m = {0};
  ST_TRY(cli_words_at_most(words, 0, "-m DIR", err));
  strata_status status = cli_model_open(&m, args->model, args->threads, false, err);
  /* The plan measures what the program holds, so hold what `run` would. A model
   * without a tokenizer is described all the same. */
  if (status == STRATA_OK && strata_tokenizer_open(m.path, &m.tokenizer, NULL) != STRATA_OK)
    cli_note("%s has no usable tokenizer", m.path);
  if (status == STRATA_OK) status = show(&m, args, err);
  cli_model_close(&m);
  return status;
}

const cli_command cmd_info = {
    .name = "info",
    .summary = "show what a model is and the memory it takes",
    .usage = "[-m DIR] [--ctx N] [options]",
    .details =
        "Shows the architecture, sizes and types, and the bytes that weights, state, caches and "
        "scratch take, by component. The weights are mapped for that, not read.",
    .options = info_options,
    .n_options = sizeof info_options / sizeof info_options[0],
    .defaults = &info_defaults,
    .args_bytes = sizeof info_defaults,
    .run = run};
