/* strata lab: the kernel laboratory. Each command is a row here and a file beside
 * this one. */
#include "cli_lab.h"

static const cli_command *const lab_commands[] = {
    &cmd_lab_list,     &cmd_lab_check,  &cmd_lab_source, &cmd_lab_ab,      &cmd_lab_aa,
    &cmd_lab_pipeline, &cmd_lab_verify, &cmd_lab_roof,   &cmd_lab_profile, &cmd_lab_replay, NULL};

const cli_command cmd_lab = {
    .name = "lab",
    .summary = "list, check and measure kernels",
    .usage = "COMMAND [options]",
    .details = "The kernel laboratory. Only profile needs a model.",
    .subcommands = lab_commands};
