/* Setting parameters of an op's args. */
#include "lab/lab_shape.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab_params.h"

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

bool lab_op_has_param(const stk_op *op, const char *name) {
  return op->released && lab_params_has(op, op->released, name);
}

strata_status lab_args_make(const stk_op *op, const lab_settings *settings, lab_args *out,
                            strata_error *err) {
  *out = (lab_args){{0}};
  if (!op->released || op->args_bytes > sizeof *out)
    ST_FAIL(err, UNSUPPORTED, "%s: an op that has a released shape expected", op->name);
  memcpy(out->bytes, op->released, op->args_bytes);
  for (int32_t i = 0; i < settings->n; ++i) {
    const lab_setting *s = &settings->items[i];
    if (lab_op_has_param(op, s->name)) ST_TRY(lab_params_set(op, out->bytes, s->name, s->value, err));
  }
  const char *wrong = op->check(out->bytes);
  if (wrong) ST_FAIL(err, UNSUPPORTED, "%s", wrong);
  return STRATA_OK;
}
