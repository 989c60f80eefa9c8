/* strata lab source: the source of a built-in kernel, for whoever wants to change it. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli_lab.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "kreg/st_kreg.h"
#include "kreg/st_source.h"
#include "lab/lab_cuda_side.h"

typedef struct source_args {
  const char *headers;
} source_args;

static const source_args source_defaults = {0};

static const cli_option source_options[] = {
    {0, "headers", "DIR", CLI_TEXT, offsetof(source_args, headers), 0, 0, NULL,
     "write all headers and kernels to DIR instead, to read or for an editor"},
};

/* The header that a line includes if it is one of the op's folder and not its
 * contract: part of the implementation, so a candidate wants to change it too. */
static bool own_header(const char *line, const char *op, st_source *out) {
  char path[160], contract[160];
  if (sscanf(line, "#include \"%159[^\"]\"", path) != 1) return false;
  snprintf(contract, sizeof contract, "%s/%s.h", op, op);
  size_t n = strlen(op);
  return strncmp(path, op, n) == 0 && path[n] == '/' && strcmp(path, contract) != 0 && st_source_find(path, out);
}

static void print_flat(const char *text, const char *op) {
  while (*text) {
    size_t n = strcspn(text, "\n");
    st_source header;
    if (own_header(text, op, &header)) print_flat(header.text, op);
    else printf("%.*s\n", (int)n, text);
    text += n + (text[n] == '\n');
  }
}

static bool find_gpu_source(const char *op, const char *variant, st_source *out) {
  const stk_cuda_kernel *kernel;
  for (int32_t i = 0; (kernel = st_cuda_kernel_of(op, i)); ++i)
    if (strcmp(kernel->variant, variant) == 0) return st_source_find(kernel->source, out);
  return false;
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  const source_args *args = command_args;
  st_source source;
  st_kernel_set chosen;
  st_cpu_level level;
  if (args->headers) {
    if (words->n) ST_FAIL(err, ARG, "lab source: %s: nothing beside --headers expected", words->items[0]);
    return st_source_write_tree(args->headers, err);
  }
  if (words->n < 1 || words->n > 2) ST_FAIL(err, ARG, "lab source: %d words: an op and perhaps a variant expected", words->n);
  const char *op = words->items[0];
  int index = st_kreg_op_by_name(op);
  if (index < 0) ST_FAIL(err, ARG, "lab source: %s: the name of an op expected (strata lab list)", op);
  ST_TRY(cli_lab_level(&level, err));
  st_kernel_set_choose(&chosen, level);
  const char *variant = words->n == 2 ? words->items[1] : chosen.kernel[index]->variant;
  if (!find_gpu_source(op, variant, &source) && !st_source_of_variant(op, variant, &source))
    ST_FAIL(err, ARG, "lab source: %s: a variant of %s expected (strata lab list %s)", variant, op, op);
  print_flat(source.text, op);
  return cli_flush(err);
}

const cli_command cmd_lab_source = {
    .name = "lab source",
    .summary = "print a kernel's source, to start from",
    .usage = "OP [VARIANT] | --headers DIR",
    .details =
        "Prints one file that strata lab ab takes as it is: the source of the variant (of the one that this machine "
        "takes, without VARIANT), with the op's own headers but its contract put in.",
    .options = source_options,
    .n_options = sizeof source_options / sizeof *source_options,
    .defaults = &source_defaults,
    .args_bytes = sizeof source_defaults,
    .run = run};
