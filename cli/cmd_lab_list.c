/* strata lab list: the variants of each op. */
#include <stdio.h>

#include "cli_lab.h"
#include "cli_term.h"
#include "core/st_error.h"
#include "kreg/st_kreg.h"
#include "lab/lab_cuda_side.h"

static void list_op(st_op op, const st_kernel_set *chosen) {
  const stk_kernel *kernel;
  for (int32_t i = 0; (kernel = st_kreg_variant(op, i)); ++i) {
    bool runs = st_cpu_has((st_cpu_level)st_cpu_level_by_name(kernel->isa));
    printf("%-12s %-14s %-6s %-8s %s\n", kernel->op, kernel->variant,
           kernel->numerics == STK_EXACT ? "exact" : "fast", kernel->isa,
           chosen->kernel[op] == kernel ? "chosen" : runs ? "" : "not on this CPU");
  }
  const stk_cuda_kernel *gpu;
  const char *name = st_kreg_op(op)->name;
  for (int32_t i = 0; (gpu = st_cuda_kernel_of(name, i)); ++i)
    printf("%-12s %-14s %-6s %-8s %s\n", gpu->op, gpu->variant, gpu->numerics == STK_EXACT ? "exact" : "fast", "cuda",
           i == 0 ? "chosen on a GPU" : "");
}

static strata_status run(const void *args, const cli_words *words, strata_error *err) {
  (void)args;
  st_kernel_set chosen;
  ST_TRY(cli_words_at_most(words, 1, "one op", err));
  int only = words->n ? st_kreg_op_by_name(words->items[0]) : -1;
  if (words->n && only < 0)
    ST_FAIL(err, ARG, "lab list: %s: the name of an op expected", words->items[0]);
  st_kernel_set_choose(&chosen, st_cpu_best());
  printf("%-12s %-14s %-6s %-8s\n", "op", "variant", "class", "level");
  for (int op = 0; op < ST_OPS; ++op)
    if (only < 0 || op == only) list_op((st_op)op, &chosen);
  return cli_flush(err);
}

static const char no_args;

const cli_command cmd_lab_list = {
    .name = "lab list",
    .summary = "list kernels, and which this machine takes",
    .usage = "[OP]",
    .details = "Lists each op's variants, their class and level, and which one this machine takes.",
    .defaults = &no_args,
    .args_bytes = sizeof no_args,
    .run = run};
