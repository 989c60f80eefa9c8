/* Seals: a SHA-256 for each part of a report, by which an edit is named by its
 * place ("stages[0].timings[2].samples").
 *
 * A part is a value that is no object and no list of objects, or a list of samples
 * or buffers as a whole; what is hashed is its JSON in one canonical form. Seals
 * find accidents and hasty edits. Whoever seals anew after an edit is not found by
 * them, but has to make all samples and the frozen sources fit too. */
#ifndef LAB_SEAL_H
#define LAB_SEAL_H

#include <jansson.h>

#include "core/st_error.h"

/* gives in *seals (json_decref) an object from the path of each part of report to
 * its hash. The report's own key "seals" is left out. */
strata_status lab_seal_make(const json_t *report, json_t **seals, strata_error *err);

/* fills hex with the SHA-256 of bytes. */
strata_status lab_seal_hash(const void *data, size_t n_bytes, char hex[65], strata_error *err);

#endif
