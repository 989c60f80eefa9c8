/* What strata lab roof shows of the CPU's kernels and of a GPU's alike. */
#ifndef CLI_LAB_ROOF_H
#define CLI_LAB_ROOF_H

#include "cli_lab.h"
#include "lab/lab_cuda.h"
#include "lab/lab_roof.h"

void cli_roof_print_header(void);
void cli_roof_print_row(const lab_roof_row *row);
json_t *cli_roof_row_json(const lab_roof_row *row);

/* lab roof --backend cuda. words: beginnings of ops' names, none for all. sources: in place of
 * built-in ones, or NULL. request: tokens and settings; variant: NULL for the chosen ones, else
 * that one of the only op. */
typedef struct cli_roof_gpu_args {
  const cli_words *words;
  const st_cuda_sources *sources;
  const char *variant;
  lab_roof_request request;
  int32_t rounds;
  bool only_ceilings, json;
} cli_roof_gpu_args;

strata_status cli_roof_gpu(const cli_roof_gpu_args *args, strata_error *err);

#endif
