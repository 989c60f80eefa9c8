/* What strata reads out of a Jinja template: its string literals. */
#ifndef ST_JINJA_H
#define ST_JINJA_H

#include "core/st_mem.h"

/* Appends to out the text that the template writes behind its literal that
 * begins with opening: the rest of that literal and the other literals of the
 * same {{ }} or, if there are none, those of the next {{ }}. Appends nothing if
 * there is no such literal. UNSUPPORTED for an escape that is not known. */
strata_status st_jinja_text_after(const char *source, const char *opening, st_string *out,
                                  strata_error *err);

#endif
