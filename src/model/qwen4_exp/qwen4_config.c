/* Reading config.json into a qwen4_config: each key is checked for type and
 * range, then the rules between keys, so that nothing later meets a wrong
 * shape. The bounds keep every product of two dimensions within int32. */
#include "model/qwen4_exp/qwen4_config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/st_mem.h"
#include "gdn_pre/gdn_pre.h"
#include "model/st_json.h"
#include "moe_route/moe_route.h"
#include "os/st_file.h"
#include "qsa_attn/qsa_attn.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Each of two factors is at most HEADS_MAX, so a projection has at most 2^25
 * rows, and the channels of a GDN layer fit too. */
enum { FILE_MAX = 16 << 20, HEADS_MAX = 1 << 12, EXPERTS_MAX = 1 << 16, KERNEL_LANES = 32 };

/* The hash's primes start here at most: a prime is then found by exact
 * arithmetic in 64 bits, and a table of that many rows a head is far beyond
 * any that exists. */
#define NGRAM_BASE_MAX ((int64_t)1 << 31)

/* Where keys are looked up. */
typedef struct reader {
  const char *label;
  const json_t *text;  /* the text model's keys */
  const json_t *outer; /* the object around it, or NULL if flat */
} reader;

/* ---- single values -------------------------------------------------------- */

/* NULL if the key is absent or null. */
static const json_t *member(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_null(value) ? NULL : value;
}

/* A few keys may stand beside text_config instead of in it. */
static const json_t *member_or_outer(const reader *r, const char *key) {
  const json_t *value = member(r->text, key);
  return value || !r->outer ? value : member(r->outer, key);
}

static strata_status missing(const reader *r, const char *key, strata_error *err) {
  ST_FAIL(err, FORMAT, "%s: %s: missing: the model needs it", r->label, key);
}

static strata_status to_int(const reader *r, const char *key, const json_t *value, int64_t low,
                            int64_t high, int64_t *out, strata_error *err) {
  if (!json_is_integer(value))
    ST_FAIL(err, FORMAT, "%s: %s: not an integer: an integer expected", r->label, key);
  *out = json_integer_value(value);
  if (*out < low || *out > high)
    ST_FAIL(err, FORMAT, "%s: %s: %" PRId64 ": %" PRId64 " .. %" PRId64 " expected", r->label, key,
            *out, low, high);
  return STRATA_OK;
}

static strata_status read_int(const reader *r, const char *key, int64_t low, int64_t high,
                              int64_t *out, strata_error *err) {
  const json_t *value = member(r->text, key);
  if (!value) return missing(r, key, err);
  return to_int(r, key, value, low, high, out, err);
}

/* Leaves *out as it is if the key is absent. */
static strata_status read_optional_int(const reader *r, const char *key, int64_t low, int64_t high,
                                       int64_t *out, strata_error *err) {
  const json_t *value = member(r->text, key);
  return value ? to_int(r, key, value, low, high, out, err) : STRATA_OK;
}

/* A number in [low, high]. */
static strata_status to_real(const reader *r, const char *key, const json_t *value, double low,
                             double high, double *out, strata_error *err) {
  if (!json_is_number(value))
    ST_FAIL(err, FORMAT, "%s: %s: not a number: a number expected", r->label, key);
  *out = json_number_value(value);
  if (!(*out >= low && *out <= high))
    ST_FAIL(err, FORMAT, "%s: %s: %g: %g .. %g expected", r->label, key, *out, low, high);
  return STRATA_OK;
}

/* Leaves *out as it is if value is NULL. */
static strata_status to_bool(const reader *r, const char *key, const json_t *value, int32_t *out,
                             strata_error *err) {
  if (!value) return STRATA_OK;
  if (!json_is_boolean(value))
    ST_FAIL(err, FORMAT, "%s: %s: not true or false: one of them expected", r->label, key);
  *out = json_is_true(value);
  return STRATA_OK;
}

/* A key that strata only runs with one value. */
static strata_status need_text(const reader *r, const char *key, const char *expected,
                               strata_error *err) {
  const json_t *value = member(r->text, key);
  if (!value) return missing(r, key, err);
  const char *text = json_string_value(value);
  if (!text) ST_FAIL(err, FORMAT, "%s: %s: not a string: a string expected", r->label, key);
  if (strcmp(text, expected) != 0)
    ST_FAIL(err, UNSUPPORTED, "%s: %s: %s: %s expected", r->label, key, text, expected);
  return STRATA_OK;
}

/* ---- tables of like keys -------------------------------------------------- */

typedef struct int_key {
  const char *key;
  size_t offset; /* of an int32_t in qwen4_config */
  int32_t low, high;
} int_key;

#define FIELD(name) offsetof(qwen4_config, name)

static const int_key model_keys[] = {
    {"num_hidden_layers", FIELD(n_layers), 1, QWEN4_LAYERS_MAX},
    {"hidden_size", FIELD(hidden), 1, QWEN4_DIM_MAX},
    {"vocab_size", FIELD(vocab), 1, QWEN4_DIM_MAX},
    {"max_position_embeddings", FIELD(max_positions), 1, QWEN4_DIM_MAX},
    {"hc_count", FIELD(hc_count), 1, 16},
    {"hc_lowrank", FIELD(hc_lowrank), 1, QWEN4_DIM_MAX},
    {"linear_num_key_heads", FIELD(gdn_k_heads), 1, HEADS_MAX},
    {"linear_num_value_heads", FIELD(gdn_v_heads), 1, HEADS_MAX},
    {"linear_key_head_dim", FIELD(gdn_k_dim), 1, HEADS_MAX},
    {"linear_value_head_dim", FIELD(gdn_v_dim), 1, HEADS_MAX},
    {"linear_conv_kernel_dim", FIELD(gdn_taps), 2, 16},
    {"num_attention_heads", FIELD(q_heads), 1, HEADS_MAX},
    {"num_key_value_heads", FIELD(kv_heads), 1, HEADS_MAX},
    {"head_dim", FIELD(head_dim), 1, HEADS_MAX},
    {"indexer_n_heads", FIELD(idx_heads), 1, HEADS_MAX},
    {"indexer_head_dim", FIELD(idx_dim), 1, HEADS_MAX},
    {"indexer_budget", FIELD(idx_budget), 1, QWEN4_DIM_MAX},
    {"indexer_compress_ratio", FIELD(idx_ratio), 1, QWEN4_DIM_MAX},
    {"num_experts", FIELD(n_experts), 1, EXPERTS_MAX},
    {"num_experts_per_tok", FIELD(n_experts_used), 1, EXPERTS_MAX},
    {"moe_intermediate_size", FIELD(expert_ff), 1, QWEN4_DIM_MAX},
    {"shared_expert_intermediate_size", FIELD(shared_ff), 1, QWEN4_DIM_MAX},
};

static const int_key ple_keys[] = {
    {"ple_embed_dim", FIELD(ple_dim), 1, QWEN4_DIM_MAX},
    {"ngram_size", FIELD(ngram_size), 2, QWEN4_NGRAM_MAX},
    {"heads_per_ngram", FIELD(heads_per_ngram), 1, 256},
    {"ple_conv_kernel_size", FIELD(ple_taps), 2, 16},
};

static strata_status read_keys(const reader *r, const int_key *keys, size_t n, qwen4_config *c,
                               strata_error *err) {
  for (size_t i = 0; i < n; i++) {
    int64_t value;
    ST_TRY(read_int(r, keys[i].key, keys[i].low, keys[i].high, &value, err));
    const int32_t narrow = (int32_t)value;
    memcpy((char *)c + keys[i].offset, &narrow, sizeof narrow);
  }
  return STRATA_OK;
}

/* A rule between values that are each in range. */
typedef struct rule {
  bool ok;
  strata_status otherwise;
  const char *key;
  int32_t value;
  const char *expected;
} rule;

static strata_status check_rules(const reader *r, const rule *rules, size_t n,
                                 strata_error *err) {
  for (size_t i = 0; i < n; i++)
    if (!rules[i].ok)
      return st_error_set(err, rules[i].otherwise, "%s: %s: %d: %s expected", r->label,
                          rules[i].key, rules[i].value, rules[i].expected);
  return STRATA_OK;
}

static strata_status check_dims(const reader *r, const qwen4_config *c, strata_error *err) {
  static const char lanes[] = "a multiple of 32";
  const rule rules[] = {
      {c->gdn_k_dim % KERNEL_LANES == 0, STRATA_UNSUPPORTED, "linear_key_head_dim", c->gdn_k_dim,
       lanes},
      {c->gdn_k_dim <= STK_GDN_PRE_K_DIM_MAX, STRATA_UNSUPPORTED, "linear_key_head_dim", c->gdn_k_dim, "at most 512"},
      {c->gdn_v_dim % KERNEL_LANES == 0, STRATA_UNSUPPORTED, "linear_value_head_dim", c->gdn_v_dim,
       lanes},
      {c->head_dim % KERNEL_LANES == 0, STRATA_UNSUPPORTED, "head_dim", c->head_dim, lanes},
      {c->head_dim <= STK_HEAD_DIM_MAX, STRATA_UNSUPPORTED, "head_dim", c->head_dim, "at most 512"},
      {c->n_experts_used <= STK_EXPERTS_USED_MAX, STRATA_UNSUPPORTED, "num_experts_per_tok",
       c->n_experts_used, "at most 64"},
      {c->idx_dim % KERNEL_LANES == 0, STRATA_UNSUPPORTED, "indexer_head_dim", c->idx_dim, lanes},
      {c->gdn_v_heads % c->gdn_k_heads == 0, STRATA_FORMAT, "linear_num_value_heads",
       c->gdn_v_heads, "a multiple of linear_num_key_heads"},
      {c->q_heads % c->kv_heads == 0, STRATA_FORMAT, "num_attention_heads", c->q_heads,
       "a multiple of num_key_value_heads"},
      {c->idx_budget % c->idx_ratio == 0, STRATA_FORMAT, "indexer_budget", c->idx_budget,
       "a multiple of indexer_compress_ratio"},
      {c->n_experts_used <= c->n_experts, STRATA_FORMAT, "num_experts_per_tok", c->n_experts_used,
       "at most num_experts"},
  };
  return check_rules(r, rules, COUNT(rules), err);
}

/* ---- layers --------------------------------------------------------------- */

static strata_status read_layer_types(const reader *r, const json_t *list, qwen4_config *c,
                                      strata_error *err) {
  if (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layers)
    ST_FAIL(err, FORMAT, "%s: layer_types: %zu entries: a list of num_hidden_layers = %d expected",
            r->label, json_array_size(list), c->n_layers);
  for (int32_t l = 0; l < c->n_layers; l++) {
    const char *type = json_string_value(json_array_get(list, (size_t)l));
    if (!type)
      ST_FAIL(err, FORMAT, "%s: layer_types[%d]: not a string: a string expected", r->label, l);
    if (strcmp(type, "linear_attention") == 0)
      c->layer_kind[l] = QWEN4_GDN;
    else if (strcmp(type, "qwen_sparse_attention") == 0 || strcmp(type, "full_attention") == 0)
      c->layer_kind[l] = QWEN4_QSA;
    else
      ST_FAIL(err, UNSUPPORTED,
              "%s: layer_types[%d]: %s: linear_attention, qwen_sparse_attention or "
              "full_attention expected",
              r->label, l, type);
  }
  return STRATA_OK;
}

/* Without layer_types every full_attention_interval-th layer is QSA. */
static strata_status derive_layer_types(const reader *r, qwen4_config *c, strata_error *err) {
  int64_t interval = 0;
  ST_TRY(read_optional_int(r, "full_attention_interval", 1, INT32_MAX, &interval, err));
  if (!interval) return missing(r, "layer_types or full_attention_interval", err);
  for (int32_t l = 0; l < c->n_layers; l++)
    c->layer_kind[l] = (l + 1) % interval == 0 ? QWEN4_QSA : QWEN4_GDN;
  return STRATA_OK;
}

static strata_status read_layers(const reader *r, qwen4_config *c, strata_error *err) {
  const json_t *list = member(r->text, "layer_types");
  ST_TRY(list ? read_layer_types(r, list, c, err) : derive_layer_types(r, c, err));
  for (int32_t l = 0; l < c->n_layers; l++) {
    c->n_gdn_layers += c->layer_kind[l] == QWEN4_GDN;
    c->n_qsa_layers += c->layer_kind[l] == QWEN4_QSA;
  }
  return STRATA_OK;
}

/* ---- rope ----------------------------------------------------------------- */

/* rope may be NULL; its type, under either name, must be "default". */
static strata_status check_rope(const reader *r, const char *key, const json_t *rope,
                                strata_error *err) {
  static const char *const type_keys[] = {"rope_type", "type"};
  if (!rope) return STRATA_OK;
  if (!json_is_object(rope))
    ST_FAIL(err, FORMAT, "%s: %s: not an object: an object expected", r->label, key);
  for (size_t i = 0; i < COUNT(type_keys); i++) {
    const json_t *type = member(rope, type_keys[i]);
    if (type && !json_is_string(type))
      ST_FAIL(err, FORMAT, "%s: %s.%s: not a string: a string expected", r->label, key,
              type_keys[i]);
    if (type && strcmp(json_string_value(type), "default") != 0)
      ST_FAIL(err, UNSUPPORTED, "%s: %s.%s: %s: default expected", r->label, key, type_keys[i],
              json_string_value(type));
  }
  return STRATA_OK;
}

static strata_status read_rope(const reader *r, qwen4_config *c, strata_error *err) {
  const json_t *rope = member(r->text, "rope_parameters");
  ST_TRY(check_rope(r, "rope_parameters", rope, err));
  ST_TRY(check_rope(r, "rope_scaling", member(r->text, "rope_scaling"), err));
  const json_t *theta = rope ? member(rope, "rope_theta") : NULL;
  const json_t *factor = rope ? member(rope, "partial_rotary_factor") : NULL;
  if (!theta) theta = member(r->text, "rope_theta");
  if (!factor) factor = member(r->text, "partial_rotary_factor");
  if (!theta) return missing(r, "rope_theta", err);
  ST_TRY(to_real(r, "rope_theta", theta, 1, 1e15, &c->rope_theta, err));
  double part = 0.25;
  if (factor) ST_TRY(to_real(r, "partial_rotary_factor", factor, 0, 1, &part, err));
  c->rotary_dim = (int32_t)(c->head_dim * part);
  const rule rules[] = {
      {c->rotary_dim >= 2 && c->rotary_dim % 2 == 0, STRATA_FORMAT,
       "head_dim * partial_rotary_factor", c->rotary_dim, "an even number of at least 2"},
      {c->rotary_dim <= c->idx_dim, STRATA_FORMAT, "head_dim * partial_rotary_factor",
       c->rotary_dim, "at most indexer_head_dim"},
  };
  return check_rules(r, rules, COUNT(rules), err);
}

/* ---- end of sequence ------------------------------------------------------ */

static strata_status add_eos(const reader *r, const json_t *value, qwen4_config *c,
                             strata_error *err) {
  int64_t id;
  ST_TRY(to_int(r, "eos_token_id", value, 0, c->vocab - 1, &id, err));
  for (int32_t i = 0; i < c->n_eos; i++)
    if (c->eos[i] == id) return STRATA_OK;
  if (c->n_eos == QWEN4_EOS_MAX)
    ST_FAIL(err, FORMAT, "%s: eos_token_id: more than %d ids: at most %d expected", r->label,
            QWEN4_EOS_MAX, QWEN4_EOS_MAX);
  c->eos[c->n_eos++] = (int32_t)id;
  return STRATA_OK;
}

/* value is an id, a list of ids, or NULL. */
static strata_status read_eos(const reader *r, const json_t *value, qwen4_config *c,
                              strata_error *err) {
  if (!value) return STRATA_OK;
  if (!json_is_array(value)) return add_eos(r, value, c, err);
  for (size_t i = 0; i < json_array_size(value); i++)
    ST_TRY(add_eos(r, json_array_get(value, i), c, err));
  return STRATA_OK;
}

/* ---- n-gram embeddings (PLE) ---------------------------------------------- */

static int compare_int32(const void *a, const void *b) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

/* ple_layer_ids counts layers from one. */
static strata_status read_ple_layers(const reader *r, qwen4_config *c, strata_error *err) {
  const json_t *ids = member(r->text, "ple_layer_ids");
  if (!ids) return STRATA_OK;
  if (!json_is_array(ids) || json_array_size(ids) > QWEN4_PLE_MAX)
    ST_FAIL(err, FORMAT, "%s: ple_layer_ids: %zu entries: a list of at most %d expected", r->label,
            json_array_size(ids), QWEN4_PLE_MAX);
  c->n_ple = (int32_t)json_array_size(ids);
  for (int32_t i = 0; i < c->n_ple; i++) {
    int64_t id;
    ST_TRY(to_int(r, "ple_layer_ids", json_array_get(ids, (size_t)i), 1, c->n_layers, &id, err));
    c->ple_layer[i] = (int32_t)id - 1;
  }
  qsort(c->ple_layer, (size_t)c->n_ple, sizeof *c->ple_layer, compare_int32);
  for (int32_t i = 0; i < c->n_ple; i++) {
    int32_t l = c->ple_layer[i];
    const rule rules[] = {
        {i == 0 || c->ple_layer[i - 1] != l, STRATA_FORMAT, "ple_layer_ids", l + 1,
         "each layer once"},
        {c->layer_kind[l] == QWEN4_GDN, STRATA_FORMAT, "ple_layer_ids", l + 1,
         "a linear-attention layer"},
    };
    ST_TRY(check_rules(r, rules, COUNT(rules), err));
  }
  return STRATA_OK;
}

static strata_status read_ple(const reader *r, qwen4_config *c, strata_error *err) {
  int64_t parts = 1, seed = 1234;
  ST_TRY(read_ple_layers(r, c, err));
  c->ple_eos = c->n_eos ? c->eos[0] : -1;
  if (!c->n_ple) return STRATA_OK;
  if (!c->n_eos) return missing(r, "eos_token_id", err);
  ST_TRY(read_keys(r, ple_keys, COUNT(ple_keys), c, err));
  ST_TRY(read_int(r, "ngram_vocab_size_base", 2, NGRAM_BASE_MAX, &c->ngram_vocab_base, err));
  ST_TRY(read_int(r, "make_ngram_vocab_size_divisible_by", 1, QWEN4_DIM_MAX,
                  &c->ngram_vocab_divisor, err));
  ST_TRY(read_optional_int(r, "split_ngram_parts", 1, 1 << 20, &parts, err));
  ST_TRY(read_optional_int(r, "seed", 0, INT64_MAX, &seed, err));
  c->ngram_parts = (int32_t)parts;
  c->seed = (uint64_t)seed;
  const rule divisible = {c->ple_dim % qwen4_ngram_heads(c) == 0, STRATA_FORMAT, "ple_embed_dim",
                          c->ple_dim, "a multiple of (ngram_size - 1) * heads_per_ngram"};
  return check_rules(r, &divisible, 1, err);
}

/* ---- the whole ------------------------------------------------------------ */

/* Finds the text model's object and checks model_type. */
static strata_status find_text(reader *r, const json_t *root, strata_error *err) {
  const json_t *nested = member(root, "text_config");
  r->text = root;
  if (!nested) return need_text(r, "model_type", "qwen4_exp_text", err);
  ST_TRY(need_text(r, "model_type", "qwen4_exp", err));
  if (!json_is_object(nested))
    ST_FAIL(err, FORMAT, "%s: text_config: not an object: an object expected", r->label);
  r->text = nested;
  r->outer = root;
  return member(nested, "model_type") ? need_text(r, "model_type", "qwen4_exp_text", err)
                                      : STRATA_OK;
}

/* The choices of the architecture that strata runs in one form only. */
static strata_status check_choices(const reader *r, strata_error *err) {
  int32_t bias = 0;
  int64_t kv_heads;
  ST_TRY(need_text(r, "hidden_act", "silu", err));
  ST_TRY(need_text(r, "output_gate_type", "sigmoid", err));
  ST_TRY(to_bool(r, "attention_bias", member(r->text, "attention_bias"), &bias, err));
  if (bias) ST_FAIL(err, UNSUPPORTED, "%s: attention_bias: true: false expected", r->label);
  ST_TRY(read_int(r, "indexer_kv_heads", 1, HEADS_MAX, &kv_heads, err));
  if (kv_heads != 1)
    ST_FAIL(err, UNSUPPORTED, "%s: indexer_kv_heads: %" PRId64 ": 1 expected", r->label, kv_heads);
  return STRATA_OK;
}

static strata_status read_all(const reader *r, qwen4_config *c, strata_error *err) {
  double eps = 1e-6;
  const json_t *value = member(r->text, "rms_norm_eps");
  ST_TRY(check_choices(r, err));
  ST_TRY(read_keys(r, model_keys, COUNT(model_keys), c, err));
  ST_TRY(check_dims(r, c, err));
  /* Still above 0 when it is narrowed to f32. */
  if (value) ST_TRY(to_real(r, "rms_norm_eps", value, 1e-30, 1, &eps, err));
  c->rms_eps = (float)eps;
  c->norm_topk = 1;
  ST_TRY(to_bool(r, "norm_topk_prob", member(r->text, "norm_topk_prob"), &c->norm_topk, err));
  ST_TRY(to_bool(r, "tie_word_embeddings", member_or_outer(r, "tie_word_embeddings"),
                 &c->tie_word_embeddings, err));
  ST_TRY(read_layers(r, c, err));
  ST_TRY(read_rope(r, c, err));
  ST_TRY(read_eos(r, member_or_outer(r, "eos_token_id"), c, err));
  return read_ple(r, c, err);
}

strata_status qwen4_config_parse(const char *label, const char *json, size_t n_bytes,
                                 qwen4_config *out, strata_error *err) {
  strata_status status = STRATA_OK;
  json_t *root = NULL;
  reader r = {.label = label};
  *out = (qwen4_config){0};
  ST_TRY(st_json_parse_object(label, json, n_bytes, &root, err));
  ST_TRY_OUT(find_text(&r, root, err));
  ST_TRY_OUT(read_all(&r, out, err));
out:
  if (status != STRATA_OK) *out = (qwen4_config){0};
  json_decref(root);
  return status;
}

static strata_status read_config_json(const char *path, qwen4_config *out, strata_error *err) {
  char *text;
  size_t n_bytes;
  ST_TRY(st_file_read(path, FILE_MAX, &text, &n_bytes, err));
  strata_status status = qwen4_config_parse(path, text, n_bytes, out, err);
  st_free(text);
  return status;
}

/* Adds the eos ids of a generation_config.json, which need not exist. */
static strata_status read_generation_json(const char *path, qwen4_config *c, strata_error *err) {
  strata_status status = STRATA_OK;
  char *text = NULL;
  size_t n_bytes;
  json_t *root = NULL;
  if (st_path_probe(path) == ST_PATH_NONE) return STRATA_OK;
  ST_TRY(st_file_read(path, FILE_MAX, &text, &n_bytes, err));
  ST_TRY_OUT(st_json_parse_object(path, text, n_bytes, &root, err));
  reader r = {.label = path, .text = root};
  ST_TRY_OUT(read_eos(&r, member(root, "eos_token_id"), c, err));
out:
  json_decref(root);
  st_free(text);
  return status;
}

strata_status qwen4_config_read(const char *directory, qwen4_config *out, strata_error *err) {
  strata_status status = STRATA_OK;
  char *config = NULL, *generation = NULL;
  *out = (qwen4_config){0};
  ST_TRY_OUT(st_path_join(&config, directory, "config.json", err));
  ST_TRY_OUT(st_path_join(&generation, directory, "generation_config.json", err));
  ST_TRY_OUT(read_config_json(config, out, err));
  ST_TRY_OUT(read_generation_json(generation, out, err));
out:
  if (status != STRATA_OK) *out = (qwen4_config){0};
  st_free(generation);
  st_free(config);
  return status;
}
