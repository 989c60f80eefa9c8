/* config.json: every key's type and range, the rules between keys, the forms
 * that are accepted, and the constants of the n-gram hash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/st_mem.h"
#include "model/qwen4_exp/qwen4_config.h"
#include "st_test_model.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- changing one key ----------------------------------------------------- */

/* Sets key, or the member behind a dot ("rope_parameters.rope_theta"), to the
 * JSON value; NULL removes it. */
static void set_key(json_t *object, const char *key, const char *value) {
  const char *dot = strchr(key, '.');
  if (dot) {
    char outer[64];
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
    set_key(json_object_get(object, outer), dot + 1, value);
    return;
  }
  json_object_del(object, key);
  if (!value) return;
  json_t *json = json_loads(value, JSON_DECODE_ANY, NULL);
  assert_non_null(json);
  assert_int_equal(json_object_set_new(object, key, json), 0);
}

typedef struct change {
  const char *key, *value;
} change;

static strata_status parse_json(json_t *json, qwen4_config *c, strata_error *err) {
  char *text = json_dumps(json, 0);
  assert_non_null(text);
  json_decref(json);
  strata_status status = qwen4_config_parse("LABEL", text, strlen(text), c, err);
  free(text);
  return status;
}

/* Parses the miniature model's config after changes, which end with a NULL key. */
static strata_status parse_changed(const st_test_model_options *options, const change *changes,
                                   qwen4_config *c, strata_error *err) {
  json_t *json = st_test_model_config(options);
  for (; changes->key; changes++) set_key(json, changes->key, changes->value);
  return parse_json(json, c, err);
}

static const st_test_model_options plain = {0};

static void expect(strata_status want, const change *changes, const char *needle) {
  static const qwen4_config zero;
  qwen4_config c;
  strata_error err;
  strata_status status = parse_changed(&plain, changes, &c, &err);
  st_test_expect_error(status, &err, want, "LABEL: ", needle);
  assert_memory_equal(&c, &zero, sizeof c);
}

static void accept(const change *changes, qwen4_config *c) {
  strata_error err;
  if (parse_changed(&plain, changes, c, &err) != STRATA_OK) fail_msg("%s", err.message);
}

/* ---- what is accepted ----------------------------------------------------- */

static void check_dims(const qwen4_config *c) {
  static const uint8_t kinds[] = {QWEN4_GDN, QWEN4_GDN, QWEN4_QSA, QWEN4_GDN};
  assert_int_equal(c->n_layers, 4);
  assert_memory_equal(c->layer_kind, kinds, sizeof kinds);
  assert_int_equal(c->n_gdn_layers, 3);
  assert_int_equal(c->n_qsa_layers, 1);
  assert_int_equal(c->hidden, 40);
  assert_int_equal(c->vocab, 97);
  assert_int_equal(c->max_positions, 256);
  assert_int_equal(c->hc_count, 3);
  assert_int_equal(c->hc_lowrank, 7);
  assert_int_equal(c->gdn_k_heads, 2);
  assert_int_equal(c->gdn_v_heads, 4);
  assert_int_equal(c->gdn_k_dim, 32);
  assert_int_equal(c->gdn_v_dim, 64);
  assert_int_equal(c->gdn_taps, 3);
  assert_int_equal(qwen4_gdn_channels(c), 384);
  assert_int_equal(c->q_heads, 6);
  assert_int_equal(c->kv_heads, 2);
  assert_int_equal(c->head_dim, 96);
  assert_int_equal(c->rotary_dim, 24);
  assert_true(c->rope_theta == 100000.0);
  assert_true(c->rms_eps == 1e-6f);
  assert_int_equal(c->idx_heads, 4);
  assert_int_equal(c->idx_dim, 64);
  assert_int_equal(c->idx_budget, 12);
  assert_int_equal(c->idx_ratio, 3);
  assert_int_equal(c->n_experts, 5);
  assert_int_equal(c->n_experts_used, 2);
  assert_int_equal(c->expert_ff, 24);
  assert_int_equal(c->shared_ff, 28);
  assert_int_equal(c->norm_topk, 1);
  assert_int_equal(c->tie_word_embeddings, 0);
}

static void check_ple(const qwen4_config *c) {
  assert_int_equal(c->n_ple, 2);
  assert_int_equal(c->ple_layer[0], 1);
  assert_int_equal(c->ple_layer[1], 3);
  assert_int_equal(c->ple_dim, 36);
  assert_int_equal(c->ngram_size, 3);
  assert_int_equal(c->heads_per_ngram, 3);
  assert_int_equal(qwen4_ngram_heads(c), 6);
  assert_int_equal(c->ngram_vocab_base, 50);
  assert_int_equal(c->ngram_vocab_divisor, 16);
  assert_int_equal(c->ngram_parts, 5);
  assert_int_equal(c->ple_taps, 5);
  assert_int_equal(c->seed, 1234);
  assert_int_equal(c->ple_eos, 96);
}

static void reads_every_key(void **state) {
  (void)state;
  qwen4_config c;
  accept((change[]){{0}}, &c);
  check_dims(&c);
  check_ple(&c);
  assert_int_equal(c.n_eos, 1);
  assert_int_equal(c.eos[0], 96);
}

static void reads_a_nested_config(void **state) {
  (void)state;
  const st_test_model_options nested = {.nested_config = true};
  qwen4_config c, flat;
  strata_error err;
  accept((change[]){{0}}, &flat);
  assert_int_equal(parse_changed(&nested, (change[]){{0}}, &c, &err), STRATA_OK);
  assert_memory_equal(&c, &flat, sizeof c);
  /* these two may stand beside text_config; the inner ones win */
  const change outside[] = {{"tie_word_embeddings", "true"}, {"eos_token_id", "[5,6]"}, {0}};
  assert_int_equal(parse_changed(&nested, outside, &c, &err), STRATA_OK);
  assert_memory_equal(&c, &flat, sizeof c);
  const change moved[] = {{"tie_word_embeddings", "true"}, {"eos_token_id", "[5,6]"},
                          {"text_config.tie_word_embeddings", NULL},
                          {"text_config.eos_token_id", NULL}, {"text_config.model_type", NULL},
                          {0}};
  assert_int_equal(parse_changed(&nested, moved, &c, &err), STRATA_OK);
  assert_int_equal(c.tie_word_embeddings, 1);
  assert_int_equal(c.n_eos, 2);
  assert_int_equal(c.ple_eos, 5);
}

static void refuses_bad_nesting(void **state) {
  (void)state;
  static const struct {
    change changes[2];
    strata_status status;
    const char *needle;
  } rows[] = {
      {{{"text_config", "[]"}}, STRATA_FORMAT, "text_config"},
      {{{"text_config", NULL}}, STRATA_UNSUPPORTED, "model_type: qwen4_exp"},
      {{{"model_type", "\"qwen3_next\""}}, STRATA_UNSUPPORTED, "model_type: qwen3_next"},
      {{{"model_type", NULL}}, STRATA_FORMAT, "model_type: missing"},
      {{{"text_config.model_type", "\"x\""}}, STRATA_UNSUPPORTED, "model_type: x"},
      {{{"text_config.hidden_size", NULL}}, STRATA_FORMAT, "hidden_size: missing"},
  };
  const st_test_model_options nested = {.nested_config = true};
  for (size_t i = 0; i < COUNT(rows); i++) {
    qwen4_config c;
    strata_error err;
    change changes[2] = {rows[i].changes[0], {0}};
    strata_status status = parse_changed(&nested, changes, &c, &err);
    st_test_expect_error(status, &err, rows[i].status, "LABEL: ", rows[i].needle);
  }
}

static void uses_the_listed_defaults(void **state) {
  (void)state;
  qwen4_config c;
  accept((change[]){{"norm_topk_prob", NULL}, {"seed", NULL}, {"rms_norm_eps", NULL},
                    {"tie_word_embeddings", NULL}, {"rope_parameters.partial_rotary_factor", NULL},
                    {"attention_bias", NULL}, {"split_ngram_parts", NULL}, {0}},
         &c);
  check_dims(&c);
  assert_int_equal(c.seed, 1234);
  assert_int_equal(c.ngram_parts, 1);
  accept((change[]){{"norm_topk_prob", "false"}, {"seed", "9223372036854775807"},
                    {"rms_norm_eps", "0.5"}, {"tie_word_embeddings", "true"},
                    {"rope_parameters.partial_rotary_factor", "0.5"}, {0}},
         &c);
  assert_int_equal(c.norm_topk, 0);
  assert_int_equal(c.seed, INT64_MAX);
  assert_true(c.rms_eps == 0.5f);
  assert_int_equal(c.tie_word_embeddings, 1);
  assert_int_equal(c.rotary_dim, 48);
}

static void reads_rope_in_both_places(void **state) {
  (void)state;
  qwen4_config c;
  accept((change[]){{"rope_parameters", NULL}, {"rope_theta", "500"},
                    {"partial_rotary_factor", "0.5"}, {0}},
         &c);
  assert_true(c.rope_theta == 500);
  assert_int_equal(c.rotary_dim, 48);
  accept((change[]){{"rope_scaling", "{\"type\":\"default\",\"mrope_section\":[1]}"}, {0}}, &c);
  accept((change[]){{"rope_scaling", "null"}, {0}}, &c);
  accept((change[]){{"rope_theta", "500"}, {0}}, &c); /* the nested one wins */
  assert_true(c.rope_theta == 100000.0);
}

static void derives_layer_types(void **state) {
  (void)state;
  qwen4_config c;
  accept((change[]){{"layer_types", NULL}, {"full_attention_interval", "3"}, {0}}, &c);
  check_dims(&c);
  accept((change[]){{"layer_types", "[\"linear_attention\",\"linear_attention\","
                                    "\"qwen_sparse_attention\",\"linear_attention\"]"}, {0}},
         &c);
  check_dims(&c);
  accept((change[]){{"full_attention_interval", "1"}, {0}}, &c); /* layer_types wins */
  check_dims(&c);
}

static void reads_eos_in_each_form(void **state) {
  (void)state;
  qwen4_config c;
  accept((change[]){{"eos_token_id", "[7,96,7]"}, {0}}, &c);
  assert_int_equal(c.n_eos, 2);
  assert_int_equal(c.eos[0], 7);
  assert_int_equal(c.eos[1], 96);
  assert_int_equal(c.ple_eos, 7);
  expect(STRATA_FORMAT, (change[]){{"eos_token_id", "null"}, {0}}, "eos_token_id: missing");
  expect(STRATA_FORMAT, (change[]){{"eos_token_id", "[]"}, {0}}, "eos_token_id: missing");
  accept((change[]){{"eos_token_id", "null"}, {"ple_layer_ids", NULL}, {0}}, &c);
  assert_int_equal(c.n_eos, 0);
  assert_int_equal(c.ple_eos, -1);
}

static void runs_without_ple(void **state) {
  (void)state;
  static const change without[][2] = {
      {{"ple_layer_ids", NULL}}, {{"ple_layer_ids", "null"}}, {{"ple_layer_ids", "[]"}}};
  const st_test_model_options no_ple = {.without_ple = true, .eos = ST_TEST_EOS_NULL};
  qwen4_config c;
  strata_error err;
  for (size_t i = 0; i < COUNT(without); i++) {
    accept(without[i], &c);
    check_dims(&c);
    assert_int_equal(c.n_ple, 0);
  }
  assert_int_equal(parse_changed(&no_ple, (change[]){{0}}, &c, &err), STRATA_OK);
  check_dims(&c);
  assert_int_equal(c.n_ple, 0);
}

/* ---- what is refused ------------------------------------------------------ */

static void refuses_bad_integers(void **state) {
  (void)state;
  static const struct {
    const char *key;
    int64_t low, high;
    bool optional;
  } rows[] = {
      {"num_hidden_layers", 1, 1024, false},
      {"hidden_size", 1, 1 << 24, false},
      {"vocab_size", 1, 1 << 24, false},
      {"max_position_embeddings", 1, 1 << 24, false},
      {"hc_count", 1, 16, false},
      {"hc_lowrank", 1, 1 << 24, false},
      {"linear_num_key_heads", 1, 4096, false},
      {"linear_num_value_heads", 1, 4096, false},
      {"linear_key_head_dim", 1, 4096, false},
      {"linear_value_head_dim", 1, 4096, false},
      {"linear_conv_kernel_dim", 2, 16, false},
      {"num_attention_heads", 1, 4096, false},
      {"num_key_value_heads", 1, 4096, false},
      {"head_dim", 1, 4096, false},
      {"indexer_n_heads", 1, 4096, false},
      {"indexer_kv_heads", 1, 4096, false},
      {"indexer_head_dim", 1, 4096, false},
      {"indexer_budget", 1, 1 << 24, false},
      {"indexer_compress_ratio", 1, 1 << 24, false},
      {"num_experts", 1, 65536, false},
      {"num_experts_per_tok", 1, 65536, false},
      {"moe_intermediate_size", 1, 1 << 24, false},
      {"shared_expert_intermediate_size", 1, 1 << 24, false},
      {"ple_embed_dim", 1, 1 << 24, false},
      {"ngram_size", 2, 8, false},
      {"heads_per_ngram", 1, 256, false},
      {"ple_conv_kernel_size", 2, 16, false},
      {"ngram_vocab_size_base", 2, INT64_C(1) << 31, false},
      {"make_ngram_vocab_size_divisible_by", 1, 1 << 24, false},
      {"split_ngram_parts", 1, 1 << 20, true},
      {"seed", 0, INT64_MAX, true},
  };
  static const char *const absurd[] = {"-9223372036854775808", "1.5", "1e3", "\"4\"", "[4]", "{}",
                                       "true"};
  for (size_t i = 0; i < COUNT(rows); i++) {
    char needle[96], below[32], above[32];
    snprintf(needle, sizeof needle, "%s: ", rows[i].key);
    snprintf(below, sizeof below, "%lld", (long long)rows[i].low - 1);
    expect(STRATA_FORMAT, (change[]){{rows[i].key, below}, {0}}, needle);
    if (rows[i].high < INT64_MAX) {
      snprintf(above, sizeof above, "%lld", (long long)rows[i].high + 1);
      expect(STRATA_FORMAT, (change[]){{rows[i].key, above}, {0}}, needle);
      expect(STRATA_FORMAT, (change[]){{rows[i].key, "9223372036854775807"}, {0}}, needle);
    }
    for (size_t a = 0; a < COUNT(absurd); a++)
      expect(STRATA_FORMAT, (change[]){{rows[i].key, absurd[a]}, {0}}, needle);
    if (rows[i].optional) continue;
    snprintf(needle, sizeof needle, "%s: missing", rows[i].key);
    expect(STRATA_FORMAT, (change[]){{rows[i].key, NULL}, {0}}, needle);
    expect(STRATA_FORMAT, (change[]){{rows[i].key, "null"}, {0}}, needle);
  }
}

#define LINEAR "\"linear_attention\""
#define FULL "\"full_attention\""

/* Rows of one change: the status and a piece of the message. */
static const struct {
  change change;
  strata_status status;
  const char *needle;
} bad_values[] = {
    /* what strata does not run */
    {{"model_type", "\"qwen4_exp\""}, STRATA_UNSUPPORTED, "model_type"},
    {{"model_type", "\"llama\""}, STRATA_UNSUPPORTED, "model_type: llama"},
    {{"hidden_act", "\"gelu\""}, STRATA_UNSUPPORTED, "hidden_act: gelu"},
    {{"output_gate_type", "\"swish\""}, STRATA_UNSUPPORTED, "output_gate_type: swish"},
    {{"attention_bias", "true"}, STRATA_UNSUPPORTED, "attention_bias"},
    {{"indexer_kv_heads", "2"}, STRATA_UNSUPPORTED, "indexer_kv_heads: 2"},
    {{"rope_parameters.rope_type", "\"yarn\""}, STRATA_UNSUPPORTED,
     "rope_parameters.rope_type: yarn"},
    {{"rope_scaling", "{\"type\":\"linear\"}"}, STRATA_UNSUPPORTED, "rope_scaling.type: linear"},
    {{"layer_types", "[" LINEAR "," LINEAR ",\"sliding_attention\"," LINEAR "]"},
     STRATA_UNSUPPORTED, "layer_types[2]: sliding_attention"},
    {{"linear_key_head_dim", "48"}, STRATA_UNSUPPORTED, "linear_key_head_dim: 48"},
    {{"linear_key_head_dim", "544"}, STRATA_UNSUPPORTED, "linear_key_head_dim: 544: at most 512 expected"},
    {{"linear_value_head_dim", "65"}, STRATA_UNSUPPORTED, "linear_value_head_dim: 65"},
    {{"head_dim", "80"}, STRATA_UNSUPPORTED, "head_dim: 80"},
    {{"indexer_head_dim", "72"}, STRATA_UNSUPPORTED, "indexer_head_dim: 72"},
    /* wrong types */
    {{"model_type", "7"}, STRATA_FORMAT, "model_type"},
    {{"model_type", NULL}, STRATA_FORMAT, "model_type: missing"},
    {{"hidden_act", NULL}, STRATA_FORMAT, "hidden_act: missing"},
    {{"hidden_act", "[]"}, STRATA_FORMAT, "hidden_act"},
    {{"output_gate_type", NULL}, STRATA_FORMAT, "output_gate_type: missing"},
    {{"attention_bias", "0"}, STRATA_FORMAT, "attention_bias"},
    {{"tie_word_embeddings", "1"}, STRATA_FORMAT, "tie_word_embeddings"},
    {{"norm_topk_prob", "\"yes\""}, STRATA_FORMAT, "norm_topk_prob"},
    {{"rms_norm_eps", "\"1e-6\""}, STRATA_FORMAT, "rms_norm_eps"},
    {{"rms_norm_eps", "0"}, STRATA_FORMAT, "rms_norm_eps"},
    {{"rms_norm_eps", "5e-56"}, STRATA_FORMAT, "rms_norm_eps: 5e-56"}, /* 0 as f32 */
    {{"rms_norm_eps", "-1e-6"}, STRATA_FORMAT, "rms_norm_eps"},
    {{"rms_norm_eps", "1.5"}, STRATA_FORMAT, "rms_norm_eps"},
    /* rules between keys */
    {{"linear_num_value_heads", "5"}, STRATA_FORMAT, "linear_num_value_heads: 5"},
    {{"num_attention_heads", "7"}, STRATA_FORMAT, "num_attention_heads: 7"},
    {{"indexer_budget", "13"}, STRATA_FORMAT, "indexer_budget: 13"},
    {{"num_experts_per_tok", "6"}, STRATA_FORMAT, "num_experts_per_tok: 6"},
    {{"ple_embed_dim", "37"}, STRATA_FORMAT, "ple_embed_dim: 37"},
    /* rope */
    {{"rope_parameters", "[]"}, STRATA_FORMAT, "rope_parameters"},
    {{"rope_parameters", NULL}, STRATA_FORMAT, "rope_theta: missing"},
    {{"rope_parameters.rope_type", "7"}, STRATA_FORMAT, "rope_parameters.rope_type"},
    {{"rope_parameters.rope_theta", NULL}, STRATA_FORMAT, "rope_theta: missing"},
    {{"rope_parameters.rope_theta", "\"1\""}, STRATA_FORMAT, "rope_theta"},
    {{"rope_parameters.rope_theta", "0"}, STRATA_FORMAT, "rope_theta"},
    {{"rope_parameters.rope_theta", "0.5"}, STRATA_FORMAT, "rope_theta: 0.5"},
    {{"rope_parameters.rope_theta", "1e300"}, STRATA_FORMAT, "rope_theta"},
    {{"rope_parameters.partial_rotary_factor", "0"}, STRATA_FORMAT, "partial_rotary_factor"},
    {{"rope_parameters.partial_rotary_factor", "-0.25"}, STRATA_FORMAT, "partial_rotary_factor"},
    {{"rope_parameters.partial_rotary_factor", "1.25"}, STRATA_FORMAT, "partial_rotary_factor"},
    {{"rope_parameters.partial_rotary_factor", "[]"}, STRATA_FORMAT, "partial_rotary_factor"},
    {{"rope_parameters.partial_rotary_factor", "0.01"}, STRATA_FORMAT,
     "partial_rotary_factor: 0"},
    {{"rope_parameters.partial_rotary_factor", "0.26042"}, STRATA_FORMAT,
     "partial_rotary_factor: 25"},
    /* 96 dims rotated, but the indexer's heads have 64 */
    {{"rope_parameters.partial_rotary_factor", "1.0"}, STRATA_FORMAT,
     "partial_rotary_factor: 96: at most indexer_head_dim"},
    /* layers */
    {{"layer_types", "[" LINEAR "," LINEAR "," FULL "]"}, STRATA_FORMAT, "layer_types: 3"},
    {{"layer_types", "7"}, STRATA_FORMAT, "layer_types"},
    {{"layer_types", "[" LINEAR "," LINEAR "," FULL ",7]"}, STRATA_FORMAT, "layer_types[3]"},
    {{"layer_types", NULL}, STRATA_FORMAT, "layer_types or full_attention_interval: missing"},
    {{"num_hidden_layers", "5"}, STRATA_FORMAT, "layer_types: 4"},
    /* eos */
    {{"eos_token_id", "97"}, STRATA_FORMAT, "eos_token_id: 97"},
    {{"eos_token_id", "-1"}, STRATA_FORMAT, "eos_token_id: -1"},
    {{"eos_token_id", "\"x\""}, STRATA_FORMAT, "eos_token_id"},
    {{"eos_token_id", "[1,\"x\"]"}, STRATA_FORMAT, "eos_token_id"},
    {{"eos_token_id", "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]"}, STRATA_FORMAT,
     "eos_token_id: more than 16"},
    /* PLE layers, counted from one */
    {{"ple_layer_ids", "2"}, STRATA_FORMAT, "ple_layer_ids"},
    {{"ple_layer_ids", "[0]"}, STRATA_FORMAT, "ple_layer_ids: 0"},
    {{"ple_layer_ids", "[5]"}, STRATA_FORMAT, "ple_layer_ids: 5"},
    {{"ple_layer_ids", "[2,2]"}, STRATA_FORMAT, "ple_layer_ids: 2: each layer once"},
    {{"ple_layer_ids", "[3]"}, STRATA_FORMAT, "ple_layer_ids: 3: a linear-attention layer"},
    {{"ple_layer_ids", "[\"2\"]"}, STRATA_FORMAT, "ple_layer_ids"},
    {{"ple_layer_ids", "[1,1,1,1,1,1,1,1,1]"}, STRATA_FORMAT, "ple_layer_ids: 9"},
};

static void refuses_bad_values(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(bad_values); i++)
    expect(bad_values[i].status, (change[]){bad_values[i].change, {0}}, bad_values[i].needle);
  expect(STRATA_FORMAT,
         (change[]){{"layer_types", NULL}, {"full_attention_interval", "0"}, {0}},
         "full_attention_interval: 0");
}

static void refuses_bad_json(void **state) {
  (void)state;
  static const char *const texts[] = {"", "{", "[]", "7", "{} x", "{\"a\":1,\"a\":1}",
                                      "{\"a\":99999999999999999999}", "{\"a\":1e999}",
                                      "\xff\xfe{}", "{\"a\":\"\xc0\x80\"}"};
  for (size_t i = 0; i < COUNT(texts); i++) {
    qwen4_config c;
    strata_error err;
    strata_status status = qwen4_config_parse("LABEL", texts[i], strlen(texts[i]), &c, &err);
    st_test_expect_error(status, &err, STRATA_FORMAT, "LABEL: ", "JSON");
  }
}

/* ---- files ---------------------------------------------------------------- */

static void reads_a_directory(void **state) {
  (void)state;
  char dir[ST_TEST_DIR_BYTES];
  static const char generation[] = "{\"eos_token_id\":[96,12],\"do_sample\":true}";
  static const char bad[] = "{\"eos_token_id\":[1000]}";
  qwen4_config c;
  strata_error err;
  strata_status status;
  st_test_dir_new(dir);
  status = qwen4_config_read(dir, &c, &err);
  st_test_expect_error(status, &err, STRATA_IO, dir, "config.json");
  st_test_model_write(dir, &plain);
  assert_int_equal(qwen4_config_read(dir, &c, &err), STRATA_OK);
  check_dims(&c);
  check_ple(&c);
  st_test_file_write(dir, "generation_config.json", generation, strlen(generation));
  assert_int_equal(qwen4_config_read(dir, &c, &err), STRATA_OK);
  assert_int_equal(c.n_eos, 2);
  assert_int_equal(c.eos[1], 12);
  assert_int_equal(c.ple_eos, 96);
  st_test_file_write(dir, "generation_config.json", bad, strlen(bad));
  status = qwen4_config_read(dir, &c, &err);
  st_test_expect_error(status, &err, STRATA_FORMAT, "generation_config.json", "eos_token_id");
  st_test_file_write(dir, "generation_config.json", "[", 1);
  status = qwen4_config_read(dir, &c, &err);
  st_test_expect_error(status, &err, STRATA_FORMAT, "generation_config.json", "JSON");
  st_test_dir_remove(dir);
}

static void survives_each_failing_allocation(void **state) {
  (void)state;
  enum { ENOUGH = 100 };
  char dir[ST_TEST_DIR_BYTES];
  qwen4_config c;
  strata_error err;
  strata_status status = STRATA_NOMEM;
  int32_t n;
  st_test_dir_new(dir);
  st_test_model_write(dir, &plain);
  st_test_file_write(dir, "generation_config.json", "{}", 2);
  for (n = 0; status != STRATA_OK && n < ENOUGH; n++) {
    st_mem_fail_at(n);
    status = qwen4_config_read(dir, &c, &err);
    st_mem_fail_at(-1);
    if (status != STRATA_OK) st_test_expect_error(status, &err, STRATA_NOMEM, "memory", NULL);
  }
  assert_int_equal(status, STRATA_OK);
  assert_in_range(n, 4, ENOUGH - 1);
  st_test_dir_remove(dir);
}

/* ---- the n-gram hash ------------------------------------------------------ */

static void released_model_has_the_known_hash(void **state) {
  (void)state;
  static const int64_t primes[] = {20000003, 20000023, 20000033, 20000047, 20000059, 20000063,
                                   20000069, 20000077, 20000081, 20000093, 20000107, 20000147,
                                   20000153, 20000159, 20000161, 20000171};
  const qwen4_config c = {.vocab = 248320, .ngram_size = 3, .heads_per_ngram = 8, .seed = 1234,
                          .ngram_vocab_base = 20000000, .ngram_vocab_divisor = 128, .n_ple = 1};
  qwen4_ngram_hash hash;
  assert_int_equal(qwen4_ngram_hash_init(&c, 0, &hash, NULL), STRATA_OK);
  assert_int_equal(hash.multiplier[0], 23703573157769);
  assert_int_equal(hash.multiplier[1], 20109073645365);
  assert_int_equal(hash.multiplier[2], 8052911324071);
  assert_memory_equal(hash.head_rows, primes, sizeof primes);
  assert_int_equal(hash.head_offset[0], 0);
  assert_int_equal(hash.head_offset[1], 20000003);
  assert_int_equal(hash.head_offset[2], 40000026);
  assert_int_equal(hash.head_offset[15], 300001275);
  assert_int_equal(hash.n_rows, 320001536);
  qwen4_ngram_hash_release(&hash);
  assert_null(hash.head_rows);
}

/* Three tokens at the start of a sequence, with the row formula written out. */
static void released_model_has_the_known_rows(void **state) {
  (void)state;
  enum { EOS = 248044 };
  static const int64_t ids[] = {248045, 846, 198};
  static const int64_t first[3][3] = {{13981229, 30076798, 49239434},
                                      {4908448, 36872991, 46611251},
                                      {4582007, 37691206, 44255274}};
  static const int64_t last[3] = {312970430, 308659387, 317942745};
  const qwen4_config c = {.vocab = 248320, .ngram_size = 3, .heads_per_ngram = 8, .seed = 1234,
                          .ngram_vocab_base = 20000000, .ngram_vocab_divisor = 128, .n_ple = 1};
  qwen4_ngram_hash hash;
  assert_int_equal(qwen4_ngram_hash_init(&c, 0, &hash, NULL), STRATA_OK);
  for (int32_t t = 0; t < 3; t++) {
    uint64_t before = t >= 1 ? (uint64_t)ids[t - 1] : EOS;
    uint64_t before_that = t >= 2 ? (uint64_t)ids[t - 2] : EOS;
    uint64_t m2 = (uint64_t)ids[t] * hash.multiplier[0] ^ before * hash.multiplier[1];
    uint64_t m3 = m2 ^ before_that * hash.multiplier[2];
    for (int32_t h = 0; h < 3; h++)
      assert_int_equal((int64_t)(m2 % (uint64_t)hash.head_rows[h]) + hash.head_offset[h],
                       first[t][h]);
    assert_int_equal((int64_t)(m3 % (uint64_t)hash.head_rows[15]) + hash.head_offset[15], last[t]);
  }
  qwen4_ngram_hash_release(&hash);
}

static bool divides_no_smaller(int64_t n) {
  for (int64_t d = 2; d * d <= n; d++)
    if (n % d == 0) return false;
  return n >= 2;
}

/* All head sizes of all layers must be the primes from the base on, in order. */
static void head_sizes_are_consecutive_primes(void **state) {
  (void)state;
  static const int64_t bases[] = {2, 3, 4, 8, 25, 1000, 3215031, 25326001,
                                  (INT64_C(1) << 31) - 20, INT64_C(1) << 31};
  for (size_t i = 0; i < COUNT(bases); i++) {
    const qwen4_config c = {.vocab = 97, .ngram_size = 3, .heads_per_ngram = 8, .n_ple = 3,
                            .ngram_vocab_base = bases[i], .ngram_vocab_divisor = 7};
    int64_t n = bases[i];
    for (int32_t ple = 0; ple < 3; ple++) {
      qwen4_ngram_hash hash;
      int64_t total = 0;
      assert_int_equal(qwen4_ngram_hash_init(&c, ple, &hash, NULL), STRATA_OK);
      for (int32_t h = 0; h < 16; h++, n++) {
        while (!divides_no_smaller(n)) n++;
        assert_int_equal(hash.head_rows[h], n);
        assert_int_equal(hash.head_offset[h], total);
        total += n;
      }
      assert_int_equal(hash.n_rows % 7, 0);
      assert_in_range(hash.n_rows - total, 0, 6);
      qwen4_ngram_hash_release(&hash);
    }
  }
}

/* The most hostile config that is accepted: it must not take noticeable time. */
static void the_longest_prime_search_ends(void **state) {
  (void)state;
  const qwen4_config c = {.vocab = 1, .ngram_size = 8, .heads_per_ngram = 256, .n_ple = 8,
                          .ngram_vocab_base = INT64_C(1) << 31, .ngram_vocab_divisor = 1 << 24,
                          .seed = INT64_MAX};
  qwen4_ngram_hash hash;
  assert_int_equal(qwen4_ngram_hash_init(&c, 7, &hash, NULL), STRATA_OK);
  assert_true(hash.n_rows > (INT64_C(1) << 31) * 1792);
  /* the primes stay where the primality test is exact */
  assert_true(hash.head_rows[1791] < 3215031751);
  qwen4_ngram_hash_release(&hash);
}

static void strata_tiny_has_its_rows(void **state) {
  (void)state;
  qwen4_config c;
  strata_error err;
  qwen4_ngram_hash hash;
  if (qwen4_config_read("models/strata-tiny", &c, &err) != STRATA_OK)
    fail_msg("%s", err.message);
  assert_int_equal(c.n_layers, 8);
  assert_int_equal(c.n_gdn_layers, 6);
  assert_int_equal(c.rotary_dim, 64);
  assert_int_equal(c.n_ple, 1);
  assert_int_equal(c.ple_layer[0], 1);
  assert_int_equal(c.ple_eos, 4089);
  assert_int_equal(qwen4_ngram_hash_init(&c, 0, &hash, NULL), STRATA_OK);
  assert_int_equal(hash.n_rows, 2 * 32448);
  qwen4_ngram_hash_release(&hash);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_every_key),
      cmocka_unit_test(reads_a_nested_config),
      cmocka_unit_test(refuses_bad_nesting),
      cmocka_unit_test(uses_the_listed_defaults),
      cmocka_unit_test(reads_rope_in_both_places),
      cmocka_unit_test(derives_layer_types),
      cmocka_unit_test(reads_eos_in_each_form),
      cmocka_unit_test(runs_without_ple),
      cmocka_unit_test(refuses_bad_integers),
      cmocka_unit_test(refuses_bad_values),
      cmocka_unit_test(refuses_bad_json),
      cmocka_unit_test(reads_a_directory),
      cmocka_unit_test(survives_each_failing_allocation),
      cmocka_unit_test(released_model_has_the_known_hash),
      cmocka_unit_test(released_model_has_the_known_rows),
      cmocka_unit_test(head_sizes_are_consecutive_primes),
      cmocka_unit_test(the_longest_prime_search_ends),
      cmocka_unit_test(strata_tiny_has_its_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
