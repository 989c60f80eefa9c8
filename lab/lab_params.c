/* Parameters by name. */
#include "lab/lab_params.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t list_params(const stk_op *op, void *args, stk_param *params) {
  return op->params ? op->params(args, params) : 0;
}

static const stk_param *find(const stk_param *params, int32_t n, const char *name, size_t n_bytes) {
  for (int32_t i = 0; i < n; ++i)
    if (strlen(params[i].name) == n_bytes && !memcmp(params[i].name, name, n_bytes)) return &params[i];
  return NULL;
}

static strata_status unknown(const stk_op *op, const stk_param *params, int32_t n, const char *name,
                             size_t n_bytes, strata_error *err) {
  char names[128] = "";
  size_t at = 0;
  for (int32_t i = 0; i < n && at < sizeof names; ++i)
    at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", params[i].name);
  ST_FAIL(err, ARG, "%s: %.*s: one of %s expected", op->name, n_bytes < 40 ? (int)n_bytes : 40, name,
          n ? names : "no parameters");
}

static strata_status set(const stk_op *op, void *args, const char *name, size_t n_bytes,
                         int32_t value, strata_error *err) {
  stk_param params[STK_PARAMS_MAX];
  int32_t n = list_params(op, args, params);
  const stk_param *param = find(params, n, name, n_bytes);
  if (!param) return unknown(op, params, n, name, n_bytes, err);
  if (param->bit && (value < 0 || value > 1))
    ST_FAIL(err, ARG, "%s: %s=%d: 0 or 1 expected", op->name, param->name, value);
  stk_param_set(param, value);
  if (op->derive) op->derive(args);
  return STRATA_OK;
}

strata_status lab_params_set(const stk_op *op, void *args, const char *name, int32_t value,
                             strata_error *err) {
  return set(op, args, name, strlen(name), value, err);
}

bool lab_params_has(const stk_op *op, const void *args, const char *name) {
  stk_param params[STK_PARAMS_MAX];
  /* The list points into args; nothing is written through it here. */
  return find(params, list_params(op, (void *)(uintptr_t)args, params), name, strlen(name)) != NULL;
}

strata_status lab_params_parse(const stk_op *op, void *args, const char *list, strata_error *err) {
  while (*list) {
    size_t item = strcspn(list, ","), name = strcspn(list, "=,");
    const char *digits = list + name + 1;
    char *end = NULL;
    errno = 0;
    long long value = name && name < item && *digits >= '0' && *digits <= '9' ? strtoll(digits, &end, 10) : -1;
    if (errno || value < 0 || value > INT32_MAX || end != list + item)
      ST_FAIL(err, ARG, "%s: %.*s: NAME=NUMBER expected", op->name, item < 40 ? (int)item : 40, list);
    ST_TRY(set(op, args, list, name, (int32_t)value, err));
    list += item + (list[item] == ',');
  }
  return STRATA_OK;
}
