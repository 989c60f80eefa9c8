/* strata lab: the kernel laboratory. Each command is a row here and a file beside
 * this one. */
#include "cli_lab.h"
#include "core/st_error.h"

static const cli_command *const lab_commands[] = {&cmd_lab_list, &cmd_lab_check, &cmd_lab_roof, NULL};

strata_status cli_lab_level(st_cpu_level *out, strata_error *err) {
  st_cpu_level best = st_cpu_best();
  int named = st_env_isa() ? st_cpu_level_by_name(st_env_isa()) : (int)best;
  if (named < 0 || named > (int)best)
    ST_FAIL(err, ARG, "STRATA_ISA: %s: a level of this CPU expected", st_env_isa());
  *out = (st_cpu_level)named;
  return STRATA_OK;
}

const cli_command cmd_lab = {
    .name = "lab",
    .summary = "list, check and measure kernels",
    .usage = "COMMAND [options]",
    .details = "The kernel laboratory. It needs no model.",
    .subcommands = lab_commands};
