/* Setting parameters of an op's args. */
#include "lab/lab_shape.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

strata_status lab_settings_put(lab_settings *settings, const char *name, int32_t value,
                               strata_error *err) {
  int32_t i = 0;
  while (i < settings->n && strcmp(settings->items[i].name, name) != 0) ++i;
  if (i == LAB_SETTINGS_MAX) ST_FAIL(err, LIMIT, "%s: at most %d settings expected", name, i);
  if (strlen(name) >= LAB_NAME_MAX) ST_FAIL(err, ARG, "%s: the name of a parameter expected", name);
  snprintf(settings->items[i].name, LAB_NAME_MAX, "%s", name);
  settings->items[i].value = value;
  if (i == settings->n) ++settings->n;
  return STRATA_OK;
}

strata_status lab_settings_parse(lab_settings *settings, const char *text, strata_error *err) {
  const char *equals = strchr(text, '=');
  char name[LAB_NAME_MAX], *end;
  if (!equals || equals == text || (size_t)(equals - text) >= sizeof name)
    ST_FAIL(err, ARG, "%s: NAME=VALUE expected", text);
  snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
  errno = 0;
  long value = strtol(equals + 1, &end, 10);
  if (end == equals + 1 || *end || errno || value < INT32_MIN || value > INT32_MAX)
    ST_FAIL(err, ARG, "%s: a whole number behind = expected", text);
  return lab_settings_put(settings, name, (int32_t)value, err);
}

void lab_settings_text(const lab_settings *settings, char *text, size_t n_bytes) {
  size_t at = 0;
  text[0] = '\0';
  for (int32_t i = 0; i < settings->n && at < n_bytes; ++i)
    at += (size_t)snprintf(text + at, n_bytes - at, "%s%s=%d", i ? " " : "", settings->items[i].name,
                           settings->items[i].value);
}

/* The parameter of that name among args', or NULL. */
static const stk_param *find(const stk_op *op, void *args, const char *name,
                             stk_param params[STK_PARAMS_MAX]) {
  int32_t n = op->params ? op->params(args, params) : 0;
  for (int32_t i = 0; i < n; ++i)
    if (strcmp(params[i].name, name) == 0) return &params[i];
  return NULL;
}

bool lab_op_has_param(const stk_op *op, const char *name) {
  lab_args args = {{0}};
  stk_param params[STK_PARAMS_MAX];
  return find(op, args.bytes, name, params) != NULL;
}

strata_status lab_args_make(const stk_op *op, const lab_settings *settings, lab_args *out,
                            strata_error *err) {
  stk_param params[STK_PARAMS_MAX];
  *out = (lab_args){{0}};
  if (!op->released || op->args_bytes > sizeof *out)
    ST_FAIL(err, UNSUPPORTED, "%s: an op that has a released shape expected", op->name);
  memcpy(out->bytes, op->released, op->args_bytes);
  for (int32_t i = 0; i < settings->n; ++i) {
    const lab_setting *s = &settings->items[i];
    const stk_param *param = find(op, out->bytes, s->name, params);
    if (!param) continue;
    if (param->bit && s->value != 0 && s->value != 1)
      ST_FAIL(err, ARG, "%s=%d: 0 or 1 expected", s->name, s->value);
    stk_param_set(param, s->value);
  }
  if (op->derive) op->derive(out->bytes);
  const char *wrong = op->check(out->bytes);
  if (wrong) ST_FAIL(err, UNSUPPORTED, "%s", wrong);
  return STRATA_OK;
}
