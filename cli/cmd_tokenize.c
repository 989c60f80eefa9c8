/* strata tokenize: text to token ids and back. */
#include <stdio.h>
#include <unistd.h>

#include "cli_args.h"
#include "cli_term.h"
#include "core/st_error.h"

typedef struct tokenize_args {
  const char *model;
  bool decode, literal, json;
} tokenize_args;

static const tokenize_args tokenize_defaults = {0};

static const cli_option tokenize_options[] = {
    CLI_OPTION_MODEL(tokenize_args),
    {0, "decode", NULL, CLI_FLAG, offsetof(tokenize_args, decode), 0, 0, NULL,
     "read ids, write their text"},
    CLI_OPTION_LITERAL(tokenize_args),
    CLI_OPTION_JSON(tokenize_args),
};

static json_t *token_json(int32_t id, const char *text, size_t n_bytes) {
  return json_pack("{s:i, s:o}", "id", (int)id, "text", json_stringn(text, n_bytes));
}

static strata_status print_tokens_json(const strata_tokenizer *tokenizer, const cli_ids *ids,
                                       strata_error *err) {
  json_t *root = json_array();
  for (size_t i = 0; i < ids->n; i++) {
    char *text;
    size_t n_bytes;
    strata_status status =
        strata_tokenizer_decode(tokenizer, &ids->items[i], 1, false, &text, &n_bytes, err);
    if (status != STRATA_OK) {
      json_decref(root);
      return status;
    }
    json_array_append_new(root, token_json(ids->items[i], text, n_bytes));
    strata_free(text);
  }
  return cli_json_print(root, err);
}

static strata_status encode(const tokenize_args *args, const strata_tokenizer *tokenizer,
                            const cli_text *text, cli_ids *ids, strata_error *err) {
  ST_TRY(cli_ids_encode(ids, tokenizer, text, args->literal, err));
  if (args->json) return print_tokens_json(tokenizer, ids, err);
  for (size_t i = 0; i < ids->n; i++) printf("%s%d", i ? " " : "", ids->items[i]);
  putchar('\n');
  return cli_flush(err);
}

static strata_status decode(const tokenize_args *args, const strata_tokenizer *tokenizer,
                            const cli_ids *ids, strata_error *err) {
  char *text;
  size_t n_bytes;
  ST_TRY(strata_tokenizer_decode(tokenizer, ids->items, ids->n, false, &text, &n_bytes, err));
  if (args->json) {
    json_t *root = json_pack("{s:o}", "text", json_stringn(text, n_bytes));
    strata_free(text);
    return cli_json_print(root, err);
  }
  fwrite(text, 1, n_bytes, stdout);
  /* The exact bytes for a file or a pipe; a terminal's prompt wants a new line. */
  if (isatty(STDOUT_FILENO) && n_bytes && text[n_bytes - 1] != '\n') putchar('\n');
  strata_free(text);
  return cli_flush(err);
}

/* The ids of all words, or of standard input if there are none. */
static strata_status read_ids(const cli_words *words, cli_text *text, cli_ids *ids,
                              strata_error *err) {
  for (int i = 0; i < words->n; i++)
    ST_TRY(cli_ids_parse(ids, words->items[i], "ids", 0, INT32_MAX, err));
  if (words->n) return STRATA_OK;
  ST_TRY(cli_text_read(text, "-", err));
  return cli_ids_parse(ids, text->text, "ids", 0, INT32_MAX, err);
}

static strata_status read_text(const cli_words *words, cli_text *text, strata_error *err) {
  ST_TRY(cli_words_at_most(words, 1, "one text, in quotes,", err));
  if (words->n) return cli_text_copy(text, words->items[0], err);
  return cli_text_read(text, "-", err);
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  const tokenize_args *args = command_args;
  strata_status status = STRATA_OK;
  strata_tokenizer *tokenizer = NULL;
  char path[CLI_PATH_BYTES];
  cli_text text = {0};
  cli_ids ids = {0};
  if (args->decode && args->literal)
    ST_FAIL(err, ARG, "--literal: with --decode: a text to encode expected");
  ST_TRY_OUT(args->decode ? read_ids(words, &text, &ids, err) : read_text(words, &text, err));
  ST_TRY_OUT(cli_model_locate(args->model, path, err));
  ST_TRY_OUT(strata_tokenizer_open(path, &tokenizer, err));
  ST_TRY_OUT(args->decode ? decode(args, tokenizer, &ids, err)
                          : encode(args, tokenizer, &text, &ids, err));
out:
  strata_tokenizer_close(&tokenizer);
  cli_ids_release(&ids);
  cli_text_release(&text);
  return status;
}

const cli_command cmd_tokenize = {
    .name = "tokenize",
    .summary = "turn text into token ids, or ids into text",
    .usage = "[-m DIR] [--literal] [TEXT]\n       strata tokenize [-m DIR] --decode [ID ...]",
    .details =
        "Writes the ids of TEXT on one line, separated by spaces; with --decode the exact text of "
        "the ids. What is not given as an argument is read from standard input. Names of added "
        "tokens such as <|im_end|> are read as these tokens unless --literal is given.\n"
        "With --json: an array of {id, text}, the text of each token alone; with --decode an "
        "object {text}.",
    .options = tokenize_options,
    .n_options = sizeof tokenize_options / sizeof tokenize_options[0],
    .defaults = &tokenize_defaults,
    .args_bytes = sizeof tokenize_defaults,
    .run = run};
