/* The program: finds the command, parses its options, runs it, and turns what
 * it returns into one line and an exit code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_args.h"
#include "cli_term.h"
#include "core/st_error.h"

static const cli_command *const commands[] = {&cmd_run,    &cmd_chat, &cmd_tokenize,
                                              &cmd_logits, &cmd_ppl,  &cmd_info,
                                              &cmd_lab,    NULL};

/* Where a word is looked for: "" and all commands, or "lab " and its own. */
typedef struct family {
  const char *prefix;
  const cli_command *const *commands;
} family;

static const char *command_name(const void *user, size_t index) {
  const family *f = user;
  size_t n = 0;
  while (f->commands[n]) n++;
  if (index == n && !*f->prefix) return "help";
  return index < n ? cli_last_word(f->commands[index]) : NULL;
}

static strata_status find_in(const family *f, const char *name, const cli_command **out,
                             strata_error *err) {
  *out = NULL;
  for (size_t i = 0; f->commands[i]; i++)
    if (!strcmp(cli_last_word(f->commands[i]), name)) *out = f->commands[i];
  if (*out) return STRATA_OK;
  const char *near = cli_nearest(name, command_name, f);
  if (near) ST_FAIL(err, ARG, "unknown command: %s%s: did you mean %s%s?", f->prefix, name,
                    f->prefix, near);
  ST_FAIL(err, ARG, "unknown command: %s%s: 'strata %s--help' lists the commands", f->prefix, name,
          f->prefix);
}

/* Finds the command that the first words of argv name, one or two of them; *n says
 * how many. A command that has subcommands is found by itself if it stands alone,
 * or before --help. */
static strata_status find_command(int argc, char **argv, const cli_command **out, int *n,
                                  strata_error *err) {
  ST_TRY(find_in(&(family){"", commands}, argv[0], out, err));
  *n = 1;
  if (!(*out)->subcommands || argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
    return STRATA_OK;
  char prefix[32];
  snprintf(prefix, sizeof prefix, "%s ", (*out)->name);
  *n = 2;
  return find_in(&(family){prefix, (*out)->subcommands}, argv[1], out, err);
}

static strata_status print_commands(strata_error *err) {
  printf("usage: strata COMMAND [options]\n\nRuns language models on this machine.\n\n");
  cli_print_summaries(commands);
  printf("  %-10s %s\n", "help", "list the commands, or show a command's help");
  printf("\n'strata COMMAND --help' shows the options of a command.\n"
         "'strata --version' shows the version.\n");
  return cli_flush(err);
}

static strata_status help(int argc, char **argv, strata_error *err) {
  const cli_command *command;
  int n;
  if (argc == 0) return print_commands(err);
  ST_TRY(find_command(argc, argv, &command, &n, err));
  cli_print_help(command);
  return cli_flush(err);
}

static strata_status run_command(const cli_command *command, int argc, char **argv,
                                 strata_error *err) {
  cli_words words;
  bool wants_help;
  if (command->subcommands && argc == 0)
    ST_FAIL(err, ARG, "%s: no command: 'strata %s --help' lists them", command->name, command->name);
  if (command->subcommands) {
    cli_print_help(command);
    return cli_flush(err);
  }
  void *args = malloc(command->args_bytes);
  if (!args) return st_error_nomem(err, "arguments", command->args_bytes);
  strata_status status = cli_parse(command, argc, argv, args, &words, &wants_help, err);
  if (status == STRATA_OK && wants_help) {
    cli_print_help(command);
    status = cli_flush(err);
  } else if (status == STRATA_OK) {
    status = command->run(args, &words, err);
  }
  free(args);
  return status;
}

static strata_status dispatch(int argc, char **argv, strata_error *err) {
  const cli_command *command;
  int n;
  if (argc < 2) ST_FAIL(err, ARG, "no command: 'strata help' lists the commands");
  const char *word = argv[1];
  if (!strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h"))
    return help(argc - 2, argv + 2, err);
  if (!strcmp(word, "--version")) {
    printf("strata %s\n", STRATA_VERSION);
    return cli_flush(err);
  }
  ST_TRY(find_command(argc - 1, argv + 1, &command, &n, err));
  return run_command(command, argc - 1 - n, argv + 1 + n, err);
}

int main(int argc, char **argv) {
  strata_error err = {0};
  cli_ignore_broken_pipes();
  cli_interrupt_arm();
  strata_status status = dispatch(argc, argv, &err);
  /* After Ctrl-C the exit code says it all. */
  if (status != STRATA_OK && status != STRATA_CANCELLED) cli_print_error(&err);
  return strata_status_exit_code(status);
}
