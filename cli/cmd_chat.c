/* strata chat: a conversation. The session holds what was said, so each message
 * costs only its own tokens. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_args.h"
#include "cli_term.h"
#include "core/st_error.h"

typedef struct chat_args {
  const char *model, *kv;
  int32_t n_tokens, window, threads;
  cli_chat_args chat;
  strata_sampler_options sampling;
} chat_args;

static const chat_args chat_defaults = {
    .n_tokens = 1024, .window = 512, .sampling = CLI_SAMPLING_DEFAULTS};

static const cli_option chat_options[] = {
    CLI_OPTION_MODEL(chat_args),
    {'n', "tokens", "N", CLI_INT, offsetof(chat_args, n_tokens), 1, 2147483647, NULL,
     "write at most N tokens for an answer (default 1024)"},
    CLI_OPTIONS_CHAT(chat_args),
    CLI_OPTIONS_SAMPLING(chat_args),
    CLI_OPTION_KV(chat_args),
    CLI_OPTION_WINDOW(chat_args),
    CLI_OPTION_THREADS(chat_args),
};

/* role is a constant; the other two are owned, reasoning may be NULL. */
typedef struct chat_turn {
  const char *role;
  char *content, *reasoning;
} chat_turn;

typedef struct chat {
  const chat_args *args;
  bool interactive;
  cli_model model;
  strata_chat_template *chat_template;
  strata_session *session;
  strata_sampler *sampler;
  chat_turn *turns;
  size_t n_turns;
  cli_ids fed; /* the tokens that the session holds */
} chat;

/* ---- history --------------------------------------------------------------- */

static void drop_turns(chat *c, size_t n_left) {
  while (c->n_turns > n_left) {
    chat_turn *turn = &c->turns[--c->n_turns];
    free(turn->content);
    free(turn->reasoning);
  }
}

/* Adds a turn without words; the caller fills it. */
static strata_status add_turn(chat *c, const char *role, chat_turn **out, strata_error *err) {
  size_t n_bytes = (c->n_turns + 1) * sizeof *c->turns;
  chat_turn *moved = realloc(c->turns, n_bytes);
  if (!moved) return st_error_nomem(err, "the conversation", n_bytes);
  c->turns = moved;
  *out = &c->turns[c->n_turns++];
  **out = (chat_turn){.role = role};
  return STRATA_OK;
}

static strata_status add_text_turn(chat *c, const char *role, const char *text,
                                   strata_error *err) {
  chat_turn *turn = NULL;
  ST_TRY(add_turn(c, role, &turn, err));
  turn->content = strdup(text);
  if (!turn->content) return st_error_nomem(err, "the conversation", strlen(text));
  return STRATA_OK;
}

/* Forgets everything said; feed_history then finds the session out of date. */
static strata_status start_over(chat *c, const char *system, strata_error *err) {
  drop_turns(c, 0);
  return system && *system ? add_text_turn(c, "system", system, err) : STRATA_OK;
}

static strata_status decode_copy(const chat *c, const int32_t *ids, size_t n, char **out,
                                 strata_error *err) {
  char *text;
  size_t n_bytes;
  ST_TRY(strata_tokenizer_decode(c->model.tokenizer, ids, n, true, &text, &n_bytes, err));
  *out = strdup(text);
  strata_free(text);
  return *out ? STRATA_OK : st_error_nomem(err, "the conversation", n_bytes);
}

/* Adds the model's answer, cut at the token that ends its thinking, if any: the
 * template wants the two apart. */
static strata_status add_answer(chat *c, const cli_generation *g, strata_error *err) {
  int32_t think_end = strata_tokenizer_added_id(c->model.tokenizer, "</think>");
  chat_turn *turn = NULL;
  size_t cut = 0;
  ST_TRY(add_turn(c, "assistant", &turn, err));
  while (cut < g->n_ids && g->ids[cut] != think_end) cut++;
  if (cut == g->n_ids) return decode_copy(c, g->ids, g->n_ids, &turn->content, err);
  ST_TRY(decode_copy(c, g->ids, cut, &turn->reasoning, err));
  return decode_copy(c, g->ids + cut + 1, g->n_ids - cut - 1, &turn->content, err);
}

/* ---- one answer ------------------------------------------------------------ */

static strata_status encode_history(const chat *c, cli_ids *ids, strata_error *err) {
  strata_message *messages = calloc(c->n_turns, sizeof *messages);
  if (!messages) return st_error_nomem(err, "messages", c->n_turns * sizeof *messages);
  for (size_t i = 0; i < c->n_turns; i++)
    messages[i] = (strata_message){.role = c->turns[i].role,
                                   .content = c->turns[i].content,
                                   .reasoning = c->turns[i].reasoning};
  strata_chat_options options = cli_chat_options(&c->args->chat);
  strata_status status = cli_ids_encode_chat(ids, c->model.tokenizer, c->chat_template, messages,
                                             c->n_turns, &options, err);
  free(messages);
  return status;
}

/* Brings the session to the end of the history. Usually that extends what it
 * holds; where it does not (an answer whose text splits into other tokens than
 * were picked, or a template that rewrites old turns), all is fed anew. */
static strata_status feed_history(chat *c, strata_error *err) {
  cli_ids ids = {0};
  strata_status status = encode_history(c, &ids, err);
  if (status != STRATA_OK) {
    cli_ids_release(&ids);
    return status;
  }
  size_t held = c->fed.n;
  /* After a failure within an answer the session may hold more than fed tells. */
  bool known = held == (size_t)strata_session_position(c->session);
  bool extends = known && held < ids.n &&
                 (held == 0 || !memcmp(ids.items, c->fed.items, held * sizeof *ids.items));
  if (!extends) {
    strata_session_reset(c->session);
    held = 0;
  }
  status = cli_feed(c->session, ids.items + held, ids.n - held, c->args->window, err);
  cli_ids_release(&c->fed);
  c->fed = ids;
  /* Fewer than all after Ctrl-C or if they did not fit. */
  c->fed.n = (size_t)strata_session_position(c->session);
  return status;
}

static strata_status answer(chat *c, strata_error *err) {
  ST_TRY(feed_history(c, err));
  cli_generation g = {
      .session = c->session,
      .tokenizer = c->model.tokenizer,
      .sampler = c->sampler,
      .info = &c->model.info,
      .turn_end = strata_tokenizer_added_id(c->model.tokenizer, "<|im_end|>"),
      .max_tokens = c->args->n_tokens,
      .feed_last = true};
  strata_status status = cli_generate(&g, err);
  if (status == STRATA_OK) status = cli_ids_append(&c->fed, g.ids, (size_t)g.n_fed, err);
  if (status == STRATA_OK) status = add_answer(c, &g, err);
  if (status == STRATA_OK && g.stop == CLI_STOP_LENGTH)
    cli_note("the answer was cut after %zu tokens; -n sets how many", g.n_ids);
  if (status == STRATA_OK && g.stop == CLI_STOP_CAPACITY)
    cli_note("position %d, the model's last, was reached; /reset starts over",
             c->model.info.max_positions);
  cli_generation_release(&g);
  return status;
}

/* ---- the loop -------------------------------------------------------------- */

static strata_status say(chat *c, const char *text, strata_error *err) {
  size_t n_before = c->n_turns;
  strata_status status = add_text_turn(c, "user", text, err);
  if (status == STRATA_OK) status = answer(c, err);
  bool stopped = status == STRATA_CANCELLED || (status == STRATA_OK && cli_interrupted());
  /* A message without an answer is taken back, so that the next one is not a
   * second user turn in a row. */
  if (status != STRATA_OK) drop_turns(c, n_before);
  if (!c->interactive)
    return stopped ? st_error_set(err, STRATA_CANCELLED, "chat: interrupted") : status;
  /* Somebody is there who can go on after these. */
  if (status == STRATA_LIMIT || status == STRATA_FORMAT) {
    cli_print_error(err);
    return STRATA_OK;
  }
  if (stopped) cli_interrupt_arm();
  return stopped ? STRATA_OK : status;
}

static strata_status take_command(chat *c, const char *line, bool *over, strata_error *err) {
  const char *text = line + strcspn(line, " ");
  size_t n_bytes = (size_t)(text - line);
  text += strspn(text, " ");
  if (n_bytes == 7 && !strncmp(line, "/system", n_bytes)) return start_over(c, text, err);
  if (!strcmp(line, "/exit")) {
    *over = true;
  } else if (!strcmp(line, "/reset")) {
    bool has_system = c->n_turns && !strcmp(c->turns[0].role, "system");
    drop_turns(c, has_system);
  } else {
    cli_note("%s: unknown; there are /exit, /reset and /system TEXT", line);
  }
  return STRATA_OK;
}

/* Reads a line without its newline into *line. *over: there is none. */
static strata_status read_line(const chat *c, char **line, size_t *capacity, bool *over,
                               strata_error *err) {
  if (c->interactive) fputs("> ", stderr);
  errno = 0;
  ssize_t n = getline(line, capacity, stdin);
  if (cli_interrupted()) {
    if (c->interactive) fputc('\n', stderr);
    ST_FAIL(err, CANCELLED, "chat: interrupted");
  }
  *over = n < 0;
  if (n < 0 && ferror(stdin))
    ST_FAIL(err, IO, "standard input: %s: lines of text expected", strerror(errno));
  if (n < 0 && c->interactive) fputc('\n', stderr);
  if (n > 0 && (*line)[n - 1] == '\n') (*line)[--n] = 0;
  if (n > 0 && strlen(*line) != (size_t)n)
    ST_FAIL(err, FORMAT, "message: NUL at byte %zu: a line without NUL bytes expected",
            strlen(*line));
  return STRATA_OK;
}

static strata_status talk(chat *c, strata_error *err) {
  strata_status status = STRATA_OK;
  char *line = NULL;
  size_t capacity = 0;
  bool over = false;
  while (true) {
    ST_TRY_OUT(read_line(c, &line, &capacity, &over, err));
    if (over) break;
    if (line[0] == '/') {
      ST_TRY_OUT(take_command(c, line, &over, err));
    } else if (line[0]) {
      ST_TRY_OUT(say(c, line, err));
    }
    if (over) break;
  }
out:
  free(line);
  return status;
}

static strata_status run(const void *command_args, const cli_words *words, strata_error *err) {
  strata_status status = STRATA_OK;
  chat c = {.args = command_args, .interactive = isatty(STDIN_FILENO)};
  strata_session_options options = {.window = c.args->window, .kv = cli_kv(c.args->kv)};
  ST_TRY(cli_words_at_most(words, 0, "only options", err));
  ST_TRY_OUT(cli_model_open(&c.model, c.args->model, c.args->threads, true, err));
  ST_TRY_OUT(strata_chat_template_open(c.model.path, &c.chat_template, err));
  ST_TRY_OUT(strata_sampler_new(&c.args->sampling, c.model.tokenizer, &c.sampler, err));
  ST_TRY_OUT(strata_session_new(c.model.model, &options, &c.session, err));
  ST_TRY_OUT(start_over(&c, c.args->chat.system, err));
  ST_TRY_OUT(talk(&c, err));
out:
  drop_turns(&c, 0);
  free(c.turns);
  cli_ids_release(&c.fed);
  strata_session_free(&c.session);
  strata_sampler_free(&c.sampler);
  strata_chat_template_close(&c.chat_template);
  cli_model_close(&c.model);
  return status;
}

const cli_command cmd_chat = {
    .name = "chat",
    .summary = "talk with a model",
    .usage = "[-m DIR] [options]",
    .details =
        "Each line of standard input is a message; the answer is written as it comes. Lines that "
        "begin with a slash are commands:\n"
        "/exit ends the program, as Ctrl-D does.\n"
        "/reset forgets the conversation, but not the system message.\n"
        "/system TEXT starts over with TEXT as the system message, or with none.\n"
        "Ctrl-C stops an answer; at the prompt it ends the program.",
    .options = chat_options,
    .n_options = sizeof chat_options / sizeof chat_options[0],
    .defaults = &chat_defaults,
    .args_bytes = sizeof chat_defaults,
    .run = run};
