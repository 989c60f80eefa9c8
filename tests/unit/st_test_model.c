/* Writing a miniature qwen4_exp model. The dimensions and tensor names are
 * spelled out here and not taken from the library, so that a mistake there is
 * not repeated. */
#include "st_test_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <unistd.h>

/* Dimensions, under the letters used in shapes below. */
enum {
  LAYERS = 4,
  VOCAB = 97,
  H = 40,       /* hidden */
  S = 3,        /* residual streams */
  RANK = 7,     /* hc_lowrank */
  KH = 2,       /* GDN heads and head sizes */
  VH = 4,
  KD = 32,
  VD = 64,
  TAPS = 3,
  QH = 6,       /* attention heads */
  KV = 2,
  HD = 96,
  IH = 4,       /* indexer */
  ID = 64,
  BUDGET = 12,
  RATIO = 3,
  E = 5,        /* experts */
  USED = 2,
  F = 24,
  SHARED_F = 28,
  P = 36,       /* PLE: 6 heads of 6 */
  NGRAM = 3,
  NGRAM_HEADS = 6,
  PLE_TAPS = 5,
  TABLE_BASE = 50,
  TABLE_DIVISOR = 16,
  PARTS = 5, /* does not divide the first table: its last shard is short */
  EOS = 96,
};

/* Six consecutive primes from 50 for the first PLE layer, six more for the
 * second; their sums padded to a multiple of 16. */
static const int64_t head_rows[2][NGRAM_HEADS] = {{53, 59, 61, 67, 71, 73},
                                                  {79, 83, 89, 97, 101, 103}};
static const int64_t table_rows[2] = {384, 560};
/* The hash multipliers for vocabulary 97 and seed 1234, computed apart. */
static const int64_t multipliers[2][NGRAM] = {
    {INT64_C(3923727992659049), INT64_C(40654649216656725), INT64_C(76114243727631751)},
    {INT64_C(22809209122961181), INT64_C(85077427878585347), INT64_C(22705169915965721)}};

static bool is_qsa(int32_t layer) { return layer == 2; }
/* The number of the PLE layer, or -1. */
static int32_t ple_number(int32_t layer) { return layer == 1 ? 0 : layer == 3 ? 1 : -1; }

/* ---- files ---------------------------------------------------------------- */

void st_test_dir_new(char dir[ST_TEST_DIR_BYTES]) {
  const char *base = getenv("TMPDIR");
  int n = snprintf(dir, ST_TEST_DIR_BYTES, "%s/strata-test.XXXXXX", base && *base ? base : "/tmp");
  assert_in_range(n, 1, ST_TEST_DIR_BYTES - 1);
  assert_non_null(mkdtemp(dir));
}

static void join(char *out, size_t out_bytes, const char *dir, const char *name) {
  int n = snprintf(out, out_bytes, "%s/%s", dir, name);
  assert_in_range(n, 1, out_bytes - 1);
}

void st_test_dir_remove(const char *dir) {
  char path[2 * ST_TEST_DIR_BYTES + 256];
  const struct dirent *item;
  DIR *handle = opendir(dir);
  assert_non_null(handle);
  while ((item = readdir(handle))) {
    join(path, sizeof path, dir, item->d_name);
    if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
      assert_int_equal(unlink(path), 0);
  }
  closedir(handle);
  assert_int_equal(rmdir(dir), 0);
}

void st_test_file_write(const char *dir, const char *name, const void *data, size_t n_bytes) {
  char path[2 * ST_TEST_DIR_BYTES];
  join(path, sizeof path, dir, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, n_bytes, file), n_bytes);
  assert_int_equal(fclose(file), 0);
}

void st_test_expect_error(strata_status got, const strata_error *err, strata_status want,
                          const char *a, const char *b) {
  if (got != want || err->status != want)
    fail_msg("status %d (%d in the error) instead of %d: %s", got, err->status, want,
             got == STRATA_OK ? "it succeeded" : err->message);
  if ((a && !strstr(err->message, a)) || (b && !strstr(err->message, b)))
    fail_msg("message '%s' lacks '%s' or '%s'", err->message, a ? a : "", b ? b : "");
}

static void write_json(const char *dir, const char *name, const json_t *json) {
  char *text = json_dumps(json, JSON_INDENT(1));
  assert_non_null(text);
  st_test_file_write(dir, name, text, strlen(text));
  free(text);
}

static size_t bytes_needed(const st_test_tensor *t) {
  size_t n_bytes = st_tensor_dtype_bytes(t->dtype);
  for (int32_t i = 0; i < t->n_dims; i++) n_bytes *= (size_t)t->shape[i];
  return n_bytes;
}

static char *header_text(const st_test_tensor *tensors, size_t n) {
  json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
  json_int_t offset = 0;
  for (size_t i = 0; i < n; i++) {
    const st_test_tensor *t = &tensors[i];
    if (t->skip) continue;
    json_t *shape = json_array();
    for (int32_t d = 0; d < t->n_dims; d++)
      json_array_append_new(shape, json_integer(t->shape[d]));
    json_int_t end = offset + (json_int_t)bytes_needed(t);
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", st_tensor_dtype_name(t->dtype),
                              "shape", shape, "data_offsets", offset, end);
    assert_int_equal(json_object_set_new(header, t->name, entry), 0);
    offset = end;
  }
  char *text = json_dumps(header, JSON_COMPACT);
  assert_non_null(text);
  json_decref(header);
  return text;
}

void st_test_safetensors_write(const char *dir, const char *name, const st_test_tensor *tensors,
                               size_t n, bool unaligned) {
  char *text = header_text(tensors, n);
  uint64_t text_bytes = strlen(text);
  uint64_t header_bytes = (text_bytes + 7) / 8 * 8 + (unaligned ? 1 : 0);
  size_t n_bytes = 8 + header_bytes;
  for (size_t i = 0; i < n; i++) n_bytes += tensors[i].skip ? 0 : bytes_needed(&tensors[i]);
  uint8_t *image = calloc(n_bytes, 1);
  assert_non_null(image);
  for (int32_t i = 0; i < 8; i++) image[i] = (uint8_t)(header_bytes >> 8 * i);
  memset(image + 8, ' ', header_bytes);
  memcpy(image + 8, text, text_bytes);
  uint8_t *to = image + 8 + header_bytes;
  for (size_t i = 0; i < n; i++) {
    size_t need = bytes_needed(&tensors[i]), have = tensors[i].n_bytes;
    if (tensors[i].skip) continue;
    memcpy(to, tensors[i].data, have < need ? have : need);
    to += need;
  }
  st_test_file_write(dir, name, image, n_bytes);
  free(image);
  free(text);
}

/* ---- values --------------------------------------------------------------- */

/* FNV-1a. */
static uint64_t hash_name(const char *name, uint64_t hash) {
  for (; *name; name++) hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
  return hash;
}

/* The finaliser of MurmurHash3. */
static uint64_t scramble(uint64_t x) {
  x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
  x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
  return x ^ x >> 33;
}

/* A value in (-2^-scale, 2^-scale) of 7 significant bits and sign. */
static float value_at(uint64_t key, uint64_t index, int32_t scale) {
  int32_t k = (int32_t)(scramble(key + index * UINT64_C(0x9e3779b97f4a7c15)) % 255) - 127;
  float value = (float)k / 128.0f;
  for (int32_t i = 0; i < scale; i++) value /= 2;
  return value;
}

/* Stores value, which is exact in each of the three types. */
static void store(uint8_t *data, st_tensor_dtype dtype, size_t i, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint16_t half = (uint16_t)(bits >> 16);
  if (dtype == ST_DTYPE_F16) {
    int32_t exponent = (int32_t)(bits >> 23 & 255) - 127 + 15;
    half = (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
    if (value == 0) half = 0;
    assert_true(value == 0 || exponent > 0); /* the scales keep F16 normal */
  }
  if (dtype == ST_DTYPE_F32)
    memcpy(data + 4 * i, &bits, 4);
  else
    memcpy(data + 2 * i, &half, 2);
}

/* ---- the list of tensors -------------------------------------------------- */

typedef struct builder {
  const st_test_model_options *options;
  const char *prefix;
  st_test_tensor *tensors;
  size_t n;
} builder;

enum { TENSORS_MAX = 256 };

static st_test_tensor *add(builder *b, const char *prefix, const char *name,
                           st_tensor_dtype dtype, int32_t n_dims, int64_t d0, int64_t d1,
                           int64_t d2) {
  assert_true(b->n < TENSORS_MAX);
  st_test_tensor *t = &b->tensors[b->n++];
  *t = (st_test_tensor){.dtype = dtype, .shape = {d0, d1, d2}, .n_dims = n_dims};
  int n = snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
  assert_in_range(n, 1, sizeof t->name - 1);
  t->n_bytes = bytes_needed(t);
  t->data = calloc(t->n_bytes, 1);
  assert_non_null(t->data);
  return t;
}

static uint64_t key_of(const builder *b, const char *name) {
  return hash_name(name, UINT64_C(0xcbf29ce484222325) + b->options->seed);
}

/* Fills n elements of t from element `at` on as elements from.. of tensor name. */
static void fill(const builder *b, st_test_tensor *t, size_t at, size_t n, const char *name,
                 size_t from, int32_t scale) {
  uint64_t key = key_of(b, name);
  for (size_t i = 0; i < n; i++) store(t->data, t->dtype, at + i, value_at(key, from + i, scale));
}

/* name is printed with the layer's number; a matrix has about unit gain. */
static void matrix(builder *b, const char *format, int32_t layer, int64_t rows, int64_t cols) {
  char name[ST_TEST_NAME_BYTES];
  snprintf(name, sizeof name, format, layer);
  const char *prefix = strcmp(name, "lm_head.weight") == 0 ? "" : b->prefix;
  st_test_tensor *t = add(b, prefix, name, b->options->matrix_dtype, 2, rows, cols, 0);
  fill(b, t, 0, (size_t)(rows * cols), name, 0, 2);
}

static void vector(builder *b, const char *format, int32_t layer, int64_t n) {
  char name[ST_TEST_NAME_BYTES];
  snprintf(name, sizeof name, format, layer);
  fill(b, add(b, b->prefix, name, b->options->vector_dtype, 1, n, 0, 0), 0, (size_t)n, name, 0, 1);
}

static void conv(builder *b, const char *format, int32_t layer, int64_t channels, int64_t taps) {
  char name[ST_TEST_NAME_BYTES];
  snprintf(name, sizeof name, format, layer);
  st_test_tensor *t = add(b, b->prefix, name, b->options->vector_dtype, 3, channels, 1, taps);
  fill(b, t, 0, (size_t)(channels * taps), name, 0, 0);
}

static void constants(builder *b, const char *format, int32_t layer, const int64_t *values,
                      int64_t n) {
  char name[ST_TEST_NAME_BYTES];
  snprintf(name, sizeof name, format, layer);
  st_test_tensor *t = add(b, b->prefix, name, ST_DTYPE_I64, 1, n, 0, 0);
  memcpy(t->data, values, (size_t)n * sizeof *values);
}

static void hyper_connection(builder *b, const char *module, int32_t layer, bool inject) {
  char name[ST_TEST_NAME_BYTES];
  snprintf(name, sizeof name, "%shc_norm.weight", module);
  vector(b, name, layer, S * H);
  snprintf(name, sizeof name, "%sinput_mix_weight_down.weight", module);
  matrix(b, name, layer, RANK, S * H);
  snprintf(name, sizeof name, "%sinput_mix_weight_up.weight", module);
  matrix(b, name, layer, S * H, RANK);
  snprintf(name, sizeof name, "%sblock_inject_weight.weight", module);
  if (inject) matrix(b, name, layer, S, S * H);
}

static void gdn(builder *b, int32_t l) {
  const int64_t channels = 2 * KH * KD + VH * VD;
  matrix(b, "layers.%d.linear_attn.in_proj_qkv.weight", l, channels, H);
  matrix(b, "layers.%d.linear_attn.in_proj_z.weight", l, VH * VD, H);
  matrix(b, "layers.%d.linear_attn.in_proj_b.weight", l, VH, H);
  matrix(b, "layers.%d.linear_attn.in_proj_a.weight", l, VH, H);
  matrix(b, "layers.%d.linear_attn.out_proj.weight", l, H, VH * VD);
  conv(b, "layers.%d.linear_attn.conv1d.weight", l, channels, TAPS);
  vector(b, "layers.%d.linear_attn.A_log", l, VH);
  vector(b, "layers.%d.linear_attn.dt_bias", l, VH);
  vector(b, "layers.%d.linear_attn.norm.weight", l, VD);
}

static void qsa(builder *b, int32_t l) {
  matrix(b, "layers.%d.self_attn.q_proj.weight", l, 2 * QH * HD, H);
  matrix(b, "layers.%d.self_attn.k_proj.weight", l, KV * HD, H);
  matrix(b, "layers.%d.self_attn.v_proj.weight", l, KV * HD, H);
  matrix(b, "layers.%d.self_attn.o_proj.weight", l, H, QH * HD);
  vector(b, "layers.%d.self_attn.q_norm.weight", l, HD);
  vector(b, "layers.%d.self_attn.k_norm.weight", l, HD);
  matrix(b, "layers.%d.self_attn.indexer.index_qk_proj.weight", l, (IH + 1) * ID, H);
  vector(b, "layers.%d.self_attn.indexer.q_layernorm.weight", l, ID);
  vector(b, "layers.%d.self_attn.indexer.k_layernorm.weight", l, ID);
}

/* The name of one expert's matrix, also the source of a stack's values. */
static void expert_name(char name[ST_TEST_NAME_BYTES], int32_t l, int32_t e, const char *part) {
  snprintf(name, ST_TEST_NAME_BYTES, "layers.%d.mlp.experts.%d.%s_proj.weight", l, e, part);
}

static void single_experts(builder *b, int32_t l) {
  char name[ST_TEST_NAME_BYTES];
  for (int32_t e = 0; e < E; e++) {
    expert_name(name, l, e, "gate");
    matrix(b, name, l, F, H);
    expert_name(name, l, e, "up");
    matrix(b, name, l, F, H);
    expert_name(name, l, e, "down");
    matrix(b, name, l, H, F);
  }
}

static void stacked_experts(builder *b, int32_t l) {
  const size_t n = (size_t)F * H;
  char name[ST_TEST_NAME_BYTES];
  snprintf(name, sizeof name, "layers.%d.mlp.experts.gate_up_proj", l);
  st_test_tensor *gate_up =
      add(b, b->prefix, name, b->options->matrix_dtype, 3, E, 2 * F, H);
  snprintf(name, sizeof name, "layers.%d.mlp.experts.down_proj", l);
  st_test_tensor *down = add(b, b->prefix, name, b->options->matrix_dtype, 3, E, H, F);
  for (int32_t e = 0; e < E; e++) {
    const size_t expert = (size_t)e;
    expert_name(name, l, e, "gate");
    fill(b, gate_up, 2 * expert * n, n, name, 0, 2);
    expert_name(name, l, e, "up");
    fill(b, gate_up, (2 * expert + 1) * n, n, name, 0, 2);
    expert_name(name, l, e, "down");
    fill(b, down, expert * n, n, name, 0, 2);
  }
}

static void moe(builder *b, int32_t l) {
  const bool stacked =
      b->options->stacked_experts || (b->options->stacked_odd_layers && l % 2 == 1);
  matrix(b, "layers.%d.mlp.gate.weight", l, E, H);
  matrix(b, "layers.%d.mlp.shared_expert_gate.weight", l, 1, H);
  if (stacked)
    stacked_experts(b, l);
  else
    single_experts(b, l);
  matrix(b, "layers.%d.mlp.shared_expert.gate_proj.weight", l, SHARED_F, H);
  matrix(b, "layers.%d.mlp.shared_expert.up_proj.weight", l, SHARED_F, H);
  matrix(b, "layers.%d.mlp.shared_expert.down_proj.weight", l, H, SHARED_F);
}

#define EMBEDDING "layers.%d.ple.ple_embedding."

/* The table whole or in PARTS shards, cut alike but for a shorter last one. */
static void ngram_table(builder *b, int32_t l, int64_t rows) {
  const int64_t width = P / NGRAM_HEADS;
  const int64_t shard_rows = b->options->whole_table ? rows : (rows + PARTS - 1) / PARTS;
  char whole[ST_TEST_NAME_BYTES], name[ST_TEST_NAME_BYTES];
  snprintf(whole, sizeof whole, EMBEDDING "ngram_embedding.weight", l);
  memcpy(name, whole, sizeof name);
  for (int64_t row = 0; row < rows; row += shard_rows) {
    int64_t n = rows - row < shard_rows ? rows - row : shard_rows;
    if (!b->options->whole_table)
      snprintf(name, sizeof name, EMBEDDING "ngram_embedding.shard_%d.weight", l,
               (int32_t)(row / shard_rows));
    st_test_tensor *t = add(b, b->prefix, name, b->options->matrix_dtype, 2, n, width, 0);
    fill(b, t, 0, (size_t)(n * width), whole, (size_t)(row * width), 0);
  }
}

static void ple(builder *b, int32_t l, int32_t number) {
  int64_t offsets[NGRAM_HEADS] = {0};
  for (int32_t h = 1; h < NGRAM_HEADS; h++)
    offsets[h] = offsets[h - 1] + head_rows[number][h - 1];
  matrix(b, "layers.%d.ple.key_proj.weight", l, S * H, P);
  matrix(b, "layers.%d.ple.value_proj.weight", l, H, P);
  vector(b, "layers.%d.ple.norm_key.weight", l, S * H);
  vector(b, "layers.%d.ple.norm_query.weight", l, S * H);
  vector(b, "layers.%d.ple.norm_conv.weight", l, S * H);
  conv(b, "layers.%d.ple.conv1d.weight", l, S * H, PLE_TAPS);
  if (!b->options->without_hash_tensors) {
    constants(b, EMBEDDING "layer_multipliers", l, multipliers[number], NGRAM);
    constants(b, EMBEDDING "ngram_heads_vocab_sizes", l, head_rows[number], NGRAM_HEADS);
    constants(b, EMBEDDING "ngram_heads_offsets", l, offsets, NGRAM_HEADS);
  }
  ngram_table(b, l, table_rows[number]);
}

static void build(builder *b) {
  matrix(b, "embed_tokens.weight", 0, VOCAB, H);
  if (!b->options->tied) matrix(b, "lm_head.weight", 0, VOCAB, H);
  hyper_connection(b, "hyper_connection_mixer.", 0, false);
  for (int32_t l = 0; l < LAYERS; l++) {
    hyper_connection(b, "layers.%d.attn_hyper_connection.", l, true);
    hyper_connection(b, "layers.%d.mlp_hyper_connection.", l, true);
    if (is_qsa(l))
      qsa(b, l);
    else
      gdn(b, l);
    moe(b, l);
    if (ple_number(l) >= 0 && !b->options->without_ple) ple(b, l, ple_number(l));
  }
}

/* ---- config.json ---------------------------------------------------------- */

static json_t *eos_json(st_test_eos eos) {
  if (eos == ST_TEST_EOS_LIST) return json_pack("[i, i]", EOS, 3);
  return eos == ST_TEST_EOS_NULL ? json_null() : json_integer(EOS);
}

static void set_ple_keys(json_t *config) {
  json_t *keys = json_pack(
      "{s:[i, i], s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "ple_layer_ids", 2, 4, "ple_embed_dim", P,
      "ngram_size", NGRAM, "heads_per_ngram", NGRAM_HEADS / (NGRAM - 1), "ngram_vocab_size_base",
      TABLE_BASE, "make_ngram_vocab_size_divisible_by", TABLE_DIVISOR, "split_ngram_parts", PARTS,
      "ple_conv_kernel_size", PLE_TAPS);
  assert_non_null(keys);
  assert_int_equal(json_object_update(config, keys), 0);
  json_decref(keys);
}

static json_t *text_config(const st_test_model_options *options) {
  static const struct {
    const char *key;
    int32_t value;
  } ints[] = {
      {"num_hidden_layers", LAYERS},
      {"hidden_size", H},
      {"vocab_size", VOCAB},
      {"max_position_embeddings", 256},
      {"hc_count", S},
      {"hc_lowrank", RANK},
      {"linear_num_key_heads", KH},
      {"linear_num_value_heads", VH},
      {"linear_key_head_dim", KD},
      {"linear_value_head_dim", VD},
      {"linear_conv_kernel_dim", TAPS},
      {"num_attention_heads", QH},
      {"num_key_value_heads", KV},
      {"head_dim", HD},
      {"indexer_n_heads", IH},
      {"indexer_kv_heads", 1},
      {"indexer_head_dim", ID},
      {"indexer_budget", BUDGET},
      {"indexer_compress_ratio", RATIO},
      {"num_experts", E},
      {"num_experts_per_tok", USED},
      {"moe_intermediate_size", F},
      {"shared_expert_intermediate_size", SHARED_F},
  };
  json_t *config = json_pack(
      "{s:s, s:s, s:s, s:b, s:b, s:f, s:{s:s, s:f, s:f}, s:[s, s, s, s], s:o}", "model_type",
      "qwen4_exp_text", "hidden_act", "silu", "output_gate_type", "sigmoid", "attention_bias", 0,
      "tie_word_embeddings", (int)options->tied, "rms_norm_eps", 1e-6, "rope_parameters",
      "rope_type", "default", "rope_theta", 100000.0, "partial_rotary_factor", 0.25, "layer_types",
      "linear_attention", "linear_attention", "full_attention", "linear_attention", "eos_token_id",
      eos_json(options->eos));
  assert_non_null(config);
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
    assert_int_equal(json_object_set_new(config, ints[i].key, json_integer(ints[i].value)), 0);
  if (!options->without_ple) set_ple_keys(config);
  return config;
}

json_t *st_test_model_config(const st_test_model_options *options) {
  json_t *config = text_config(options);
  if (options->edit_config) options->edit_config(config, options->user);
  if (!options->nested_config) return config;
  json_t *outer = json_pack("{s:s, s:o}", "model_type", "qwen4_exp", "text_config", config);
  assert_non_null(outer);
  return outer;
}

/* ---- the whole ------------------------------------------------------------ */

/* Neighbours lie in different files, so parts of one layer do. */
static void write_files(const char *dir, const st_test_model_options *options,
                        const st_test_tensor *tensors, size_t n) {
  st_test_tensor *part = calloc(n, sizeof *part);
  json_t *weight_map = json_object();
  assert_non_null(part);
  for (int32_t f = 0; f < options->n_files; f++) {
    char name[64];
    size_t n_part = 0;
    snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", f + 1, options->n_files);
    for (size_t i = (size_t)f; i < n; i += (size_t)options->n_files) {
      part[n_part++] = tensors[i];
      if (!tensors[i].skip)
        json_object_set_new(weight_map, tensors[i].name, json_string(name));
    }
    st_test_safetensors_write(dir, name, part, n_part, options->unaligned);
  }
  json_t *index = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map",
                            weight_map);
  write_json(dir, "model.safetensors.index.json", index);
  json_decref(index);
  free(part);
}

void st_test_model_write(const char *dir, const st_test_model_options *options) {
  builder b = {.options = options, .prefix = options->prefix ? options->prefix : "model."};
  b.tensors = calloc(TENSORS_MAX, sizeof *b.tensors);
  assert_non_null(b.tensors);
  build(&b);
  for (size_t i = 0; options->edit_tensor && i < b.n; i++)
    options->edit_tensor(&b.tensors[i], options->user);
  if (options->n_files)
    write_files(dir, options, b.tensors, b.n);
  else
    st_test_safetensors_write(dir, "model.safetensors", b.tensors, b.n, options->unaligned);
  json_t *config = st_test_model_config(options);
  write_json(dir, "config.json", config);
  json_decref(config);
  for (size_t i = 0; i < b.n; i++) free(b.tensors[i].data);
  free(b.tensors);
}
