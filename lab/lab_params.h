/* Setting an op's parameters by name, as --set does. */
#ifndef LAB_PARAMS_H
#define LAB_PARAMS_H

#include <strata/kernel.h>

#include "core/st_error.h"

/* Sets one parameter of args and what follows from it. ARG, with the names there
 * are, if the op has none of that name or it is a switch and value is not 0 or 1. The
 * op's check is left to the caller, since several may have to change together. */
strata_status lab_params_set(const stk_op *op, void *args, const char *name, int32_t value,
                             strata_error *err);
bool lab_params_has(const stk_op *op, const void *args, const char *name);

/* The same for a list such as "Hk=4,Hv=8"; an empty one sets nothing. */
strata_status lab_params_parse(const stk_op *op, void *args, const char *list, strata_error *err);

#endif
