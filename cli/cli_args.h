/* What the user says: commands and their option tables, strict values, and the
 * models, texts and id lists that arguments name.
 *
 * A command is one cli_command. Its options are rows that point into a struct
 * of its own, so parsing, range checks and --help come from the same table. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <strata/strata.h>

/* ---- commands and options -------------------------------------------------- */

typedef enum cli_type {
  CLI_FLAG,     /* bool */
  CLI_INT,      /* int32_t in min .. max */
  CLI_REAL,     /* float in min .. max */
  CLI_SEED,     /* uint64_t */
  CLI_TEXT,     /* const char *, a view of argv */
  CLI_CHOICE,   /* const char *, one of choices */
  CLI_PAIR,     /* const char *[2], the next two words */
  CLI_OPTIONAL, /* as CHOICE, given only as --name=VALUE; alone: the first choice */
} cli_type;

typedef struct cli_option {
  char letter;             /* 0: none */
  const char *name;        /* without the dashes */
  const char *placeholder; /* of the value in --help; NULL for a flag */
  cli_type type;
  size_t offset;       /* of the field in the command's args */
  double min, max;     /* INT and REAL */
  const char *choices; /* "on|off" */
  const char *help;
} cli_option;

/* Arguments that are not options, in order; "-" counts as one of them. */
typedef struct cli_words {
  char **items;
  int n;
} cli_words;

typedef struct cli_command {
  const char *name, *summary;
  const char *usage;   /* what follows "strata NAME" */
  const char *details; /* paragraphs for --help, one line each */
  /* Commands of its own, NULL at the end, each with a name such as "lab roof".
   * Then the command has no options and does not run by itself. */
  const struct cli_command *const *subcommands;
  const cli_option *options;
  size_t n_options;
  const void *defaults; /* the args before parsing, args_bytes of them */
  size_t args_bytes;
  strata_status (*run)(const void *args, const cli_words *words, strata_error *err);
} cli_command;

extern const cli_command cmd_run, cmd_chat, cmd_tokenize, cmd_logits, cmd_ppl, cmd_info, cmd_lab;

/* fills args (defaults, then what argv says) and *words, whose items are argv's
 * own array, reordered. *help: --help was met; the rest is then not looked at. */
strata_status cli_parse(const cli_command *command, int argc, char **argv, void *args,
                        cli_words *words, bool *help, strata_error *err);
void cli_print_help(const cli_command *command);
/* A line for each command of a list that NULL ends. */
void cli_print_summaries(const cli_command *const *commands);
/* What the user types for it: "roof" for "lab roof". */
const char *cli_last_word(const cli_command *command);

/* What --kv says; NULL: f32. */
strata_kv cli_kv(const char *name);

/* The candidate nearest to a mistyped word, or NULL if none is near. Candidates
 * are asked for by index until NULL comes. */
const char *cli_nearest(const char *word, const char *(*candidate)(const void *user, size_t index),
                        const void *user);

/* ARG unless there are at most max words; what says what they mean. */
strata_status cli_words_at_most(const cli_words *words, int max, const char *what,
                                strata_error *err);

/* Rows that several commands share; args is the type of the command's struct. */
#define CLI_OPTION_MODEL(args)                                             \
  {                                                                        \
    'm', "model", "DIR", CLI_TEXT, offsetof(args, model), 0, 0, NULL,      \
        "a Hugging Face model directory (default: the shipped strata-tiny)" \
  }
#define CLI_OPTION_THREADS(args)                                         \
  {                                                                      \
    0, "threads", "N", CLI_INT, offsetof(args, threads), 0, 256, NULL,   \
        "threads to compute with (default 0: one for each available CPU)" \
  }
#define CLI_OPTION_WINDOW(args)                                     \
  {                                                                 \
    0, "window", "T", CLI_INT, offsetof(args, window), 1, 65536, NULL, \
        "tokens that are run at once while text is read (default 512)" \
  }
#define CLI_OPTION_KV(args)                                                     \
  {                                                                             \
    0, "kv", "f32|f16|q8", CLI_CHOICE, offsetof(args, kv), 0, 0, "f32|f16|q8",   \
        "how keys and values are held (default f32); q8 takes a quarter of f32"  \
  }
#define CLI_OPTION_JSON(args)                                 \
  {                                                           \
    0, "json", NULL, CLI_FLAG, offsetof(args, json), 0, 0, NULL, \
        "write the result as JSON"                            \
  }
#define CLI_OPTION_LITERAL(args)                                     \
  {                                                                  \
    0, "literal", NULL, CLI_FLAG, offsetof(args, literal), 0, 0, NULL, \
        "read names of added tokens such as <|im_end|> as plain text" \
  }
/* For a field "sampling" of type strata_sampler_options. */
#define CLI_OPTIONS_SAMPLING(args)                                                               \
  {0, "temp", "X", CLI_REAL, offsetof(args, sampling.temperature), 0, 100, NULL,                 \
   "temperature; 0 picks the likeliest token (default 0)"},                                      \
      {0, "top-k", "K", CLI_INT, offsetof(args, sampling.top_k), 0, 2147483647, NULL,            \
       "draw among the K likeliest tokens only (default 0: all)"},                               \
      {0, "top-p", "P", CLI_REAL, offsetof(args, sampling.top_p), 0, 1, NULL,                    \
       "draw among the likeliest tokens that together reach probability P (default 1: all)"},    \
      {0, "min-p", "P", CLI_REAL, offsetof(args, sampling.min_p), 0, 1, NULL,                    \
       "leave out tokens less likely than P times the likeliest (default 0: none)"},             \
  {                                                                                              \
    0, "seed", "S", CLI_SEED, offsetof(args, sampling.seed), 0, 0, NULL,                         \
        "start of the random draws (default 0); equal seeds give equal text"                     \
  }
#define CLI_SAMPLING_DEFAULTS {.temperature = 0, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 0}
/* For a field "chat" of type cli_chat_args. */
#define CLI_OPTIONS_CHAT(args)                                                       \
  {0, "system", "TEXT", CLI_TEXT, offsetof(args, chat.system), 0, 0, NULL,           \
   "the system message"},                                                            \
      {0, "think", "on|off", CLI_CHOICE, offsetof(args, chat.think), 0, 0, "on|off", \
       "whether the model is to think before it answers (default on)"},              \
  {                                                                                  \
    0, "effort", "LEVEL", CLI_CHOICE, offsetof(args, chat.effort), 0, 0,             \
        "xhigh|medium|low", "how much to think: xhigh, medium or low"                \
  }

typedef struct cli_chat_args {
  const char *system, *think, *effort; /* NULL: not given */
} cli_chat_args;

strata_chat_options cli_chat_options(const cli_chat_args *args);

/* ---- what arguments name --------------------------------------------------- */

enum { CLI_PATH_BYTES = 4096 };

typedef struct cli_model {
  char path[CLI_PATH_BYTES];
  strata_engine *engine;
  strata_model *model;
  strata_tokenizer *tokenizer;
  strata_model_info info;
} cli_model;

/* fills path with the model directory to use: the given one, or the shipped
 * model with a note on stderr. */
strata_status cli_model_locate(const char *given, char path[CLI_PATH_BYTES], strata_error *err);
/* Opens engine and model, and the tokenizer if wanted. Closed with
 * cli_model_close also after a failure; model starts zeroed. */
strata_status cli_model_open(cli_model *model, const char *given, int32_t n_threads,
                             bool with_tokenizer, strata_error *err);
void cli_model_close(cli_model *model);

/* Bytes with a NUL behind them. */
typedef struct cli_text {
  char *text;
  size_t n_bytes;
} cli_text;

/* Reads a whole file, or standard input for "-". CANCELLED if Ctrl-C comes. */
strata_status cli_text_read(cli_text *out, const char *path, strata_error *err);
/* A copy of a string of argv. */
strata_status cli_text_copy(cli_text *out, const char *text, strata_error *err);
void cli_text_release(cli_text *text);

typedef struct cli_ids {
  int32_t *items;
  size_t n, capacity;
} cli_ids;

strata_status cli_ids_append(cli_ids *ids, const int32_t *items, size_t n, strata_error *err);
/* Appends the whole numbers of a list that commas or white space separate, each
 * in min .. max. what names the argument in errors. */
strata_status cli_ids_parse(cli_ids *ids, const char *list, const char *what, int32_t min,
                            int32_t max, strata_error *err);
/* Appends the tokens of a text. Added tokens are matched everywhere unless
 * literal is set. */
strata_status cli_ids_encode(cli_ids *ids, const strata_tokenizer *tokenizer, const cli_text *text,
                             bool literal, strata_error *err);
/* Appends the tokens of a conversation as the model's template writes it. What
 * messages say is never read as an added token. */
strata_status cli_ids_encode_chat(cli_ids *ids, const strata_tokenizer *tokenizer,
                                  const strata_chat_template *chat_template,
                                  const strata_message *messages, size_t n_messages,
                                  const strata_chat_options *options, strata_error *err);
void cli_ids_release(cli_ids *ids);

/* ARG unless path can become a new file: replacing a device or a directory by a
 * rename would destroy it. option names it in the error; path may be NULL. */
strata_status cli_check_output(const char *option, const char *path, strata_error *err);

#endif
