/* Option tables, strict values, and the things that arguments name. */
#include "cli_args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli_term.h"
#include "core/st_error.h"
#include "os/st_file.h"
#include "os/st_process.h"

/* Where an installed program keeps its data; the Makefile may say otherwise. */
#ifndef STRATA_DATADIR
#define STRATA_DATADIR "/usr/local/share/strata"
#endif

/* ---- hints ----------------------------------------------------------------- */

enum { WORD_MAX = 31 };

static size_t min3(size_t a, size_t b, size_t c) {
  size_t least = a < b ? a : b;
  return least < c ? least : c;
}

/* Insertions, deletions, changes and swaps of neighbours that turn a into b
 * (optimal string alignment); both at most WORD_MAX bytes long. */
static size_t edit_distance(const char *a, const char *b) {
  size_t cost[WORD_MAX + 1][WORD_MAX + 1];
  size_t n = strlen(a), m = strlen(b);
  for (size_t i = 0; i <= n; i++) cost[i][0] = i;
  for (size_t j = 0; j <= m; j++) cost[0][j] = j;
  for (size_t i = 1; i <= n; i++) {
    for (size_t j = 1; j <= m; j++) {
      size_t change = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      cost[i][j] = min3(cost[i - 1][j] + 1, cost[i][j - 1] + 1, change);
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped && cost[i - 2][j - 2] + 1 < cost[i][j]) cost[i][j] = cost[i - 2][j - 2] + 1;
    }
  }
  return cost[n][m];
}

const char *cli_nearest(const char *word, const char *(*candidate)(const void *user, size_t index),
                        const void *user) {
  const char *best = NULL, *name;
  /* One slip in a short word, two in a longer one; more is another word. */
  size_t n = strlen(word), least = n < 4 ? 2 : 3;
  if (n == 0 || n > WORD_MAX) return NULL;
  for (size_t i = 0; (name = candidate(user, i)) != NULL; i++) {
    if (strlen(name) > WORD_MAX) continue;
    size_t distance = edit_distance(word, name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

/* ---- parsing --------------------------------------------------------------- */

static const char *option_name(const void *user, size_t index) {
  const cli_command *command = user;
  if (index == command->n_options) return "help";
  return index < command->n_options ? command->options[index].name : NULL;
}

static strata_status unknown_option(const cli_command *command, const char *arg, size_t n_bytes,
                                    strata_error *err) {
  char word[WORD_MAX + 1];
  const char *near = NULL;
  const char *start = arg + strspn(arg, "-");
  size_t n = n_bytes - (size_t)(start - arg);
  if (n <= WORD_MAX) {
    memcpy(word, start, n);
    word[n] = 0;
    near = cli_nearest(word, option_name, command);
  }
  if (near) ST_FAIL(err, ARG, "%s: unknown option %.*s: did you mean --%s?", command->name,
                    (int)n_bytes, arg, near);
  ST_FAIL(err, ARG, "%s: unknown option %.*s: 'strata %s --help' lists the options", command->name,
          (int)n_bytes, arg, command->name);
}

static strata_status parse_int(const cli_option *option, const char *value, int32_t *out,
                               strata_error *err) {
  char *end;
  errno = 0;
  long long number = strtoll(value, &end, 10);
  bool whole = *value && !strchr(" \t\n\v\f\r+", *value) && !*end && !errno;
  if (!whole || (double)number < option->min || (double)number > option->max)
    ST_FAIL(err, ARG, "--%s: %s: a whole number from %.0f to %.0f expected", option->name, value,
            option->min, option->max);
  *out = (int32_t)number;
  return STRATA_OK;
}

static strata_status parse_real(const cli_option *option, const char *value, float *out,
                                strata_error *err) {
  char *end;
  /* Only plain decimals: strtod would also take hexadecimal, "inf" and "nan". */
  bool plain = *value && !value[strspn(value, "0123456789.eE+-")];
  double number = plain ? strtod(value, &end) : 0;
  if (!plain || *end || !(number >= option->min && number <= option->max))
    ST_FAIL(err, ARG, "--%s: %s: a number from %g to %g expected", option->name, value,
            option->min, option->max);
  *out = (float)number;
  return STRATA_OK;
}

static strata_status parse_seed(const cli_option *option, const char *value, uint64_t *out,
                                strata_error *err) {
  errno = 0;
  bool plain = *value && !value[strspn(value, "0123456789")];
  unsigned long long number = plain ? strtoull(value, NULL, 10) : 0;
  if (!plain || errno)
    ST_FAIL(err, ARG, "--%s: %s: a whole number from 0 to %llu expected", option->name, value,
            (unsigned long long)UINT64_MAX);
  *out = number;
  return STRATA_OK;
}

static strata_status parse_choice(const cli_option *option, const char *value, const char **out,
                                  strata_error *err) {
  size_t n = strlen(value);
  for (const char *c = option->choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL) {
    if (strcspn(c, "|") == n && n && !memcmp(c, value, n)) {
      *out = value;
      return STRATA_OK;
    }
  }
  ST_FAIL(err, ARG, "--%s: %s: one of %s expected", option->name, value, option->choices);
}

static strata_status set_option(const cli_option *option, const char *value, void *args,
                                strata_error *err) {
  void *field = (char *)args + option->offset;
  switch (option->type) {
    case CLI_FLAG: *(bool *)field = true; return STRATA_OK;
    case CLI_INT: return parse_int(option, value, field, err);
    case CLI_REAL: return parse_real(option, value, field, err);
    case CLI_SEED: return parse_seed(option, value, field, err);
    case CLI_TEXT:
    case CLI_PAIR: *(const char **)field = value; return STRATA_OK;
    case CLI_CHOICE: return parse_choice(option, value, field, err);
    case CLI_OPTIONAL:
      if (value) return parse_choice(option, value, field, err);
      *(const char **)field = option->choices;
      return STRATA_OK;
  }
  ST_FAIL(err, INTERNAL, "--%s: type %d: a known option type expected", option->name,
          (int)option->type);
}

static const cli_option *find_option(const cli_command *command, const char *name, size_t n_bytes,
                                     char letter) {
  for (size_t i = 0; i < command->n_options; i++) {
    const cli_option *option = &command->options[i];
    if (letter ? option->letter == letter
               : strlen(option->name) == n_bytes && !memcmp(option->name, name, n_bytes))
      return option;
  }
  return NULL;
}

/* Takes the option at argv[*i], and its value from there or from the next one. */
static strata_status take_option(const cli_command *command, int argc, char **argv, int *i,
                                 void *args, strata_error *err) {
  const char *arg = argv[*i], *value = NULL;
  bool is_long = arg[1] == '-';
  size_t n_bytes = is_long ? strcspn(arg, "=") : strlen(arg);
  const cli_option *option =
      is_long ? find_option(command, arg + 2, n_bytes - 2, 0) : find_option(command, "", 0, arg[1]);
  bool wants_value = option && option->type != CLI_FLAG && option->type != CLI_OPTIONAL;
  if (is_long && arg[n_bytes] == '=') value = arg + n_bytes + 1;
  if (!is_long && arg[2] && wants_value && option->type == CLI_INT) value = arg + 2;
  if (!option || (!is_long && arg[2] && !value)) return unknown_option(command, arg, n_bytes, err);
  if (value && option->type == CLI_FLAG)
    ST_FAIL(err, ARG, "--%s: %s: no value expected", option->name, value);
  if (wants_value && !value) {
    if (*i + 1 >= argc)
      ST_FAIL(err, ARG, "--%s: no value: %s expected", option->name, option->placeholder);
    value = argv[++*i];
  }
  if (option->type == CLI_PAIR) {
    if (*i + 1 >= argc)
      ST_FAIL(err, ARG, "--%s: one value: %s expected", option->name, option->placeholder);
    ((const char **)(void *)((char *)args + option->offset))[1] = argv[++*i];
  }
  return set_option(option, value, args, err);
}

strata_status cli_parse(const cli_command *command, int argc, char **argv, void *args,
                        cli_words *words, bool *help, strata_error *err) {
  bool options_over = false;
  *words = (cli_words){.items = argv};
  *help = false;
  memcpy(args, command->defaults, command->args_bytes);
  for (int i = 0; i < argc; i++) {
    bool is_option = !options_over && argv[i][0] == '-' && argv[i][1];
    if (is_option && !strcmp(argv[i], "--")) {
      options_over = true;
    } else if (is_option && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
      *help = true;
      return STRATA_OK;
    } else if (is_option) {
      ST_TRY(take_option(command, argc, argv, &i, args, err));
    } else {
      argv[words->n++] = argv[i];
    }
  }
  return STRATA_OK;
}

strata_status cli_words_at_most(const cli_words *words, int max, const char *what,
                                strata_error *err) {
  if (words->n > max) ST_FAIL(err, ARG, "unexpected argument: %s: %s expected", words->items[max],
                              what);
  return STRATA_OK;
}

/* ---- help ------------------------------------------------------------------ */

enum { HELP_INDENT = 26, HELP_COLUMNS = 80 };

/* Prints text broken at spaces; the first line starts at column `at`, the others
 * at column `indent`. A newline in the text ends its line. */
static void print_wrapped(const char *text, int at, int indent) {
  while (*text) {
    int word = (int)strcspn(text, " \n");
    if (at > indent && at + 1 + word > HELP_COLUMNS) {
      printf("\n%*s", indent, "");
      at = indent;
    }
    if (at > indent) putchar(' ');
    printf("%.*s", word, text);
    at += word + (at > indent);
    text += word;
    if (*text == '\n') {
      printf("\n%*s", text[1] == '\n' ? 0 : indent, "");
      at = indent;
    }
    if (*text) text++;
  }
  putchar('\n');
}

static void print_option(char letter, const char *name, const char *value, const char *help) {
  char head[64], short_name[8] = "    ";
  if (letter) snprintf(short_name, sizeof short_name, "-%c, ", letter);
  int n = snprintf(head, sizeof head, "  %s--%s%s", short_name, name, value);
  printf("%s", head);
  if (n + 2 > HELP_INDENT) {
    printf("\n%*s", HELP_INDENT, "");
  } else {
    printf("%*s", HELP_INDENT - n, "");
  }
  print_wrapped(help, HELP_INDENT, HELP_INDENT);
}

const char *cli_last_word(const cli_command *command) {
  const char *space = strrchr(command->name, ' ');
  return space ? space + 1 : command->name;
}

void cli_print_summaries(const cli_command *const *commands) {
  for (size_t i = 0; commands[i]; i++)
    printf("  %-10s %s\n", cli_last_word(commands[i]), commands[i]->summary);
}

void cli_print_help(const cli_command *command) {
  int at = printf("usage: strata %s", command->name);
  print_wrapped(command->usage, at, 2);
  putchar('\n');
  print_wrapped(command->details, 0, 0);
  putchar('\n');
  for (size_t i = 0; i < command->n_options; i++) {
    const cli_option *option = &command->options[i];
    char value[32] = "";
    if (option->type == CLI_OPTIONAL) {
      snprintf(value, sizeof value, "[=%s]", option->placeholder);
    } else if (option->placeholder) {
      snprintf(value, sizeof value, " %s", option->placeholder);
    }
    print_option(option->letter, option->name, value, option->help);
  }
  print_option('h', "help", "", "show this help");
  if (!command->subcommands) return;
  printf("\n'strata %s COMMAND --help' shows the options of one:\n\n", command->name);
  cli_print_summaries(command->subcommands);
}

strata_kv cli_kv(const char *name) {
  return !name || !strcmp(name, "f32") ? STRATA_KV_F32 : !strcmp(name, "f16") ? STRATA_KV_F16 : STRATA_KV_Q8;
}

/* ---- models ---------------------------------------------------------------- */

strata_chat_options cli_chat_options(const cli_chat_args *args) {
  return (strata_chat_options){.disable_thinking = args->think && !strcmp(args->think, "off"),
                               .reasoning_effort = args->effort};
}

strata_status cli_model_locate(const char *given, char path[CLI_PATH_BYTES], strata_error *err) {
  if (given) {
    if (strlen(given) >= CLI_PATH_BYTES)
      ST_FAIL(err, ARG, "--model: %zu bytes: a path shorter than %d bytes expected", strlen(given),
              CLI_PATH_BYTES);
    memcpy(path, given, strlen(given) + 1);
    return STRATA_OK;
  }
  static const char in_tree[] = "/models/strata-tiny";
  static const char installed[] = STRATA_DATADIR "/models/strata-tiny";
  st_process_executable(path, CLI_PATH_BYTES - sizeof in_tree);
  /* TREE/build/strata: two names are cut off to come to TREE. */
  for (int i = 0; i < 2; i++) {
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
  }
  memcpy(path + strlen(path), in_tree, sizeof in_tree);
  if (st_path_probe(path) != ST_PATH_DIRECTORY) memcpy(path, installed, sizeof installed);
  if (st_path_probe(path) != ST_PATH_DIRECTORY)
    ST_FAIL(err, ARG, "--model: not given: a model directory expected (no shipped model at %s)",
            path);
  cli_note("no -m given, using the shipped model %s", path);
  return STRATA_OK;
}

strata_status cli_model_open(cli_model *model, const char *given, int32_t n_threads,
                             bool with_tokenizer, strata_error *err) {
  strata_engine_options options = {.n_threads = n_threads};
  ST_TRY(cli_model_locate(given, model->path, err));
  ST_TRY(strata_engine_new(&options, &model->engine, err));
  ST_TRY(strata_model_open(model->engine, model->path, &model->model, err));
  strata_model_get_info(model->model, &model->info);
  if (with_tokenizer) ST_TRY(strata_tokenizer_open(model->path, &model->tokenizer, err));
  return STRATA_OK;
}

void cli_model_close(cli_model *model) {
  strata_tokenizer_close(&model->tokenizer);
  strata_model_close(&model->model);
  strata_engine_free(&model->engine);
}

/* ---- texts ----------------------------------------------------------------- */

/* Doubles *memory until it holds need bytes. */
static strata_status reserve(void **memory, size_t *capacity, size_t need, const char *what,
                             strata_error *err) {
  size_t grown = *capacity ? *capacity : 4096;
  while (grown < need && grown <= SIZE_MAX / 2) grown *= 2;
  if (grown == *capacity) return STRATA_OK;
  void *moved = grown >= need ? realloc(*memory, grown) : NULL;
  if (!moved) return st_error_nomem(err, what, need);
  *memory = moved;
  *capacity = grown;
  return STRATA_OK;
}

static strata_status read_stream(cli_text *out, FILE *stream, const char *name,
                                 strata_error *err) {
  void *memory = NULL;
  size_t capacity = 0, got = 1;
  while (got && !cli_interrupted()) {
    strata_status status = reserve(&memory, &capacity, out->n_bytes + 4096 + 1, name, err);
    out->text = memory;
    if (status != STRATA_OK) return status;
    errno = 0;
    got = fread(out->text + out->n_bytes, 1, capacity - out->n_bytes - 1, stream);
    out->n_bytes += got;
    out->text[out->n_bytes] = 0;
  }
  if (cli_interrupted()) ST_FAIL(err, CANCELLED, "%s: interrupted while reading", name);
  if (ferror(stream)) ST_FAIL(err, IO, "%s: %s: a readable file expected", name, strerror(errno));
  return STRATA_OK;
}

strata_status cli_text_read(cli_text *out, const char *path, strata_error *err) {
  *out = (cli_text){0};
  if (!strcmp(path, "-")) return read_stream(out, stdin, "standard input", err);
  FILE *stream = fopen(path, "re");
  if (!stream) ST_FAIL(err, IO, "%s: %s: a readable file expected", path, strerror(errno));
  strata_status status = read_stream(out, stream, path, err);
  fclose(stream);
  return status;
}

strata_status cli_text_copy(cli_text *out, const char *text, strata_error *err) {
  size_t n_bytes = strlen(text);
  *out = (cli_text){.text = malloc(n_bytes + 1)};
  if (!out->text) return st_error_nomem(err, "an argument", n_bytes + 1);
  memcpy(out->text, text, n_bytes + 1);
  out->n_bytes = n_bytes;
  return STRATA_OK;
}

void cli_text_release(cli_text *text) {
  free(text->text);
  *text = (cli_text){0};
}

/* ---- id lists -------------------------------------------------------------- */

strata_status cli_ids_append(cli_ids *ids, const int32_t *items, size_t n, strata_error *err) {
  void *memory = ids->items;
  size_t capacity_bytes = ids->capacity * sizeof *items;
  ST_TRY(reserve(&memory, &capacity_bytes, (ids->n + n) * sizeof *items, "token ids", err));
  ids->items = memory;
  ids->capacity = capacity_bytes / sizeof *items;
  if (n) memcpy(ids->items + ids->n, items, n * sizeof *items);
  ids->n += n;
  return STRATA_OK;
}

strata_status cli_ids_parse(cli_ids *ids, const char *list, const char *what, int32_t min,
                            int32_t max, strata_error *err) {
  static const char separators[] = ", \t\r\n";
  for (list += strspn(list, separators); *list; list += strspn(list, separators)) {
    size_t n_bytes = strcspn(list, separators);
    bool digits = strspn(list, "0123456789") == n_bytes;
    errno = 0;
    long long number = digits ? strtoll(list, NULL, 10) : -1;
    if (errno || number < min || number > max)
      ST_FAIL(err, ARG, "%s: %.*s: whole numbers from %d to %d, separated by commas or spaces, "
              "expected", what, n_bytes < 40 ? (int)n_bytes : 40, list, min, max);
    int32_t id = (int32_t)number;
    ST_TRY(cli_ids_append(ids, &id, 1, err));
    list += n_bytes;
  }
  return STRATA_OK;
}

strata_status cli_ids_encode(cli_ids *ids, const strata_tokenizer *tokenizer, const cli_text *text,
                             bool literal, strata_error *err) {
  int32_t *items;
  size_t n;
  ST_TRY(strata_tokenizer_encode(
      tokenizer, text->text, text->n_bytes,
      literal ? STRATA_MATCH_ADDED_NEVER : STRATA_MATCH_ADDED_EVERYWHERE, NULL, 0, &items, &n,
      err));
  strata_status status = cli_ids_append(ids, items, n, err);
  strata_free(items);
  return status;
}

strata_status cli_ids_encode_chat(cli_ids *ids, const strata_tokenizer *tokenizer,
                                  const strata_chat_template *chat_template,
                                  const strata_message *messages, size_t n_messages,
                                  const strata_chat_options *options, strata_error *err) {
  strata_status status = STRATA_OK;
  char *text = NULL;
  strata_span *spans = NULL;
  int32_t *items = NULL;
  size_t n_bytes, n_spans, n;
  ST_TRY_OUT(strata_chat_render(chat_template, messages, n_messages, options, &text, &n_bytes,
                                &spans, &n_spans, err));
  ST_TRY_OUT(strata_tokenizer_encode(tokenizer, text, n_bytes, STRATA_MATCH_ADDED_IN_SPANS, spans,
                                     n_spans, &items, &n, err));
  ST_TRY_OUT(cli_ids_append(ids, items, n, err));
out:
  strata_free(text);
  strata_free(spans);
  strata_free(items);
  return status;
}

void cli_ids_release(cli_ids *ids) {
  free(ids->items);
  *ids = (cli_ids){0};
}

/* ---- files to be written --------------------------------------------------- */

strata_status cli_check_output(const char *option, const char *path, strata_error *err) {
  struct stat st;
  if (path && stat(path, &st) == 0 && !S_ISREG(st.st_mode))
    ST_FAIL(err, ARG, "%s: %s: a new name or a regular file expected", option, path);
  return STRATA_OK;
}
