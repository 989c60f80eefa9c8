/* The commands of strata lab, a file each, and what several of them share. */
#ifndef CLI_LAB_H
#define CLI_LAB_H

#include "cli_args.h"
#include "os/st_cpu.h"

extern const cli_command cmd_lab_list, cmd_lab_check, cmd_lab_roof;

/* The CPU level to measure at: STRATA_ISA's, or the best one. */
strata_status cli_lab_level(st_cpu_level *out, strata_error *err);

#endif
