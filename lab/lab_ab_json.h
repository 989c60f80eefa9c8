/* A comparison as the JSON object of a report (docs/lab-report.md). */
#ifndef LAB_AB_JSON_H
#define LAB_AB_JSON_H

#include <jansson.h>

#include "lab/lab_ab.h"
#include "lab/lab_ceilings.h"

/* command: the words that repeat it. gives *out (json_decref). NOMEM. */
strata_status lab_result_json(const lab_result *result, const lab_ceilings *ceilings,
                              const char *const *command, int32_t n_command, json_t **out,
                              strata_error *err);

#endif
