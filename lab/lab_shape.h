/* Sizes that a user asks for: an op's released shape with some of its parameters
 * set. */
#ifndef LAB_SHAPE_H
#define LAB_SHAPE_H

#include <strata/kernel.h>

#include "core/st_error.h"

enum { LAB_ARGS_MAX = 512, LAB_SETTINGS_MAX = 16, LAB_NAME_MAX = 16 };

/* Any op's args struct. */
typedef union lab_args {
  uint8_t bytes[LAB_ARGS_MAX];
  void *align;
} lab_args;

/* name = value, name being one of the op's parameters. */
typedef struct lab_setting {
  char name[LAB_NAME_MAX];
  int32_t value;
} lab_setting;

typedef struct lab_settings {
  lab_setting items[LAB_SETTINGS_MAX];
  int32_t n;
} lab_settings;

/* Adds a setting, or replaces the one of that name. LIMIT: too many. */
strata_status lab_settings_put(lab_settings *settings, const char *name, int32_t value,
                               strata_error *err);
/* Parses "k=v" or a list of these, separated by commas. ARG, naming the text. */
strata_status lab_settings_parse(lab_settings *settings, const char *text, strata_error *err);
/* "T=512 f32=0"; empty for no setting. */
void lab_settings_text(const lab_settings *settings, char *text, size_t n_bytes);

bool lab_op_has_param(const stk_op *op, const char *name);
/* ARG, with the names that the op has, unless it has all those of the settings. */
strata_status lab_settings_check(const lab_settings *settings, const stk_op *op, strata_error *err);

/* The op's released shape with those of the settings that it has. UNSUPPORTED if the
 * op has no released shape, or with its own words if it refuses the sizes. */
strata_status lab_args_make(const stk_op *op, const lab_settings *settings, lab_args *out,
                            strata_error *err);

#endif
