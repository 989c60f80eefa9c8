/* Reading tokenizer.json. Whatever would change ids or text and is not done
 * here is refused by its key: a tokenizer that is nearly right is worse than
 * none. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "model/token/st_tokenizer.h"
#include "model/token/st_utf8.h"

typedef struct loader {
  strata_tokenizer *tokenizer;
  const char *label;
  st_byte_letters letters;
  strata_error *err;
} loader;

#define REFUSE(l, ...) return refuse((l), STRATA_UNSUPPORTED, __VA_ARGS__)
#define DAMAGED(l, ...) return refuse((l), STRATA_FORMAT, __VA_ARGS__)

__attribute__((format(printf, 3, 4))) static strata_status refuse(const loader *l,
                                                                  strata_status status,
                                                                  const char *format, ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return st_error_set(l->err, status, "%s: %s", l->label, text);
}

/* Puts the file's name before a message of a function that does not know it. */
static strata_status relabel(const loader *l, const char *key, strata_status status) {
  if (status == STRATA_OK || status == STRATA_NOMEM || !l->err) return status;
  strata_error inner = *l->err;
  return st_error_set(l->err, status, "%s: %s: %s", l->label, key, inner.message);
}

void st_byte_letters_init(st_byte_letters *letters) {
  int32_t next = 0x100;
  for (int32_t byte = 0; byte < 256; byte++) {
    bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    letters->letter[byte] = printable ? byte : next++;
  }
}

int st_byte_letters_find(const st_byte_letters *letters, int32_t letter) {
  if (letter >= 0 && letter < 256) return letters->letter[letter] == letter ? letter : -1;
  for (int byte = 0; byte < 256 && letter < 0x200; byte++)
    if (letters->letter[byte] == letter) return byte;
  return -1;
}

/* ---- tokens ---------------------------------------------------------------- */

static strata_status read_id(const loader *l, const json_t *value, const char *what, int32_t *id) {
  if (!json_is_integer(value)) DAMAGED(l, "%s: not an integer: a token id expected", what);
  json_int_t n = json_integer_value(value);
  if (n < 0 || n >= ST_TOKEN_ID_LIMIT)
    DAMAGED(l, "%s: id %" JSON_INTEGER_FORMAT ": 0 .. %d expected", what, n, ST_TOKEN_ID_LIMIT - 1);
  *id = (int32_t)n;
  return STRATA_OK;
}

/* The bytes a name decodes to: those its letters stand for or, if any of its
 * characters is not such a letter, its own. */
static strata_status append_text(const loader *l, const char *name, size_t n) {
  st_string *texts = &l->tokenizer->texts;
  size_t at = 0, length, begin = texts->n_bytes;
  while (at < n) {
    int byte = st_byte_letters_find(&l->letters, st_utf8_read(name + at, n - at, &length));
    if (byte < 0) {
      texts->n_bytes = begin;
      return st_string_append(texts, name, n, l->err);
    }
    ST_TRY(st_string_append(texts, (char[]){(char)byte}, 1, l->err));
    at += length;
  }
  return STRATA_OK;
}

/* Enters a token that is not known yet into the table. */
static strata_status enter(const loader *l, int32_t id, const char *name, size_t n) {
  strata_tokenizer *tokenizer = l->tokenizer;
  void *tokens = tokenizer->tokens;
  if (id >= tokenizer->id_limit) {
    ST_TRY(st_grow(&tokens, &tokenizer->tokens_capacity, (size_t)id + 1, sizeof(st_token),
                   "a token table", l->err));
    tokenizer->tokens = tokens;
    memset(tokenizer->tokens + tokenizer->id_limit, 0,
           ((size_t)id + 1 - (size_t)tokenizer->id_limit) * sizeof(st_token));
    tokenizer->id_limit = id + 1;
  }
  size_t begin = tokenizer->texts.n_bytes;
  ST_TRY(append_text(l, name, n));
  tokenizer->tokens[id] = (st_token){
      .text_off = (uint32_t)begin,
      .text_bytes = (uint32_t)(tokenizer->texts.n_bytes - begin),
      .known = true,
  };
  return STRATA_OK;
}

static strata_status load_vocab(const loader *l, json_t *vocab) {
  const char *name;
  json_t *value;
  if (!json_is_object(vocab)) DAMAGED(l, "model.vocab: not an object: tokens to ids expected");
  ST_TRY(st_vocab_init(&l->tokenizer->vocab, json_object_size(vocab), l->err));
  json_object_foreach(vocab, name, value) {
    int32_t id;
    ST_TRY(read_id(l, value, "model.vocab", &id));
    if (strata_tokenizer_knows(l->tokenizer, id))
      DAMAGED(l, "model.vocab: id %d twice: one token for each id expected", id);
    ST_TRY(enter(l, id, name, strlen(name)));
    ST_TRY(st_vocab_add(&l->tokenizer->vocab, name, strlen(name), id, l->err));
  }
  return STRATA_OK;
}

static strata_status find_byte_ids(const loader *l) {
  for (int byte = 0; byte < 256; byte++) {
    utf8proc_uint8_t name[4];
    utf8proc_ssize_t n = utf8proc_encode_char(l->letters.letter[byte], name);
    int32_t id = st_vocab_find(&l->tokenizer->vocab, (const char *)name, (size_t)n);
    if (id < 0) REFUSE(l, "model.vocab: byte 0x%02x has no token: all 256 bytes expected", byte);
    l->tokenizer->byte_ids[byte] = id;
  }
  return STRATA_OK;
}

/* ---- merges ---------------------------------------------------------------- */

/* The two names of a merge, ["a", "b"] or "a b". */
static bool split_merge(const json_t *merge, const char *part[2], size_t n[2]) {
  if (json_is_array(merge) && json_array_size(merge) == 2) {
    for (size_t i = 0; i < 2; i++) {
      part[i] = json_string_value(json_array_get(merge, i));
      n[i] = part[i] ? strlen(part[i]) : 0;
    }
    return part[0] && part[1];
  }
  const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
  if (!space || strchr(space + 1, ' ')) return false;
  part[0] = text;
  n[0] = (size_t)(space - text);
  part[1] = space + 1;
  n[1] = strlen(space + 1);
  return true;
}

static strata_status load_merge(const loader *l, const json_t *merge, size_t rank,
                                st_string *joined) {
  const st_vocab *vocab = &l->tokenizer->vocab;
  const char *part[2];
  size_t n[2];
  if (!split_merge(merge, part, n))
    DAMAGED(l, "model.merges[%zu]: two tokens expected, [\"a\", \"b\"] or \"a b\"", rank);
  int32_t id[2];
  joined->n_bytes = 0;
  for (size_t i = 0; i < 2; i++) {
    id[i] = st_vocab_find(vocab, part[i], n[i]);
    if (id[i] < 0)
      DAMAGED(l, "model.merges[%zu]: \"%.*s\": a token of the vocabulary expected", rank,
              (int)(n[i] < 64 ? n[i] : 64), part[i]);
    ST_TRY(st_string_append(joined, part[i], n[i], l->err));
  }
  int32_t merged = st_vocab_find(vocab, joined->text, joined->n_bytes);
  if (merged < 0)
    DAMAGED(l, "model.merges[%zu]: \"%.64s\": a token of the vocabulary expected", rank,
            joined->text);
  st_merges_put(&l->tokenizer->merges, (st_merge_row){id[0], id[1], (int32_t)rank, merged});
  return STRATA_OK;
}

static strata_status load_merges(const loader *l, json_t *merges) {
  strata_status status = STRATA_OK;
  st_string joined = {0};
  size_t n = json_array_size(merges);
  if (!json_is_array(merges)) DAMAGED(l, "model.merges: not an array: merges expected");
  if (n > INT32_MAX) DAMAGED(l, "model.merges: %zu of them: fewer expected", n);
  ST_TRY(st_merges_init(&l->tokenizer->merges, n, l->err));
  for (size_t rank = 0; rank < n; rank++)
    ST_TRY_OUT(load_merge(l, json_array_get(merges, rank), rank, &joined));
out:
  st_string_release(&joined);
  return status;
}

/* ---- model ----------------------------------------------------------------- */

/* Whether a value switches its feature off. */
static bool is_off(const json_t *value) {
  return json_is_null(value) || json_is_false(value) ||
         (json_is_number(value) && json_number_value(value) == 0) ||
         (json_is_string(value) && json_string_length(value) == 0);
}

/* Refuses a key of object that is not in known (each name between spaces) and
 * is not switched off. */
static strata_status check_keys(const loader *l, json_t *object, const char *where,
                                const char *known) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    const char *at = strstr(known, key);
    size_t n = strlen(key);
    bool listed = false;
    for (; at && n && !listed; at = strstr(at + 1, key)) listed = at[-1] == ' ' && at[n] == ' ';
    if (!listed && !is_off(value)) REFUSE(l, "%s%.64s: not supported", where, key);
  }
  return STRATA_OK;
}

static strata_status load_model(const loader *l, json_t *model) {
  if (!json_is_object(model)) DAMAGED(l, "model: not an object: a BPE model expected");
  const char *type = json_string_value(json_object_get(model, "type"));
  if (json_object_get(model, "type") && (!type || strcmp(type, "BPE") != 0))
    REFUSE(l, "model.type: %.64s: BPE expected", type ? type : "not a string");
  /* fuse_unk says something only where there is an unk_token. */
  ST_TRY(check_keys(l, model, "model.", " type vocab merges ignore_merges fuse_unk "));
  l->tokenizer->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
  ST_TRY(load_vocab(l, json_object_get(model, "vocab")));
  ST_TRY(find_byte_ids(l));
  return load_merges(l, json_object_get(model, "merges"));
}

/* ---- added tokens ---------------------------------------------------------- */

static strata_status read_flag(const loader *l, const json_t *token, size_t index,
                               const char *key, bool *out) {
  const json_t *value = json_object_get(token, key);
  if (!json_is_boolean(value))
    DAMAGED(l, "added_tokens[%zu].%s: true or false expected", index, key);
  *out = json_is_true(value);
  return STRATA_OK;
}

/* Enters the token into the table; it may be an ordinary one too. It decodes to
 * what it matches, so one that is matched in the normal form to that form. */
static strata_status enter_added(const loader *l, size_t index, int32_t id, const json_t *content,
                                 const char *matched, size_t n_matched) {
  strata_tokenizer *tokenizer = l->tokenizer;
  const char *name = json_string_value(content);
  size_t n = json_string_length(content);
  int32_t ordinary = st_vocab_find(&tokenizer->vocab, name, n);
  if (st_vocab_find(&tokenizer->contents, name, n) >= 0)
    DAMAGED(l, "added_tokens[%zu]: \"%.64s\" twice: one token for each content expected", index,
            name);
  if (ordinary != id && (ordinary >= 0 || strata_tokenizer_knows(tokenizer, id)))
    DAMAGED(l, "added_tokens[%zu]: \"%.64s\", id %d: one token for each id expected", index, name,
            id);
  if (ordinary < 0) ST_TRY(enter(l, id, matched, n_matched));
  return st_vocab_add(&tokenizer->contents, name, n, id, l->err);
}

static strata_status load_added_token(const loader *l, const json_t *token, size_t index,
                                      bool want_special, st_nfc *nfc) {
  char what[64];
  strata_tokenizer *tokenizer = l->tokenizer;
  st_added_token added = {0};
  bool special = false, normalized = false;
  const json_t *content = json_object_get(token, "content");
  const char *matched = json_string_value(content);
  size_t n_matched = json_string_length(content);
  snprintf(what, sizeof what, "added_tokens[%zu].id", index);
  ST_TRY(read_id(l, json_object_get(token, "id"), what, &added.id));
  if (n_matched == 0)
    DAMAGED(l, "added_tokens[%zu].content: a text that is not empty expected", index);
  ST_TRY(read_flag(l, token, index, "special", &special));
  ST_TRY(read_flag(l, token, index, "normalized", &normalized));
  ST_TRY(read_flag(l, token, index, "single_word", &added.single_word));
  ST_TRY(read_flag(l, token, index, "lstrip", &added.lstrip));
  ST_TRY(read_flag(l, token, index, "rstrip", &added.rstrip));
  if (special != want_special) return STRATA_OK;
  if (normalized && tokenizer->nfc) {
    ST_TRY(st_nfc_run(nfc, matched, n_matched, l->err));
    matched = nfc->out.text;
    n_matched = nfc->out.n_bytes;
  }
  ST_TRY(enter_added(l, index, added.id, content, matched, n_matched));
  tokenizer->tokens[added.id].special = special;
  return st_added_put(normalized ? &tokenizer->normalized : &tokenizer->raw, matched, n_matched,
                      added, l->err);
}

/* Special tokens go first: of two whose normal forms are the same, the
 * reference takes the special one. */
static strata_status load_added(const loader *l, json_t *tokens) {
  strata_status status = STRATA_OK;
  st_nfc nfc = {0};
  size_t n = json_array_size(tokens);
  if (tokens && !json_is_null(tokens) && !json_is_array(tokens))
    DAMAGED(l, "added_tokens: not an array: added tokens expected");
  ST_TRY(st_vocab_init(&l->tokenizer->contents, n, l->err));
  for (size_t pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < n; i++)
      ST_TRY_OUT(load_added_token(l, json_array_get(tokens, i), i, pass == 0, &nfc));
out:
  st_nfc_release(&nfc);
  return status;
}

/* ---- the steps around the model ------------------------------------------- */

static const char *type_of(const json_t *step) {
  const char *type = json_string_value(json_object_get(step, "type"));
  return type ? type : "no type";
}

/* Calls each on step or, for a Sequence, on the steps that it lists under key. */
typedef strata_status (*step_fn)(const loader *l, json_t *step);
static strata_status each_step(const loader *l, json_t *step, const char *key, step_fn each) {
  if (!step || json_is_null(step)) return STRATA_OK;
  if (strcmp(type_of(step), "Sequence") != 0) return each(l, step);
  json_t *steps = json_object_get(step, key);
  if (!json_is_array(steps)) DAMAGED(l, "%s: not an array: the steps of a Sequence expected", key);
  for (size_t i = 0; i < json_array_size(steps); i++) ST_TRY(each(l, json_array_get(steps, i)));
  return STRATA_OK;
}

static strata_status load_normalizer(const loader *l, json_t *step) {
  if (strcmp(type_of(step), "NFC") != 0)
    REFUSE(l, "normalizer: %.64s: NFC expected", type_of(step));
  l->tokenizer->nfc = true;
  return STRATA_OK;
}

static strata_status load_split(const loader *l, json_t *step) {
  json_t *pattern = json_object_get(step, "pattern");
  const char *behavior = json_string_value(json_object_get(step, "behavior"));
  json_t *regex = json_object_get(pattern, "Regex"), *text = json_object_get(pattern, "String");
  json_t *source = regex ? regex : text;
  if (!behavior || strcmp(behavior, "Isolated") != 0)
    REFUSE(l, "pre_tokenizer.behavior: %.64s: Isolated expected", behavior ? behavior : "none");
  if (!json_is_string(source)) DAMAGED(l, "pre_tokenizer.pattern: a Regex or a String expected");
  /* invert swaps what is matched and what is not, and Isolated keeps both. */
  ST_TRY(check_keys(l, step, "pre_tokenizer.", " type pattern behavior invert "));
  return relabel(l, "pre_tokenizer",
                 st_pretoken_add(&l->tokenizer->pretoken, json_string_value(source),
                                 json_string_length(source), !regex, l->err));
}

static strata_status load_byte_level(const loader *l, json_t *step) {
  ST_TRY(check_keys(l, step, "pre_tokenizer.", " type trim_offsets use_regex "));
  /* The reference takes a missing use_regex for true. */
  if (json_is_false(json_object_get(step, "use_regex"))) return STRATA_OK;
  return relabel(l, "pre_tokenizer",
                 st_pretoken_add(&l->tokenizer->pretoken, ST_PRETOKEN_GPT2,
                                 strlen(ST_PRETOKEN_GPT2), false, l->err));
}

static strata_status load_pre_tokenizer(const loader *l, json_t *step) {
  if (strcmp(type_of(step), "Split") == 0) return load_split(l, step);
  if (strcmp(type_of(step), "ByteLevel") == 0) return load_byte_level(l, step);
  REFUSE(l, "pre_tokenizer: %.64s: Split or ByteLevel expected", type_of(step));
}

/* ByteLevel stands once, at the end: what comes behind it would see letters in
 * place of bytes. */
static strata_status check_byte_level_last(const loader *l, json_t *step) {
  json_t *steps = json_object_get(step, "pretokenizers");
  size_t n = json_array_size(steps);
  if (!step || json_is_null(step)) REFUSE(l, "pre_tokenizer: none: ByteLevel expected");
  if (strcmp(type_of(step), "Sequence") != 0) n = 1;
  for (size_t i = 0; i < n; i++) {
    json_t *one = steps ? json_array_get(steps, i) : step;
    if ((strcmp(type_of(one), "ByteLevel") == 0) != (i + 1 == n))
      REFUSE(l, "pre_tokenizer: step %zu of %zu is %.64s: ByteLevel last expected", i + 1, n,
             type_of(one));
  }
  if (n == 0) REFUSE(l, "pre_tokenizer: an empty Sequence: ByteLevel expected");
  return STRATA_OK;
}

/* A post-processor may move offsets, which strata does not have, but not add
 * tokens. */
static strata_status check_post_processor(const loader *l, json_t *step) {
  json_t *single = json_object_get(step, "single");
  if (strcmp(type_of(step), "ByteLevel") == 0) return STRATA_OK;
  if (strcmp(type_of(step), "TemplateProcessing") != 0)
    REFUSE(l, "post_processor: %.64s: ByteLevel or TemplateProcessing expected", type_of(step));
  if (json_array_size(single) != 1 || !json_object_get(json_array_get(single, 0), "Sequence"))
    REFUSE(l, "post_processor.single: tokens are added: the sequence alone expected");
  return STRATA_OK;
}

static strata_status check_decoder(const loader *l, json_t *decoder) {
  if (strcmp(type_of(decoder), "ByteLevel") != 0)
    REFUSE(l, "decoder: %.64s: ByteLevel expected", type_of(decoder));
  return STRATA_OK;
}

static strata_status load_root(const loader *l, json_t *root) {
  if (!json_is_object(root)) DAMAGED(l, "not an object: a tokenizer expected");
  ST_TRY(check_keys(
      l, root, "",
      " version added_tokens normalizer pre_tokenizer post_processor decoder model "));
  ST_TRY(each_step(l, json_object_get(root, "normalizer"), "normalizers", load_normalizer));
  ST_TRY(check_byte_level_last(l, json_object_get(root, "pre_tokenizer")));
  ST_TRY(each_step(l, json_object_get(root, "pre_tokenizer"), "pretokenizers",
                   load_pre_tokenizer));
  ST_TRY(each_step(l, json_object_get(root, "post_processor"), "processors",
                   check_post_processor));
  ST_TRY(check_decoder(l, json_object_get(root, "decoder")));
  ST_TRY(load_model(l, json_object_get(root, "model")));
  return load_added(l, json_object_get(root, "added_tokens"));
}

strata_status st_tokenizer_parse(const char *json, size_t n, const char *label,
                                 strata_tokenizer **out, strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory;
  json_t *root = NULL;
  json_error_t json_error;
  loader l = {.label = label, .err = err};
  *out = NULL;
  if (n > UINT32_MAX / 2) ST_FAIL(err, LIMIT, "%s: %zu bytes: fewer expected", label, n);
  ST_TRY(st_calloc(&memory, 1, sizeof *l.tokenizer, "a tokenizer", err));
  l.tokenizer = memory;
  st_byte_letters_init(&l.letters);
  root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &json_error);
  if (!root && json_error_code(&json_error) == json_error_out_of_memory) {
    status = st_error_nomem(err, label, n);
    goto out;
  }
  if (!root)
    ST_FAIL_OUT(err, FORMAT, "%s: line %d, byte %d: %s", label, json_error.line,
                json_error.position, json_error.text);
  ST_TRY_OUT(load_root(&l, root));
  *out = l.tokenizer;
  l.tokenizer = NULL;
out:
  json_decref(root);
  strata_tokenizer_close(&l.tokenizer);
  return status;
}
