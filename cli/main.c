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
                                              &cmd_lab};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const char *command_name(const void *user, size_t index) {
  (void)user;
  if (index == N_COMMANDS) return "help";
  return index < N_COMMANDS ? commands[index]->name : NULL;
}

static strata_status find_command(const char *name, const cli_command **out, strata_error *err) {
  *out = NULL;
  for (size_t i = 0; i < N_COMMANDS; i++)
    if (!strcmp(commands[i]->name, name)) *out = commands[i];
  if (*out) return STRATA_OK;
  const char *near = cli_nearest(name, command_name, NULL);
  if (near) ST_FAIL(err, ARG, "unknown command: %s: did you mean %s?", name, near);
  ST_FAIL(err, ARG, "unknown command: %s: 'strata help' lists the commands", name);
}

static strata_status print_commands(strata_error *err) {
  printf("usage: strata COMMAND [options]\n\nRuns language models on this machine.\n\n");
  for (size_t i = 0; i < N_COMMANDS; i++)
    printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
  printf("  %-10s %s\n", "help", "list the commands, or show a command's help");
  printf("\n'strata COMMAND --help' shows the options of a command.\n"
         "'strata --version' shows the version.\n");
  return cli_flush(err);
}

static strata_status help(int argc, char **argv, strata_error *err) {
  const cli_command *command;
  if (argc == 0) return print_commands(err);
  ST_TRY(find_command(argv[0], &command, err));
  cli_print_help(command);
  return cli_flush(err);
}

static strata_status run_command(const cli_command *command, int argc, char **argv,
                                 strata_error *err) {
  cli_words words;
  bool wants_help;
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
  if (argc < 2) ST_FAIL(err, ARG, "no command: 'strata help' lists the commands");
  const char *word = argv[1];
  if (!strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h"))
    return help(argc - 2, argv + 2, err);
  if (!strcmp(word, "--version")) {
    printf("strata %s\n", STRATA_VERSION);
    return cli_flush(err);
  }
  ST_TRY(find_command(word, &command, err));
  return run_command(command, argc - 2, argv + 2, err);
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
