/* Chat templates. Two are known, by marks in their text; strata does not run
 * Jinja, it writes what those two write. Every piece is put down either as the
 * template's own or as somebody's words, and only the first kind may hold added
 * tokens when the text is encoded. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "model/token/st_jinja.h"
#include "model/token/st_pyjson.h"
#include "model/token/st_utf8.h"
#include "os/st_file.h"

enum { MOST_TEMPLATE_BYTES = 4 << 20, MOST_CONFIG_BYTES = 64 << 20 };

typedef struct rendering rendering;

struct strata_chat_template {
  const char *name;
  strata_status (*render)(rendering *r);
  char *instruction; /* released: the paragraph behind the tools, or NULL */
};

struct rendering {
  const strata_chat_template *template;
  const strata_message *messages;
  size_t n_messages;
  const strata_chat_options *options;
  st_string text;
  strata_span *spans;
  size_t n_spans, spans_capacity;
  strata_error *err;
};

/* ---- writing --------------------------------------------------------------- */

/* The template's own words. */
static strata_status put(rendering *r, const char *text) {
  size_t begin = r->text.n_bytes, n = strlen(text);
  ST_TRY(st_string_append(&r->text, text, n, r->err));
  if (n == 0) return STRATA_OK;
  if (r->n_spans && r->spans[r->n_spans - 1].end == begin) {
    r->spans[r->n_spans - 1].end += n;
    return STRATA_OK;
  }
  void *spans = r->spans;
  ST_TRY(st_grow(&spans, &r->spans_capacity, r->n_spans + 1, sizeof *r->spans, "spans", r->err));
  r->spans = spans;
  r->spans[r->n_spans++] = (strata_span){begin, begin + n};
  return STRATA_OK;
}

/* Somebody's words. */
typedef struct words {
  const char *text;
  size_t n;
} words;

static strata_status say(rendering *r, words w) {
  return st_string_append(&r->text, w.text, w.n, r->err);
}

/* What Python's str.strip takes for space. */
static bool is_strip_space(int32_t code) {
  return st_is_white_space(code) || (code >= 0x1c && code <= 0x1f);
}

static words stripped(const char *text) {
  words w = {text ? text : "", text ? strlen(text) : 0};
  size_t length;
  while (w.n && is_strip_space(st_utf8_read(w.text, w.n, &length))) {
    w.text += length;
    w.n -= length;
  }
  while (w.n && is_strip_space(st_utf8_read_back(w.text, w.n, &length))) w.n -= length;
  return w;
}

static bool has_role(const strata_message *message, const char *role) {
  return strcmp(message->role, role) == 0;
}

/* ---- checks that hold for both --------------------------------------------- */

static strata_status check_text(size_t index, const char *field, const char *text,
                                strata_error *err) {
  char what[64];
  snprintf(what, sizeof what, "messages[%zu].%s", index, field);
  return text ? st_utf8_check(text, strlen(text), what, err) : STRATA_OK;
}

static strata_status check_message(const rendering *r, size_t index) {
  static const char *const ROLES[] = {"system", "user", "assistant", "tool"};
  const strata_message *message = &r->messages[index];
  bool known = false;
  for (size_t i = 0; message->role && i < sizeof ROLES / sizeof *ROLES; i++)
    known = known || has_role(message, ROLES[i]);
  if (!known)
    ST_FAIL(r->err, ARG, "messages[%zu].role: %.64s: system, user, assistant or tool expected",
            index, message->role ? message->role : "NULL");
  ST_TRY(check_text(index, "content", message->content, r->err));
  ST_TRY(check_text(index, "reasoning", message->reasoning, r->err));
  if (message->n_tool_calls && !message->tool_calls)
    ST_FAIL(r->err, ARG, "messages[%zu].tool_calls: NULL: %zu calls expected", index,
            message->n_tool_calls);
  for (size_t i = 0; i < message->n_tool_calls; i++) {
    char what[96];
    if (!message->tool_calls[i].name)
      ST_FAIL(r->err, ARG, "messages[%zu].tool_calls[%zu].name: NULL: a name expected", index, i);
    ST_TRY(check_text(index, "tool_calls.name", message->tool_calls[i].name, r->err));
    snprintf(what, sizeof what, "messages[%zu].tool_calls[%zu].arguments_json", index, i);
    ST_TRY(st_pyjson_check(message->tool_calls[i].arguments_json, what, r->err));
  }
  return STRATA_OK;
}

static strata_status check_input(const rendering *r) {
  const char *effort = r->options->reasoning_effort;
  if (r->n_messages && !r->messages)
    ST_FAIL(r->err, ARG, "messages: NULL: %zu messages expected", r->n_messages);
  if (effort && strcmp(effort, "xhigh") != 0 && strcmp(effort, "medium") != 0 &&
      strcmp(effort, "low") != 0)
    ST_FAIL(r->err, ARG, "reasoning_effort: %.64s: xhigh, medium or low expected", effort);
  for (size_t i = 0; i < r->n_messages; i++) ST_TRY(check_message(r, i));
  if (r->options->n_tools && !r->options->tools_json)
    ST_FAIL(r->err, ARG, "tools: NULL: %zu of them expected", r->options->n_tools);
  for (size_t i = 0; i < r->options->n_tools; i++) {
    char what[64];
    snprintf(what, sizeof what, "tools[%zu]", i);
    ST_TRY(st_pyjson_check(r->options->tools_json[i], what, r->err));
  }
  return STRATA_OK;
}

/* ---- the plain template ---------------------------------------------------- */

/* Like its Jinja text, this leaves out reasoning. It has no place for tools, and
 * a prompt that silently lacks them would be a wrong one. */
static strata_status render_plain(rendering *r) {
  if (r->options->n_tools)
    ST_FAIL(r->err, UNSUPPORTED, "chat template plain: %zu tools: none expected",
            r->options->n_tools);
  for (size_t i = 0; i < r->n_messages; i++) {
    const strata_message *message = &r->messages[i];
    if (message->n_tool_calls)
      ST_FAIL(r->err, UNSUPPORTED, "chat template plain: messages[%zu]: no tool calls expected", i);
    ST_TRY(put(r, "<|im_start|>"));
    ST_TRY(put(r, message->role));
    ST_TRY(put(r, "\n"));
    if (message->content) ST_TRY(say(r, (words){message->content, strlen(message->content)}));
    ST_TRY(put(r, "<|im_end|>\n"));
  }
  return r->options->no_generation_prompt ? STRATA_OK : put(r, "<|im_start|>assistant\n");
}

/* ---- the released template ------------------------------------------------- */

static const char XHIGH[] =
    "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
    "assumptions, consider plausible alternatives, and prioritize correctness, consistency, and "
    "clarity in the final answer.";
static const char LOW[] =
    "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the "
    "conclusion without unnecessary elaboration.";

static const char *effort_sentence(const strata_chat_options *options) {
  const char *effort = options->reasoning_effort ? options->reasoning_effort : "xhigh";
  if (options->disable_thinking || strcmp(effort, "medium") == 0) return "";
  return strcmp(effort, "low") == 0 ? LOW : XHIGH;
}

static bool starts_with(words w, const char *text) {
  return w.n >= strlen(text) && memcmp(w.text, text, strlen(text)) == 0;
}

static bool ends_with(words w, const char *text) {
  return w.n >= strlen(text) && memcmp(w.text + w.n - strlen(text), text, strlen(text)) == 0;
}

/* A user's turn that is not wholly the result of a tool. */
static bool is_query(const strata_message *message) {
  words w = stripped(message->content);
  return has_role(message, "user") &&
         !(starts_with(w, "<tool_response>") && ends_with(w, "</tool_response>"));
}

static strata_status last_query(const rendering *r, size_t *index) {
  for (size_t i = 1; i < r->n_messages; i++)
    if (has_role(&r->messages[i], "system"))
      ST_FAIL(r->err, ARG, "messages[%zu].role: system: it is expected first only", i);
  for (size_t i = r->n_messages; i > 0; i--) {
    *index = i - 1;
    if (is_query(&r->messages[i - 1])) return STRATA_OK;
  }
  ST_FAIL(r->err, ARG, "messages: none of %zu is a question: a user's turn expected",
          r->n_messages);
}

static strata_status put_tools(rendering *r) {
  ST_TRY(put(r, "# Tools\n\nYou have access to the following functions:\n\n<tools>"));
  for (size_t i = 0; i < r->options->n_tools; i++) {
    const char *at = r->options->tools_json[i];
    ST_TRY(put(r, "\n"));
    ST_TRY(st_pyjson_value(&at, &r->text, r->err));
  }
  ST_TRY(put(r, "\n</tools>"));
  return put(r, r->template->instruction);
}

static strata_status put_system_turn(rendering *r) {
  const char *effort = effort_sentence(r->options);
  bool given = r->n_messages && has_role(&r->messages[0], "system");
  words system = stripped(given ? r->messages[0].content : "");
  bool tools = r->options->n_tools > 0;
  if (!tools && !*effort && !system.n) return STRATA_OK;
  if (tools && !r->template->instruction)
    ST_FAIL(r->err, UNSUPPORTED,
            "chat template: no instruction for tools in it: one behind </tools> expected");
  ST_TRY(put(r, "<|im_start|>system\n"));
  ST_TRY(put(r, effort));
  if (*effort && (tools || system.n)) ST_TRY(put(r, "\n\n"));
  if (tools) ST_TRY(put_tools(r));
  if (tools && system.n) ST_TRY(put(r, "\n\n"));
  ST_TRY(say(r, system));
  return put(r, "<|im_end|>\n");
}

/* One argument, at its key; *at moves behind its value. */
static strata_status put_argument(rendering *r, const char **at) {
  ST_TRY(put(r, "<parameter="));
  ST_TRY(st_pyjson_string(at, &r->text, r->err));
  ST_TRY(put(r, ">\n"));
  st_pyjson_to_value(at);
  if (**at == '"')
    ST_TRY(st_pyjson_string(at, &r->text, r->err));
  else
    ST_TRY(st_pyjson_value(at, &r->text, r->err));
  return put(r, "\n</parameter>\n");
}

static strata_status put_tool_call(rendering *r, const strata_tool_call *call) {
  const char *at = call->arguments_json;
  ST_TRY(put(r, "<tool_call>\n<function="));
  ST_TRY(say(r, (words){call->name, strlen(call->name)}));
  ST_TRY(put(r, ">\n"));
  while (st_pyjson_next_key(&at)) ST_TRY(put_argument(r, &at));
  return put(r, "</function>\n</tool_call>");
}

static strata_status put_assistant(rendering *r, const strata_message *message, bool thinking) {
  words content = stripped(message->content);
  ST_TRY(put(r, "<|im_start|>assistant\n"));
  if (thinking) {
    ST_TRY(put(r, "<think>\n"));
    ST_TRY(say(r, stripped(message->reasoning)));
    ST_TRY(put(r, "\n</think>\n\n"));
  }
  ST_TRY(say(r, content));
  for (size_t i = 0; i < message->n_tool_calls; i++) {
    ST_TRY(put(r, i > 0 ? "\n" : content.n ? "\n\n" : ""));
    ST_TRY(put_tool_call(r, &message->tool_calls[i]));
  }
  return put(r, "<|im_end|>\n");
}

/* Results that follow each other share one turn. */
static strata_status put_tool_result(rendering *r, size_t index) {
  bool first = index == 0 || !has_role(&r->messages[index - 1], "tool");
  bool last = index + 1 == r->n_messages || !has_role(&r->messages[index + 1], "tool");
  if (first) ST_TRY(put(r, "<|im_start|>user"));
  ST_TRY(put(r, "\n<tool_response>\n"));
  ST_TRY(say(r, stripped(r->messages[index].content)));
  ST_TRY(put(r, "\n</tool_response>"));
  return last ? put(r, "<|im_end|>\n") : STRATA_OK;
}

static strata_status put_message(rendering *r, size_t index, size_t query) {
  const strata_message *message = &r->messages[index];
  if (has_role(message, "system")) return STRATA_OK;
  if (has_role(message, "tool")) return put_tool_result(r, index);
  if (has_role(message, "assistant"))
    return put_assistant(r, message, !r->options->drop_thinking || index > query);
  ST_TRY(put(r, "<|im_start|>user\n"));
  ST_TRY(say(r, stripped(message->content)));
  return put(r, "<|im_end|>\n");
}

static strata_status render_released(rendering *r) {
  size_t query = 0;
  ST_TRY(last_query(r, &query));
  ST_TRY(put_system_turn(r));
  for (size_t i = 0; i < r->n_messages; i++) ST_TRY(put_message(r, i, query));
  if (r->options->no_generation_prompt) return STRATA_OK;
  ST_TRY(put(r, "<|im_start|>assistant\n<think>\n"));
  return r->options->disable_thinking ? put(r, "\n</think>\n\n") : STRATA_OK;
}

/* ---- opening --------------------------------------------------------------- */

static const char PLAIN_SOURCE[] =
    "{%- for m in messages -%}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n"
    "{% endfor -%}\n"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n"
    "{% endif -%}";

/* Names of inputs and pieces of text that no other template has all of. */
static const char *const RELEASED_MARKS[] = {
    "reasoning_effort", "preserve_thinking", "enable_thinking", "reasoning_content",
    "add_generation_prompt", "Reasoning effort is set to ", "<tool_response>", "<function=",
    "You have access to the following functions:",
};

static bool is_released(const char *source) {
  for (size_t i = 0; i < sizeof RELEASED_MARKS / sizeof *RELEASED_MARKS; i++)
    if (!strstr(source, RELEASED_MARKS[i])) return false;
  return true;
}

static bool is_plain(const char *source) {
  size_t n = sizeof PLAIN_SOURCE - 1;
  return strncmp(source, PLAIN_SOURCE, n) == 0 && strspn(source + n, " \r\n") == strlen(source + n);
}

static strata_status recognize(strata_chat_template *t, const char *source, const char *label,
                               strata_error *err) {
  if (is_plain(source)) {
    t->name = "plain";
    t->render = render_plain;
    return STRATA_OK;
  }
  if (!is_released(source))
    ST_FAIL(err, UNSUPPORTED,
            "%s: not a known chat template: the released qwen4_exp one or the plain one expected",
            label);
  st_string instruction = {0};
  strata_status status = st_jinja_text_after(source, "\n</tools>", &instruction, err);
  t->name = "qwen4_exp";
  t->render = render_released;
  if (status == STRATA_OK && instruction.n_bytes && strstr(instruction.text, "<tool_call>")) {
    t->instruction = instruction.text;
    return STRATA_OK;
  }
  st_string_release(&instruction);
  return status;
}

/* gives the template in tokenizer_config.json: a string, or a list of named
 * ones, of which "default" counts. */
static strata_status read_config(const char *file, char **source, strata_error *err) {
  strata_status status = STRATA_OK;
  char *json = NULL;
  size_t n;
  json_error_t error;
  json_t *root = NULL;
  ST_TRY_OUT(st_file_read(file, MOST_CONFIG_BYTES, &json, &n, err));
  root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    ST_FAIL_OUT(err, FORMAT, "%s: line %d, byte %d: %s", file, error.line, error.position,
                error.text);
  const json_t *value = json_object_get(root, "chat_template");
  for (size_t i = 0; i < json_array_size(value); i++) {
    const json_t *named = json_array_get(value, i);
    const char *name = json_string_value(json_object_get(named, "name"));
    if (name && strcmp(name, "default") == 0) value = json_object_get(named, "template");
  }
  if (!json_is_string(value))
    ST_FAIL_OUT(err, IO, "%s: no chat_template: one there or in chat_template.jinja expected",
                file);
  ST_TRY_OUT(st_strndup(source, json_string_value(value), json_string_length(value), err));
out:
  json_decref(root);
  st_free(json);
  return status;
}

/* gives the source and, in *label, the file that it is from. */
static strata_status read_source(const char *path, char **source, char **label,
                                 strata_error *err) {
  size_t n;
  ST_TRY(st_path_join(label, path, "chat_template.jinja", err));
  if (st_path_probe(*label) == ST_PATH_FILE)
    return st_file_read(*label, MOST_TEMPLATE_BYTES, source, &n, err);
  st_free(*label);
  ST_TRY(st_path_join(label, path, "tokenizer_config.json", err));
  return read_config(*label, source, err);
}

strata_status strata_chat_template_open(const char *path, strata_chat_template **out,
                                        strata_error *err) {
  strata_status status = STRATA_OK;
  char *source = NULL, *label = NULL;
  void *memory;
  strata_chat_template *t = NULL;
  *out = NULL;
  if (!path) ST_FAIL(err, ARG, "chat template: path is NULL: a directory expected");
  ST_TRY_OUT(read_source(path, &source, &label, err));
  ST_TRY_OUT(st_utf8_check(source, strlen(source), label, err));
  ST_TRY_OUT(st_calloc(&memory, 1, sizeof *t, "a chat template", err));
  t = memory;
  ST_TRY_OUT(recognize(t, source, label, err));
  *out = t;
  t = NULL;
out:
  st_free(source);
  st_free(label);
  strata_chat_template_close(&t);
  return status;
}

void strata_chat_template_close(strata_chat_template **chat_template) {
  if (!chat_template || !*chat_template) return;
  st_free((*chat_template)->instruction);
  st_free(*chat_template);
  *chat_template = NULL;
}

const char *strata_chat_template_name(const strata_chat_template *chat_template) {
  return chat_template->name;
}

strata_status strata_chat_render(const strata_chat_template *chat_template,
                                 const strata_message *messages, size_t n_messages,
                                 const strata_chat_options *options, char **text, size_t *n_bytes,
                                 strata_span **template_spans, size_t *n_spans,
                                 strata_error *err) {
  strata_status status = STRATA_OK;
  static const strata_chat_options DEFAULTS = {0};
  rendering r = {
      .template = chat_template,
      .messages = messages,
      .n_messages = n_messages,
      .options = options ? options : &DEFAULTS,
      .err = err,
  };
  void *none;
  *text = NULL;
  *template_spans = NULL;
  *n_bytes = *n_spans = 0;
  ST_TRY_OUT(check_input(&r));
  ST_TRY_OUT(st_string_append(&r.text, "", 0, err));
  ST_TRY_OUT(chat_template->render(&r));
  if (!r.spans) {
    ST_TRY_OUT(st_calloc(&none, 1, sizeof *r.spans, "spans", err));
    r.spans = none;
  }
  *text = r.text.text;
  *n_bytes = r.text.n_bytes;
  *template_spans = r.spans;
  *n_spans = r.n_spans;
  r.text = (st_string){0};
  r.spans = NULL;
out:
  st_string_release(&r.text);
  st_free(r.spans);
  return status;
}
