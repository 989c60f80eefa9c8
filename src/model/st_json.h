/* Parsing foreign JSON that must be one object: the headers and configuration
 * files of models. */
#ifndef ST_JSON_H
#define ST_JSON_H

#include <jansson.h>

#include "core/st_error.h"

/* gives *out (json_decref), an object. FORMAT, with line and column, for text
 * that is not JSON, nests deeper than jansson allows (2048), has an object with
 * a duplicate key, a number out of range, anything but white space behind the
 * value, or a value that is not an object; NOMEM if memory ran out
 * (some of its failing allocations jansson reports as a fault of the text, and
 * then so does this). label stands in messages; text need not end in NUL. */
strata_status st_json_parse_object(const char *label, const char *text, size_t n_bytes,
                                   json_t **out, strata_error *err);

#endif
