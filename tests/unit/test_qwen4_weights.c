/* Binding a checkpoint: all layouts give the same weights, each kind of damage
 * is refused by name, and no failing allocation leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/st_mem.h"
#include "model/qwen4_exp/qwen4_weights.h"
#include "st_test_model.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A model directory and what is open of it. */
typedef struct model {
  char dir[ST_TEST_DIR_BYTES];
  qwen4_config config;
  st_safetensors *tensors;
  qwen4_weights weights;
} model;

static strata_status model_bind(model *m, strata_error *err) {
  ST_TRY(qwen4_config_read(m->dir, &m->config, err));
  ST_TRY(st_safetensors_open(m->dir, &m->tensors, err));
  return qwen4_weights_bind(&m->config, m->tensors, &m->weights, err);
}

static void model_unbind(model *m) {
  qwen4_weights_release(&m->weights);
  st_safetensors_close(&m->tensors);
}

static strata_status model_new(model *m, const st_test_model_options *options,
                               strata_error *err) {
  *m = (model){0};
  st_test_dir_new(m->dir);
  st_test_model_write(m->dir, options);
  return model_bind(m, err);
}

static void model_remove(model *m) {
  model_unbind(m);
  st_test_dir_remove(m->dir);
}

static void model_open(model *m, const st_test_model_options *options) {
  strata_error err;
  if (model_new(m, options, &err) != STRATA_OK) fail_msg("%s", err.message);
}

/* ---- comparing two models ------------------------------------------------- */

/* Element i, by a widening of its own; F16 values of the test are normal. */
static float element(const stk_matrix *m, size_t i) {
  uint32_t bits = 0;
  uint16_t half = 0;
  float value;
  assert_int_equal((uintptr_t)m->data % stk_dtype_bytes(m->dtype), 0);
  memcpy(m->dtype == STK_F32 ? (void *)&bits : (void *)&half,
         (const uint8_t *)m->data + i * stk_dtype_bytes(m->dtype), stk_dtype_bytes(m->dtype));
  if (m->dtype == STK_BF16) bits = (uint32_t)half << 16;
  if (m->dtype == STK_F16 && half)
    bits = (uint32_t)(half & 0x8000) << 16 | ((((uint32_t)half & 0x7fff) << 13) + (112u << 23));
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void same_matrix(const stk_matrix *a, const stk_matrix *b) {
  assert_int_equal(a->n_rows, b->n_rows);
  assert_int_equal(a->n_cols, b->n_cols);
  assert_true((a->data == NULL) == (b->data == NULL));
  for (size_t i = 0; a->data && i < (size_t)a->n_rows * (size_t)a->n_cols; i++)
    assert_true(element(a, i) == element(b, i));
}

static void same_vector(const float *a, const float *b, int32_t n) {
  assert_memory_equal(a, b, (size_t)n * sizeof *a);
}

static void same_hc(const qwen4_config *c, const qwen4_hc *a, const qwen4_hc *b) {
  same_vector(a->gain, b->gain, c->hc_count * c->hidden);
  same_matrix(&a->down, &b->down);
  same_matrix(&a->up, &b->up);
  same_matrix(&a->inject, &b->inject);
}

static void same_gdn(const qwen4_config *c, const qwen4_gdn *a, const qwen4_gdn *b) {
  same_matrix(&a->qkv, &b->qkv);
  same_matrix(&a->z, &b->z);
  same_matrix(&a->b, &b->b);
  same_matrix(&a->a, &b->a);
  same_matrix(&a->out, &b->out);
  same_vector(a->conv, b->conv, qwen4_gdn_channels(c) * c->gdn_taps);
  same_vector(a->a_log, b->a_log, c->gdn_v_heads);
  same_vector(a->dt_bias, b->dt_bias, c->gdn_v_heads);
  same_vector(a->gain, b->gain, c->gdn_v_dim);
}

static void same_qsa(const qwen4_config *c, const qwen4_qsa *a, const qwen4_qsa *b) {
  same_matrix(&a->q, &b->q);
  same_matrix(&a->k, &b->k);
  same_matrix(&a->v, &b->v);
  same_matrix(&a->o, &b->o);
  same_matrix(&a->index_qk, &b->index_qk);
  same_vector(a->q_gain, b->q_gain, c->head_dim);
  same_vector(a->k_gain, b->k_gain, c->head_dim);
  same_vector(a->index_q_gain, b->index_q_gain, c->idx_dim);
  same_vector(a->index_k_gain, b->index_k_gain, c->idx_dim);
}

static void same_moe(const qwen4_config *c, const qwen4_moe *a, const qwen4_moe *b) {
  same_matrix(&a->router, &b->router);
  same_matrix(&a->shared_gate, &b->shared_gate);
  for (int32_t e = 0; e <= c->n_experts; e++) {
    same_matrix(&a->gate[e], &b->gate[e]);
    same_matrix(&a->up[e], &b->up[e]);
    same_matrix(&a->down[e], &b->down[e]);
  }
}

/* The shard of row and the row in it. */
static const stk_matrix *shard_of(const qwen4_ple *p, int64_t row, int64_t *local) {
  *local = row % p->shard_rows;
  assert_true(row / p->shard_rows < p->n_shards);
  const stk_matrix *shard = &p->shards[row / p->shard_rows];
  assert_true(*local < shard->n_rows);
  return shard;
}

static void same_ple(const qwen4_config *c, const qwen4_ple *a, const qwen4_ple *b) {
  const int32_t wide = c->hc_count * c->hidden, width = c->ple_dim / qwen4_ngram_heads(c);
  same_matrix(&a->key, &b->key);
  same_matrix(&a->value, &b->value);
  same_vector(a->key_gain, b->key_gain, wide);
  same_vector(a->query_gain, b->query_gain, wide);
  same_vector(a->conv_gain, b->conv_gain, wide);
  same_vector(a->conv, b->conv, wide * c->ple_taps);
  assert_int_equal(a->hash.n_rows, b->hash.n_rows);
  for (int64_t row = 0; row < a->hash.n_rows; row++) {
    int64_t row_a, row_b;
    const stk_matrix *x = shard_of(a, row, &row_a), *y = shard_of(b, row, &row_b);
    for (int32_t i = 0; i < width; i++)
      assert_true(element(x, (size_t)(row_a * width + i)) ==
                  element(y, (size_t)(row_b * width + i)));
  }
}

static void same_model(const model *a, const model *b) {
  const qwen4_config *c = &a->config;
  same_matrix(&a->weights.embed, &b->weights.embed);
  same_matrix(&a->weights.lm_head, &b->weights.lm_head);
  same_hc(c, &a->weights.final_hc, &b->weights.final_hc);
  for (int32_t l = 0; l < c->n_layers; l++) {
    const qwen4_layer *x = &a->weights.layers[l], *y = &b->weights.layers[l];
    same_hc(c, &x->attn_hc, &y->attn_hc);
    same_hc(c, &x->mlp_hc, &y->mlp_hc);
    if (c->layer_kind[l] == QWEN4_GDN)
      same_gdn(c, &x->gdn, &y->gdn);
    else
      same_qsa(c, &x->qsa, &y->qsa);
    same_moe(c, &x->moe, &y->moe);
    assert_true((x->ple != NULL) == (y->ple != NULL));
    if (x->ple) same_ple(c, x->ple, y->ple);
  }
}

/* ---- what is accepted ----------------------------------------------------- */

static void every_layout_gives_the_same_weights(void **state) {
  (void)state;
  static const st_test_model_options rows[] = {
      {.prefix = "model.language_model."},
      {.prefix = "language_model."},
      {.prefix = ""},
      {.stacked_experts = true},
      {.stacked_odd_layers = true},
      {.whole_table = true},
      {.without_hash_tensors = true},
      {.nested_config = true, .eos = ST_TEST_EOS_LIST},
      {.n_files = 1},
      {.n_files = 3},
      {.unaligned = true},
      {.matrix_dtype = ST_DTYPE_BF16},
      {.matrix_dtype = ST_DTYPE_F16},
      {.vector_dtype = ST_DTYPE_BF16},
      {.vector_dtype = ST_DTYPE_F16},
      {.prefix = "model.language_model.", .matrix_dtype = ST_DTYPE_BF16,
       .vector_dtype = ST_DTYPE_F16, .stacked_experts = true, .whole_table = true, .n_files = 4,
       .nested_config = true, .unaligned = true},
  };
  model plain;
  model_open(&plain, &(st_test_model_options){0});
  assert_int_equal(plain.weights.n_ignored, 0);
  for (size_t i = 0; i < COUNT(rows); i++) {
    model other;
    model_open(&other, &rows[i]);
    same_model(&plain, &other);
    assert_int_equal(other.weights.n_ignored, 0);
    assert_int_equal(other.weights.n_parameters, plain.weights.n_parameters);
    model_remove(&other);
  }
  model_remove(&plain);
}

/* same_model must be able to tell: another seed is another model. */
static void another_seed_differs(void **state) {
  (void)state;
  model a, b;
  model_open(&a, &(st_test_model_options){0});
  model_open(&b, &(st_test_model_options){.seed = 1});
  const stk_matrix *x = &a.weights.embed, *y = &b.weights.embed;
  assert_memory_not_equal(x->data, y->data, 4 * (size_t)x->n_rows * (size_t)x->n_cols);
  model_remove(&a);
  model_remove(&b);
}

static float stored(const model *m, const char *name, size_t i) {
  float value;
  const st_tensor *t = st_safetensors_find(m->tensors, name);
  assert_non_null(t);
  memcpy(&value, t->data + 4 * i, sizeof value);
  return value;
}

/* Where each part comes from, and which vectors are 1 + w. */
static void parts_come_from_their_tensors(void **state) {
  (void)state;
  model m;
  model_open(&m, &(st_test_model_options){.stacked_experts = true});
  const qwen4_layer *l0 = &m.weights.layers[0], *l1 = &m.weights.layers[1];
  const qwen4_layer *l2 = &m.weights.layers[2];
  const struct {
    const char *name;
    const float *vector;
    float add;
  } vectors[] = {
      {"model.hyper_connection_mixer.hc_norm.weight", m.weights.final_hc.gain, 1},
      {"model.layers.0.attn_hyper_connection.hc_norm.weight", l0->attn_hc.gain, 1},
      {"model.layers.0.mlp_hyper_connection.hc_norm.weight", l0->mlp_hc.gain, 1},
      {"model.layers.0.linear_attn.norm.weight", l0->gdn.gain, 0},
      {"model.layers.0.linear_attn.conv1d.weight", l0->gdn.conv, 0},
      {"model.layers.0.linear_attn.A_log", l0->gdn.a_log, 0},
      {"model.layers.0.linear_attn.dt_bias", l0->gdn.dt_bias, 0},
      {"model.layers.1.ple.norm_key.weight", l1->ple->key_gain, 1},
      {"model.layers.1.ple.norm_query.weight", l1->ple->query_gain, 1},
      {"model.layers.1.ple.norm_conv.weight", l1->ple->conv_gain, 1},
      {"model.layers.1.ple.conv1d.weight", l1->ple->conv, 0},
      {"model.layers.2.self_attn.q_norm.weight", l2->qsa.q_gain, 1},
      {"model.layers.2.self_attn.k_norm.weight", l2->qsa.k_gain, 1},
      {"model.layers.2.self_attn.indexer.q_layernorm.weight", l2->qsa.index_q_gain, 1},
      {"model.layers.2.self_attn.indexer.k_layernorm.weight", l2->qsa.index_k_gain, 1},
  };
  for (size_t v = 0; v < COUNT(vectors); v++)
    for (size_t i = 0; i < 4; i++)
      assert_true(vectors[v].vector[i] ==
                  (vectors[v].add ? 1.0f + stored(&m, vectors[v].name, i)
                                  : stored(&m, vectors[v].name, i)));
  const struct {
    const char *name;
    size_t at; /* element of the tensor where the matrix begins */
    const stk_matrix *matrix;
    int32_t n_rows, n_cols;
  } matrices[] = {
      {"model.embed_tokens.weight", 0, &m.weights.embed, 97, 40},
      {"lm_head.weight", 0, &m.weights.lm_head, 97, 40},
      {"model.layers.0.attn_hyper_connection.input_mix_weight_down.weight", 0, &l0->attn_hc.down,
       7, 120},
      {"model.layers.0.attn_hyper_connection.input_mix_weight_up.weight", 0, &l0->attn_hc.up, 120,
       7},
      {"model.layers.0.mlp_hyper_connection.block_inject_weight.weight", 0, &l0->mlp_hc.inject, 3,
       120},
      {"model.layers.0.linear_attn.in_proj_qkv.weight", 0, &l0->gdn.qkv, 384, 40},
      {"model.layers.0.linear_attn.in_proj_z.weight", 0, &l0->gdn.z, 256, 40},
      {"model.layers.0.linear_attn.in_proj_b.weight", 0, &l0->gdn.b, 4, 40},
      {"model.layers.0.linear_attn.in_proj_a.weight", 0, &l0->gdn.a, 4, 40},
      {"model.layers.0.linear_attn.out_proj.weight", 0, &l0->gdn.out, 40, 256},
      {"model.layers.2.self_attn.q_proj.weight", 0, &l2->qsa.q, 1152, 40},
      {"model.layers.2.self_attn.k_proj.weight", 0, &l2->qsa.k, 192, 40},
      {"model.layers.2.self_attn.v_proj.weight", 0, &l2->qsa.v, 192, 40},
      {"model.layers.2.self_attn.o_proj.weight", 0, &l2->qsa.o, 40, 576},
      {"model.layers.2.self_attn.indexer.index_qk_proj.weight", 0, &l2->qsa.index_qk, 320, 40},
      {"model.layers.2.mlp.gate.weight", 0, &l2->moe.router, 5, 40},
      {"model.layers.2.mlp.shared_expert_gate.weight", 0, &l2->moe.shared_gate, 1, 40},
      {"model.layers.2.mlp.experts.gate_up_proj", 3 * 48 * 40, &l2->moe.gate[3], 24, 40},
      {"model.layers.2.mlp.experts.gate_up_proj", 3 * 48 * 40 + 24 * 40, &l2->moe.up[3], 24, 40},
      {"model.layers.2.mlp.experts.down_proj", 4 * 40 * 24, &l2->moe.down[4], 40, 24},
      {"model.layers.2.mlp.shared_expert.gate_proj.weight", 0, &l2->moe.gate[5], 28, 40},
      {"model.layers.2.mlp.shared_expert.up_proj.weight", 0, &l2->moe.up[5], 28, 40},
      {"model.layers.2.mlp.shared_expert.down_proj.weight", 0, &l2->moe.down[5], 40, 28},
      {"model.layers.1.ple.key_proj.weight", 0, &l1->ple->key, 120, 36},
      {"model.layers.1.ple.value_proj.weight", 0, &l1->ple->value, 40, 36},
      {"model.layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight", 0, &l1->ple->shards[0],
       77, 6},
      {"model.layers.1.ple.ple_embedding.ngram_embedding.shard_4.weight", 0, &l1->ple->shards[4],
       76, 6},
  };
  for (size_t i = 0; i < COUNT(matrices); i++) {
    const st_tensor *t = st_safetensors_find(m.tensors, matrices[i].name);
    assert_non_null(t);
    assert_ptr_equal(matrices[i].matrix->data, t->data + 4 * matrices[i].at);
    assert_int_equal(matrices[i].matrix->n_rows, matrices[i].n_rows);
    assert_int_equal(matrices[i].matrix->n_cols, matrices[i].n_cols);
    assert_int_equal(matrices[i].matrix->dtype, STK_F32);
  }
  assert_null(m.weights.final_hc.inject.data);
  assert_null(l0->ple);
  assert_int_equal(l1->ple->n_shards, 5);
  assert_int_equal(l1->ple->shard_rows, 77);
  model_remove(&m);
}

/* Edge values of F16, against the numbers that the format defines. */
static void set_f16_edges(st_test_tensor *t, void *user) {
  static const uint16_t edges[] = {0x0001, 0x83ff, 0x7bff, 0x8000};
  (void)user;
  if (strcmp(t->name, "model.layers.0.linear_attn.dt_bias") == 0)
    memcpy(t->data, edges, sizeof edges);
}

static void widens_f16_edges(void **state) {
  (void)state;
  model m;
  model_open(&m, &(st_test_model_options){.vector_dtype = ST_DTYPE_F16,
                                          .edit_tensor = set_f16_edges});
  const float *v = m.weights.layers[0].gdn.dt_bias;
  const float expected[] = {0x1p-24f, -1023 * 0x1p-24f, 65504.0f, -0.0f};
  assert_memory_equal(v, expected, sizeof expected);
  model_remove(&m);
}

static void ties_the_head(void **state) {
  (void)state;
  model m;
  model_open(&m, &(st_test_model_options){.tied = true});
  assert_ptr_equal(m.weights.lm_head.data, m.weights.embed.data);
  assert_int_equal(m.weights.lm_head.n_rows, 97);
  model_remove(&m);
}

static void tie(json_t *config, void *user) {
  (void)user;
  json_object_set_new(config, "tie_word_embeddings", json_true());
}

static void lists_what_it_ignores(void **state) {
  (void)state;
  model m;
  /* a head beside a tied embedding */
  model_open(&m, &(st_test_model_options){.edit_config = tie});
  assert_int_equal(m.weights.n_ignored, 1);
  assert_string_equal(m.weights.ignored[0], "lm_head.weight");
  model_remove(&m);
}

static void counts_what_it_binds(void **state) {
  (void)state;
  model m;
  model_open(&m, &(st_test_model_options){.matrix_dtype = ST_DTYPE_BF16,
                                          .vector_dtype = ST_DTYPE_F16});
  const qwen4_weights *w = &m.weights;
  int64_t n_elems = 0, n_bytes = 0;
  int32_t n_bound = 0;
  for (int32_t i = 0; i < st_safetensors_count(m.tensors); i++) {
    const st_tensor *t = st_safetensors_at(m.tensors, i);
    if (t->dtype == ST_DTYPE_I64) continue;
    n_bound++;
    n_elems += t->n_elems;
    n_bytes += (int64_t)t->n_bytes;
  }
  assert_int_equal(w->n_bound, n_bound);
  assert_int_equal(w->n_parameters, n_elems);
  assert_int_equal(w->weight_bytes, n_bytes);
  assert_int_equal(w->bytes_by_dtype[0] + w->bytes_by_dtype[1], n_bytes);
  assert_int_equal(w->widened_bytes, 2 * w->bytes_by_dtype[1]);
  assert_int_equal(w->bytes_by_dtype[2], 0);
  model_remove(&m);
}

static void binds_strata_tiny(void **state) {
  (void)state;
  model m = {.dir = "models/strata-tiny"};
  strata_error err;
  if (model_bind(&m, &err) != STRATA_OK) fail_msg("%s", err.message);
  assert_int_equal(m.weights.n_parameters, 17926472);
  assert_int_equal(m.weights.n_ignored, 0);
  assert_int_equal(m.weights.layers[1].ple->n_shards, 2);
  assert_int_equal(m.weights.layers[1].ple->shard_rows, 32448);
  model_unbind(&m);
}

/* ---- what is refused ------------------------------------------------------ */

/* One damage: what happens to the tensor whose name ends in `tensor`. */
typedef struct damage {
  const char *tensor;
  enum { REMOVE, RESHAPE, RETYPE, RENAME, POKE } kind;
  int64_t shape[3];
  int32_t n_dims;
  st_tensor_dtype dtype;
} damage;

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), n_end = strlen(end);
  return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static void apply(st_test_tensor *t, void *user) {
  const damage *d = user;
  if (!ends_with(t->name, d->tensor)) return;
  if (d->kind == REMOVE) t->skip = true;
  if (d->kind == RESHAPE) {
    memcpy(t->shape, d->shape, sizeof d->shape);
    t->n_dims = d->n_dims;
  }
  if (d->kind == RETYPE) t->dtype = d->dtype;
  if (d->kind == RENAME) snprintf(t->name, sizeof t->name, "model.visual.x");
  if (d->kind == POKE) t->data[8] ^= 1; /* the second int64 */
}

static void expect_refused(st_test_model_options options, damage d, strata_status want,
                           const char *needle) {
  model m;
  strata_error err;
  options.edit_tensor = apply;
  options.user = &d;
  strata_status status = model_new(&m, &options, &err);
  if (status == STRATA_OK) fail_msg("%s was accepted", d.tensor);
  st_test_expect_error(status, &err, want, m.dir, d.tensor);
  st_test_expect_error(status, &err, want, needle, NULL);
  assert_null(m.weights.owned);
  assert_null(m.weights.layers);
  model_remove(&m);
}

/* Runs f for each tensor of the miniature model in this layout. */
static void for_each_tensor(const st_test_model_options *options,
                            void (*f)(const st_test_model_options *options, const char *name,
                                      const st_tensor *t)) {
  model m;
  model_open(&m, options);
  for (int32_t i = 0; i < st_safetensors_count(m.tensors); i++) {
    const st_tensor *t = st_safetensors_at(m.tensors, i);
    f(options, t->name, t);
  }
  model_remove(&m);
}

static bool is_constant(const st_tensor *t) { return t->dtype == ST_DTYPE_I64; }

static void refuse_removed(const st_test_model_options *options, const char *name,
                           const st_tensor *t) {
  damage d = {.tensor = name, .kind = REMOVE};
  /* The constants may be absent, and a table that is not whole is sought in
   * shards. Without the embedding the prefix is unknown. */
  if (is_constant(t) || ends_with(name, ".ngram_embedding.weight")) return;
  if (ends_with(name, "embed_tokens.weight")) d.tensor = "embed_tokens.weight";
  expect_refused(*options, d, STRATA_FORMAT, "missing");
}

/* Swapping two unequal dimensions, adding one, or an element less. */
static void refuse_reshaped(const st_test_model_options *options, const char *name,
                            const st_tensor *t) {
  damage d = {.tensor = name, .kind = RESHAPE, .n_dims = t->n_dims};
  memcpy(d.shape, t->shape, sizeof d.shape);
  if (t->n_dims > 1 && t->shape[0] != t->shape[1]) {
    d.shape[0] = t->shape[1];
    d.shape[1] = t->shape[0];
    expect_refused(*options, d, STRATA_FORMAT, "model needs [");
  }
  memcpy(d.shape, t->shape, sizeof d.shape);
  d.shape[0]--;
  expect_refused(*options, d, STRATA_FORMAT, "model needs [");
  d.shape[0] = 0;
  expect_refused(*options, d, STRATA_FORMAT, "is [0");
  if (t->n_dims == 3) return;
  d.shape[0] = t->shape[0];
  d.shape[t->n_dims] = 1;
  d.n_dims = t->n_dims + 1;
  expect_refused(*options, d, STRATA_FORMAT, ", 1], model needs [");
}

static void refuse_retyped(const st_test_model_options *options, const char *name,
                           const st_tensor *t) {
  damage d = {.tensor = name, .kind = RETYPE, .dtype = ST_DTYPE_F8_E4M3};
  if (is_constant(t)) {
    expect_refused(*options, d, STRATA_FORMAT, "dtype F8_E4M3: I64 expected");
    return;
  }
  expect_refused(*options, d, STRATA_UNSUPPORTED, "dtype F8_E4M3: F32, F16 or BF16 expected");
}

static const st_test_model_options layouts[] = {
    {.matrix_dtype = ST_DTYPE_BF16},
    {.matrix_dtype = ST_DTYPE_BF16, .stacked_experts = true, .whole_table = true, .n_files = 2},
};

static void refuses_each_missing_tensor(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(layouts); i++) for_each_tensor(&layouts[i], refuse_removed);
}

static void refuses_a_missing_table(void **state) {
  (void)state;
  model m;
  strata_error err;
  damage d = {.tensor = ".ngram_embedding.weight", .kind = REMOVE};
  strata_status status = model_new(
      &m, &(st_test_model_options){.whole_table = true, .edit_tensor = apply, .user = &d}, &err);
  st_test_expect_error(status, &err, STRATA_FORMAT, m.dir,
                       "layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight: missing");
  model_remove(&m);
}

static void refuses_each_wrong_shape(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(layouts); i++) for_each_tensor(&layouts[i], refuse_reshaped);
}

static void refuses_each_wrong_dtype(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(layouts); i++) for_each_tensor(&layouts[i], refuse_retyped);
}

static void names_shapes_in_words(void **state) {
  (void)state;
  const damage d = {"layers.2.self_attn.q_proj.weight", RESHAPE, {40, 1152}, 2, ST_DTYPE_F32};
  expect_refused((st_test_model_options){0}, d, STRATA_FORMAT,
                 "model.safetensors: tensor model.layers.2.self_attn.q_proj.weight is [40, 1152], "
                 "model needs [1152, 40]");
}

static void names_the_shard(void **state) {
  (void)state;
  const damage d = {"lm_head.weight", RESHAPE, {1}, 1, ST_DTYPE_F32};
  expect_refused((st_test_model_options){.n_files = 2}, d, STRATA_FORMAT,
                 "model-00002-of-00002.safetensors: tensor lm_head.weight is [1]");
}

static void refuses_other_hash_constants(void **state) {
  (void)state;
  static const char *const names[] = {"layers.1.ple.ple_embedding.layer_multipliers",
                                      "layers.3.ple.ple_embedding.ngram_heads_vocab_sizes",
                                      "layers.3.ple.ple_embedding.ngram_heads_offsets"};
  for (size_t i = 0; i < COUNT(names); i++) {
    char needle[128];
    snprintf(needle, sizeof needle, "%s[1]: ", names[i]);
    expect_refused((st_test_model_options){0}, (damage){.tensor = names[i], .kind = POKE},
                   STRATA_FORMAT, needle);
  }
}

static void unknown_prefixes_are_explained(void **state) {
  (void)state;
  model m;
  strata_error err;
  strata_status status =
      model_new(&m, &(st_test_model_options){.prefix = "transformer."}, &err);
  st_test_expect_error(status, &err, STRATA_FORMAT, m.dir, "embed_tokens.weight: missing");
  model_remove(&m);
}

static void other_tensors_are_ignored(void **state) {
  (void)state;
  model m;
  damage d = {.tensor = "lm_head.weight", .kind = RENAME};
  model_open(&m, &(st_test_model_options){.edit_config = tie, .edit_tensor = apply, .user = &d});
  assert_int_equal(m.weights.n_ignored, 1);
  assert_string_equal(m.weights.ignored[0], "model.visual.x");
  model_remove(&m);
}

/* ---- failing allocations -------------------------------------------------- */

static void survives_each_failing_allocation(void **state) {
  (void)state;
  enum { ENOUGH = 100000 };
  static const qwen4_weights zero;
  model m;
  strata_error err;
  strata_status status = STRATA_NOMEM;
  int32_t n;
  model_open(&m, &(st_test_model_options){.n_files = 2, .unaligned = true});
  const int32_t n_bound = m.weights.n_bound;
  model_unbind(&m);
  for (n = 0; status != STRATA_OK && n < ENOUGH; n++) {
    st_mem_fail_at(n);
    status = model_bind(&m, &err);
    st_mem_fail_at(-1);
    if (status == STRATA_OK) break;
    st_test_expect_error(status, &err, STRATA_NOMEM, "memory", NULL);
    assert_memory_equal(&m.weights, &zero, sizeof zero);
    model_unbind(&m);
  }
  assert_int_equal(status, STRATA_OK);
  assert_int_equal(m.weights.n_bound, n_bound);
  assert_in_range(n, 100, ENOUGH - 1);
  model_remove(&m);
}

/* ---- fingerprint ---------------------------------------------------------- */

static uint64_t fingerprint(const st_test_model_options *options) {
  model m;
  model_open(&m, options);
  uint64_t value = qwen4_weights_fingerprint(m.tensors);
  model_remove(&m);
  return value;
}

/* Changes one byte of one tensor, at the place user points to. */
static void change_byte(st_test_tensor *t, void *user) {
  if (strcmp(t->name, "model.embed_tokens.weight") == 0) t->data[*(const size_t *)user] ^= 1;
}

static void fingerprint_tells_models_apart(void **state) {
  (void)state;
  const uint64_t plain = fingerprint(&(st_test_model_options){0});
  assert_true(plain == fingerprint(&(st_test_model_options){0}));
  assert_true(plain == fingerprint(&(st_test_model_options){.n_files = 3, .unaligned = true}));
  assert_true(plain != fingerprint(&(st_test_model_options){.seed = 1}));
  assert_true(plain != fingerprint(&(st_test_model_options){.matrix_dtype = ST_DTYPE_BF16}));
  const size_t n_bytes = 97 * 40 * 4;
  size_t sampled[] = {0, 63, n_bytes / 2, n_bytes - 64, n_bytes - 1};
  for (size_t i = 0; i < COUNT(sampled); i++)
    assert_true(plain != fingerprint(&(st_test_model_options){.edit_tensor = change_byte,
                                                              .user = &sampled[i]}));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_gives_the_same_weights),
      cmocka_unit_test(another_seed_differs),
      cmocka_unit_test(parts_come_from_their_tensors),
      cmocka_unit_test(widens_f16_edges),
      cmocka_unit_test(ties_the_head),
      cmocka_unit_test(lists_what_it_ignores),
      cmocka_unit_test(counts_what_it_binds),
      cmocka_unit_test(binds_strata_tiny),
      cmocka_unit_test(refuses_each_missing_tensor),
      cmocka_unit_test(refuses_a_missing_table),
      cmocka_unit_test(refuses_each_wrong_shape),
      cmocka_unit_test(refuses_each_wrong_dtype),
      cmocka_unit_test(names_shapes_in_words),
      cmocka_unit_test(names_the_shard),
      cmocka_unit_test(refuses_other_hash_constants),
      cmocka_unit_test(unknown_prefixes_are_explained),
      cmocka_unit_test(other_tensors_are_ignored),
      cmocka_unit_test(survives_each_failing_allocation),
      cmocka_unit_test(fingerprint_tells_models_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
