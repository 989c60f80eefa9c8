/* The commands of strata lab, a file each, and what several of them share. */
#ifndef CLI_LAB_H
#define CLI_LAB_H

#include <jansson.h>

#include "cli_args.h"
#include "lab/lab_ceilings.h"

extern const cli_command cmd_lab_list, cmd_lab_check, cmd_lab_source, cmd_lab_ab, cmd_lab_aa,
    cmd_lab_pipeline, cmd_lab_verify, cmd_lab_roof, cmd_lab_profile, cmd_lab_replay;

/* ---- the machine --------------------------------------------------------------- */

/* The CPU level to measure at: STRATA_ISA's, or the best one. */
strata_status cli_lab_level(st_cpu_level *out, strata_error *err);

/* Where ceilings are kept and whether to measure them again: the options of every
 * command that shows floors. */
typedef struct cli_ceilings_args {
  const char *cache;
  bool fresh;
} cli_ceilings_args;

#define CLI_OPTIONS_CEILINGS(args)                                                       \
  {0, "fresh", NULL, CLI_FLAG, offsetof(args, ceilings.fresh), 0, 0, NULL,               \
   "measure this machine's ceilings again, which are kept otherwise"},                   \
  {                                                                                      \
    0, "cache", "DIR", CLI_TEXT, offsetof(args, ceilings.cache), 0, 0, NULL,             \
        "where the ceilings are kept (default ~/.cache/strata/ceilings)"\
  }

/* lab_ceilings_get for so many threads (0: one for each CPU) at cli_lab_level, with
 * notes about what the user should know. */
strata_status cli_lab_ceilings(const cli_ceilings_args *args, int32_t n_threads, lab_ceilings *out,
                               strata_error *err);
/* The line that says which machine and when. */
void cli_lab_print_machine(const lab_ceilings *ceilings);
void cli_lab_print_ceilings(const lab_ceilings *ceilings);
json_t *cli_lab_ceilings_json(const lab_ceilings *ceilings);

/* "operations", or the memory that bounds. */
const char *cli_lab_bound(const lab_floor *floor);

#endif
