/* JSON as Python's json.dumps(value, ensure_ascii=False) writes it: what chat
 * templates of the reference put into a prompt. */
#ifndef ST_PYJSON_H
#define ST_PYJSON_H

#include "core/st_mem.h"

/* ARG, naming what, unless text is one JSON object in valid UTF-8 whose keys
 * are all different. */
strata_status st_pyjson_check(const char *text, const char *what, strata_error *err);

/* The functions below read text that st_pyjson_check has passed, from *at on,
 * and leave *at behind what they read. Errors: NOMEM only. */

/* Appends a value, in its new spelling. */
strata_status st_pyjson_value(const char **at, st_string *out, strata_error *err);
/* Appends what a string means: no quotes, no escapes. */
strata_status st_pyjson_string(const char **at, st_string *out, strata_error *err);
/* Moves into an object, or from one of its values to what follows: false at
 * its end, else *at is on the next key. */
bool st_pyjson_next_key(const char **at);
/* Moves from behind a key to its value. */
void st_pyjson_to_value(const char **at);

#endif
