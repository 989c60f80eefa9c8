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

static strata_status parse_one(lab_settings *settings, const char *text, strata_error *err) {
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

strata_status lab_settings_parse(lab_settings *settings, const char *text, strata_error *err) {
  char item[64];
  for (bool more = true; more; ++text) {
    size_t n = strcspn(text, ",");
    snprintf(item, sizeof item, "%.*s", (int)(n < sizeof item ? n : sizeof item), text);
    ST_TRY(parse_one(settings, item, err));
    text += n;
    more = *text == ',';
  }
  return STRATA_OK;
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

/* How many there are may depend on the shape, so the released one is asked. */
static int32_t list_params(const stk_op *op, lab_args *args, stk_param params[STK_PARAMS_MAX]) {
  *args = (lab_args){{0}};
  if (op->released && op->args_bytes <= sizeof *args) memcpy(args->bytes, op->released, op->args_bytes);
  return op->params ? op->params(args->bytes, params) : 0;
}

bool lab_op_has_param(const stk_op *op, const char *name) {
  lab_args args;
  stk_param params[STK_PARAMS_MAX];
  list_params(op, &args, params);
  return find(op, args.bytes, name, params) != NULL;
}

strata_status lab_settings_check(const lab_settings *settings, const stk_op *op, strata_error *err) {
  for (int32_t i = 0; i < settings->n; ++i) {
    if (lab_op_has_param(op, settings->items[i].name)) continue;
    lab_args args;
    stk_param params[STK_PARAMS_MAX];
    char names[128] = "no parameters";
    size_t at = 0;
    int32_t n = list_params(op, &args, params);
    for (int32_t p = 0; p < n && at < sizeof names; ++p)
      at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", p ? ", " : "", params[p].name);
    ST_FAIL(err, ARG, "%s: %s: one of %s expected", op->name, settings->items[i].name, names);
  }
  return STRATA_OK;
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
