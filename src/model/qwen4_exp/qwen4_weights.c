/* Binding the tensors of a checkpoint to the weights of a qwen4_exp model: what
 * each tensor is called, what shape it must have and where it goes. */
#include "model/qwen4_exp/qwen4_weights.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The longest name is a prefix and "layers.1023.ple.ple_embedding...": about 100. */
enum { NAME_BYTES = 256, SHAPE_TEXT_BYTES = 256, WANT_DIMS_MAX = 3 };

/* Blocks of memory that live as long as the weights. */
typedef struct owned_blocks {
  void **items;
  size_t n, capacity;
} owned_blocks;

typedef struct binder {
  const qwen4_config *config;
  const st_safetensors *tensors;
  qwen4_weights *out;
  owned_blocks *owned;
  const char *prefix; /* before all names but lm_head's */
  bool *used;         /* [st_safetensors_count] */
} binder;

/* ---- memory --------------------------------------------------------------- */

/* Fills *out with zeroed memory, aligned to 64 bytes, that release frees. */
static strata_status own(binder *b, size_t n, size_t elem_bytes, const char *what, void **out,
                         strata_error *err) {
  owned_blocks *o = b->owned;
  void *items = o->items;
  *out = NULL;
  ST_TRY(st_grow(&items, &o->capacity, o->n + 1, sizeof *o->items, "a list of blocks", err));
  o->items = items;
  ST_TRY(st_calloc_aligned(out, n, elem_bytes, what, err));
  o->items[o->n++] = *out;
  return STRATA_OK;
}

/* ---- finding a tensor and checking what it is ----------------------------- */

/* A tensor that the model wants: its full name and exact shape. */
typedef struct want {
  const char *name;
  int64_t shape[WANT_DIMS_MAX];
  int32_t n_dims;
} want;

__attribute__((format(printf, 2, 3))) static void print_name(char out[NAME_BYTES],
                                                             const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(out, NAME_BYTES, format, args);
  va_end(args);
}

static void full_name(const binder *b, char name[NAME_BYTES], const char *base,
                      const char *suffix) {
  print_name(name, "%s%s%s", b->prefix, base, suffix);
}

static const st_tensor *find(const binder *b, const char *base, const char *suffix) {
  char name[NAME_BYTES];
  full_name(b, name, base, suffix);
  return st_safetensors_find(b->tensors, name);
}

static void mark_used(binder *b, const st_tensor *t) {
  b->used[t - st_safetensors_at(b->tensors, 0)] = true;
}

/* Writes "[2, 3]". */
static void shape_text(char out[SHAPE_TEXT_BYTES], const int64_t *shape, int32_t n_dims) {
  size_t used = (size_t)snprintf(out, SHAPE_TEXT_BYTES, "[");
  for (int32_t i = 0; i < n_dims; i++)
    used += (size_t)snprintf(out + used, SHAPE_TEXT_BYTES - used, "%s%" PRId64, i ? ", " : "",
                             shape[i]);
  snprintf(out + used, SHAPE_TEXT_BYTES - used, "]");
}

static strata_status check_shape(const st_tensor *t, const want *w, strata_error *err) {
  if (t->n_dims == w->n_dims &&
      memcmp(t->shape, w->shape, (size_t)w->n_dims * sizeof *w->shape) == 0)
    return STRATA_OK;
  char is[SHAPE_TEXT_BYTES], needs[SHAPE_TEXT_BYTES];
  shape_text(is, t->shape, t->n_dims);
  shape_text(needs, w->shape, w->n_dims);
  ST_FAIL(err, FORMAT, "%s: tensor %s is %s, model needs %s", t->file, t->name, is, needs);
}

static strata_status to_stk_dtype(const st_tensor *t, stk_dtype *out, strata_error *err) {
  switch (t->dtype) {
    case ST_DTYPE_F32: *out = STK_F32; return STRATA_OK;
    case ST_DTYPE_F16: *out = STK_F16; return STRATA_OK;
    case ST_DTYPE_BF16: *out = STK_BF16; return STRATA_OK;
    default:
      ST_FAIL(err, UNSUPPORTED, "%s: tensor %s: dtype %s: F32, F16 or BF16 expected", t->file,
              t->name, st_tensor_dtype_name(t->dtype));
  }
}

static void count_bound(binder *b, const st_tensor *t, stk_dtype dtype) {
  qwen4_weights *w = b->out;
  w->n_bound++;
  w->n_parameters += t->n_elems;
  w->weight_bytes += (int64_t)t->n_bytes;
  w->bytes_by_dtype[dtype == STK_BF16 ? 0 : dtype == STK_F16 ? 1 : 2] += (int64_t)t->n_bytes;
}

/* Finds the tensor, checks dtype and shape, and counts it. */
static strata_status require(binder *b, const want *w, const st_tensor **out, stk_dtype *dtype,
                             strata_error *err) {
  const st_tensor *t = st_safetensors_find(b->tensors, w->name);
  *out = t;
  *dtype = STK_F32;
  if (!t)
    ST_FAIL(err, FORMAT, "%s: tensor %s: missing: the model needs it",
            st_safetensors_path(b->tensors), w->name);
  ST_TRY(to_stk_dtype(t, dtype, err));
  ST_TRY(check_shape(t, w, err));
  mark_used(b, t);
  count_bound(b, t, *dtype);
  return STRATA_OK;
}

/* ---- matrices and vectors ------------------------------------------------- */

/* The bytes of t, aligned to their element as a matrix must be. Writers pad the
 * header so that files are aligned; only for others a copy is made. */
static strata_status aligned_data(binder *b, const st_tensor *t, const uint8_t **out,
                                  strata_error *err) {
  void *copy;
  *out = t->data;
  if ((uintptr_t)t->data % st_tensor_dtype_bytes(t->dtype) == 0) return STRATA_OK;
  ST_TRY(own(b, t->n_bytes, 1, t->name, &copy, err));
  if (t->n_bytes) memcpy(copy, t->data, t->n_bytes);
  b->out->widened_bytes += (int64_t)t->n_bytes;
  *out = copy;
  return STRATA_OK;
}

typedef struct matrix_want {
  const char *suffix;
  int64_t n_rows, n_cols;
  stk_matrix *out;
} matrix_want;

static strata_status bind_named_matrix(binder *b, const char *name, const matrix_want *m,
                                       strata_error *err) {
  const want w = {name, {m->n_rows, m->n_cols}, 2};
  const st_tensor *t;
  stk_dtype dtype;
  const uint8_t *data;
  ST_TRY(require(b, &w, &t, &dtype, err));
  ST_TRY(aligned_data(b, t, &data, err));
  *m->out = (stk_matrix){data, dtype, (int32_t)m->n_rows, (int32_t)m->n_cols};
  return STRATA_OK;
}

static strata_status bind_matrices(binder *b, const char *base, const matrix_want *matrices,
                                   size_t n, strata_error *err) {
  char name[NAME_BYTES];
  for (size_t i = 0; i < n; i++) {
    full_name(b, name, base, matrices[i].suffix);
    ST_TRY(bind_named_matrix(b, name, &matrices[i], err));
  }
  return STRATA_OK;
}

static float f32_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float f32_of_f16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31u;
  uint32_t fraction = half & 0x3ffu;
  if (exponent == 31) return f32_of_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent) return f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
  float magnitude = (float)fraction * 0x1p-24f; /* zero or subnormal */
  return sign ? -magnitude : magnitude;
}

/* Element i of data, which may lie at any address. */
static float f32_at(const uint8_t *data, stk_dtype dtype, size_t i) {
  uint32_t word;
  uint16_t half;
  if (dtype == STK_F32) {
    memcpy(&word, data + 4 * i, sizeof word);
    return f32_of_bits(word);
  }
  memcpy(&half, data + 2 * i, sizeof half);
  return dtype == STK_BF16 ? f32_of_bits((uint32_t)half << 16) : f32_of_f16(half);
}

/* What is added to a vector's elements when they are widened. */
#define PLAIN 0.0f
#define GAIN 1.0f /* a zero-centred norm weight becomes a gain */

typedef struct vector_want {
  const char *suffix;
  int64_t shape[WANT_DIMS_MAX];
  int32_t n_dims;
  float add;
  const float **out;
} vector_want;

static strata_status bind_vector(binder *b, const char *name, const vector_want *v,
                                 strata_error *err) {
  const want w = {name, {v->shape[0], v->shape[1], v->shape[2]}, v->n_dims};
  const st_tensor *t;
  stk_dtype dtype;
  void *memory;
  ST_TRY(require(b, &w, &t, &dtype, err));
  ST_TRY(own(b, (size_t)t->n_elems, sizeof(float), "widened vectors", &memory, err));
  float *out = memory;
  /* Adding 0 would turn a stored -0 into +0, so PLAIN vectors are copied. */
  for (size_t i = 0; i < (size_t)t->n_elems; i++) {
    float value = f32_at(t->data, dtype, i);
    out[i] = v->add == PLAIN ? value : v->add + value;
  }
  b->out->widened_bytes += t->n_elems * (int64_t)sizeof *out;
  *v->out = out;
  return STRATA_OK;
}

static strata_status bind_vectors(binder *b, const char *base, const vector_want *vectors,
                                  size_t n, strata_error *err) {
  char name[NAME_BYTES];
  for (size_t i = 0; i < n; i++) {
    full_name(b, name, base, vectors[i].suffix);
    ST_TRY(bind_vector(b, name, &vectors[i], err));
  }
  return STRATA_OK;
}

/* ---- the parts of a layer ------------------------------------------------- */

/* base ends in "." and names the module: "layers.0.attn_hyper_connection.". */
static strata_status bind_hc(binder *b, const char *base, bool has_inject, qwen4_hc *hc,
                             strata_error *err) {
  const int64_t rank = b->config->hc_lowrank;
  const int64_t wide = (int64_t)b->config->hc_count * b->config->hidden;
  const matrix_want matrices[] = {
      {"input_mix_weight_down.weight", rank, wide, &hc->down},
      {"input_mix_weight_up.weight", wide, rank, &hc->up},
      {"block_inject_weight.weight", b->config->hc_count, wide, &hc->inject},
  };
  const vector_want gain = {"hc_norm.weight", {wide}, 1, GAIN, &hc->gain};
  ST_TRY(bind_vectors(b, base, &gain, 1, err));
  return bind_matrices(b, base, matrices, COUNT(matrices) - (has_inject ? 0 : 1), err);
}

static strata_status bind_gdn(binder *b, const char *base, qwen4_gdn *g, strata_error *err) {
  const qwen4_config *c = b->config;
  const int64_t channels = qwen4_gdn_channels(c), value = (int64_t)c->gdn_v_heads * c->gdn_v_dim;
  const matrix_want matrices[] = {
      {"in_proj_qkv.weight", channels, c->hidden, &g->qkv},
      {"in_proj_z.weight", value, c->hidden, &g->z},
      {"in_proj_b.weight", c->gdn_v_heads, c->hidden, &g->b},
      {"in_proj_a.weight", c->gdn_v_heads, c->hidden, &g->a},
      {"out_proj.weight", c->hidden, value, &g->out},
  };
  const vector_want vectors[] = {
      {"conv1d.weight", {channels, 1, c->gdn_taps}, 3, PLAIN, &g->conv},
      {"A_log", {c->gdn_v_heads}, 1, PLAIN, &g->a_log},
      {"dt_bias", {c->gdn_v_heads}, 1, PLAIN, &g->dt_bias},
      {"norm.weight", {c->gdn_v_dim}, 1, PLAIN, &g->gain},
  };
  ST_TRY(bind_matrices(b, base, matrices, COUNT(matrices), err));
  return bind_vectors(b, base, vectors, COUNT(vectors), err);
}

static strata_status bind_qsa(binder *b, const char *base, qwen4_qsa *q, strata_error *err) {
  const qwen4_config *c = b->config;
  const int64_t query = (int64_t)c->q_heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
  const matrix_want matrices[] = {
      {"q_proj.weight", 2 * query, c->hidden, &q->q}, /* query and output gate by head */
      {"k_proj.weight", kv, c->hidden, &q->k},
      {"v_proj.weight", kv, c->hidden, &q->v},
      {"o_proj.weight", c->hidden, query, &q->o},
      {"indexer.index_qk_proj.weight", ((int64_t)c->idx_heads + 1) * c->idx_dim, c->hidden,
       &q->index_qk},
  };
  const vector_want vectors[] = {
      {"q_norm.weight", {c->head_dim}, 1, GAIN, &q->q_gain},
      {"k_norm.weight", {c->head_dim}, 1, GAIN, &q->k_gain},
      {"indexer.q_layernorm.weight", {c->idx_dim}, 1, GAIN, &q->index_q_gain},
      {"indexer.k_layernorm.weight", {c->idx_dim}, 1, GAIN, &q->index_k_gain},
  };
  ST_TRY(bind_matrices(b, base, matrices, COUNT(matrices), err));
  return bind_vectors(b, base, vectors, COUNT(vectors), err);
}

/* Finds a stacked tensor [E, rows, cols] and the bytes between experts. */
static strata_status bind_stack(binder *b, const char *base, const char *suffix, int64_t n_rows,
                                int64_t n_cols, const uint8_t **data, stk_dtype *dtype,
                                size_t *expert_bytes, strata_error *err) {
  char name[NAME_BYTES];
  const st_tensor *t;
  const want w = {name, {b->config->n_experts, n_rows, n_cols}, 3};
  full_name(b, name, base, suffix);
  ST_TRY(require(b, &w, &t, dtype, err));
  *expert_bytes = t->n_bytes / (size_t)b->config->n_experts;
  return aligned_data(b, t, data, err);
}

static strata_status bind_stacked_experts(binder *b, const char *base, qwen4_moe *m,
                                          strata_error *err) {
  const int32_t f = b->config->expert_ff, h = b->config->hidden;
  const uint8_t *gate_up = NULL, *down = NULL;
  stk_dtype gate_up_dtype, down_dtype;
  size_t gate_up_bytes = 0, down_bytes = 0;
  ST_TRY(bind_stack(b, base, "experts.gate_up_proj", 2 * (int64_t)f, h, &gate_up, &gate_up_dtype,
                    &gate_up_bytes, err));
  ST_TRY(bind_stack(b, base, "experts.down_proj", h, f, &down, &down_dtype, &down_bytes, err));
  for (int32_t e = 0; e < b->config->n_experts; e++) {
    const uint8_t *gate = gate_up + (size_t)e * gate_up_bytes;
    m->gate[e] = (stk_matrix){gate, gate_up_dtype, f, h};
    m->up[e] = (stk_matrix){gate + gate_up_bytes / 2, gate_up_dtype, f, h};
    m->down[e] = (stk_matrix){down + (size_t)e * down_bytes, down_dtype, h, f};
  }
  return STRATA_OK;
}

/* Binds gate, up and down of expert number e, whose inner size is ff. */
static strata_status bind_expert(binder *b, const char *base, int64_t ff, qwen4_moe *m, int32_t e,
                                 strata_error *err) {
  const int64_t hidden = b->config->hidden;
  const matrix_want matrices[] = {
      {"gate_proj.weight", ff, hidden, &m->gate[e]},
      {"up_proj.weight", ff, hidden, &m->up[e]},
      {"down_proj.weight", hidden, ff, &m->down[e]},
  };
  return bind_matrices(b, base, matrices, COUNT(matrices), err);
}

static strata_status bind_single_experts(binder *b, const char *base, qwen4_moe *m,
                                         strata_error *err) {
  char expert_base[NAME_BYTES];
  for (int32_t e = 0; e < b->config->n_experts; e++) {
    print_name(expert_base, "%sexperts.%d.", base, e);
    ST_TRY(bind_expert(b, expert_base, b->config->expert_ff, m, e, err));
  }
  return STRATA_OK;
}

/* base is "layers.0.mlp.". */
static strata_status bind_moe(binder *b, const char *base, qwen4_moe *m, strata_error *err) {
  const qwen4_config *c = b->config;
  const size_t n = (size_t)c->n_experts + 1;
  void *memory;
  char shared_base[NAME_BYTES];
  const matrix_want matrices[] = {
      {"gate.weight", c->n_experts, c->hidden, &m->router},
      {"shared_expert_gate.weight", 1, c->hidden, &m->shared_gate},
  };
  ST_TRY(bind_matrices(b, base, matrices, COUNT(matrices), err));
  ST_TRY(own(b, 3 * n, sizeof *m->gate, "a table of experts", &memory, err));
  m->gate = memory;
  m->up = m->gate + n;
  m->down = m->up + n;
  bool stacked = find(b, base, "experts.gate_up_proj") || find(b, base, "experts.down_proj");
  ST_TRY(stacked ? bind_stacked_experts(b, base, m, err) : bind_single_experts(b, base, m, err));
  print_name(shared_base, "%sshared_expert.", base);
  return bind_expert(b, shared_base, c->shared_ff, m, c->n_experts, err);
}

/* ---- n-gram embeddings (PLE) ---------------------------------------------- */

/* If the checkpoint has the constants, they must be those computed: the wrong
 * rows of the table would be read otherwise. */
static strata_status compare_constants(binder *b, const char *base, const char *suffix,
                                       const void *expected, int32_t n, strata_error *err) {
  const st_tensor *t = find(b, base, suffix);
  if (!t) return STRATA_OK;
  const want w = {t->name, {n}, 1};
  if (t->dtype != ST_DTYPE_I64)
    ST_FAIL(err, FORMAT, "%s: tensor %s: dtype %s: I64 expected", t->file, t->name,
            st_tensor_dtype_name(t->dtype));
  ST_TRY(check_shape(t, &w, err));
  for (int32_t i = 0; i < n; i++) {
    int64_t stored, computed;
    memcpy(&stored, t->data + 8 * (size_t)i, sizeof stored);
    memcpy(&computed, (const uint8_t *)expected + 8 * (size_t)i, sizeof computed);
    if (stored != computed)
      ST_FAIL(err, FORMAT, "%s: tensor %s[%d]: %" PRId64 ": %" PRId64 " expected by the config",
              t->file, t->name, i, stored, computed);
  }
  mark_used(b, t);
  return STRATA_OK;
}

/* Fills hash with memory that release of the weights frees. */
static strata_status own_hash(binder *b, int32_t ple, qwen4_ngram_hash *hash, strata_error *err) {
  owned_blocks *o = b->owned;
  void *items = o->items;
  ST_TRY(st_grow(&items, &o->capacity, o->n + 1, sizeof *o->items, "a list of blocks", err));
  o->items = items;
  ST_TRY(qwen4_ngram_hash_init(b->config, ple, hash, err));
  o->items[o->n++] = hash->head_rows;
  return STRATA_OK;
}

/* Cuts the table's rows into shards as the checkpoint does. base names
 * "...ngram_embedding.". */
static strata_status cut_table(binder *b, bool whole, qwen4_ple *p, strata_error *err) {
  const int64_t rows = p->hash.n_rows, parts = whole ? 1 : b->config->ngram_parts;
  void *memory;
  p->shard_rows = (rows + parts - 1) / parts;
  if (p->shard_rows > INT32_MAX)
    ST_FAIL(err, UNSUPPORTED,
            "%s: n-gram table: %" PRId64 " rows in %" PRId64 " parts: at most %d a part expected",
            st_safetensors_path(b->tensors), rows, parts, INT32_MAX);
  p->n_shards = (int32_t)((rows + p->shard_rows - 1) / p->shard_rows);
  ST_TRY(own(b, (size_t)p->n_shards, sizeof *p->shards, "a table of shards", &memory, err));
  p->shards = memory;
  return STRATA_OK;
}

static strata_status bind_table(binder *b, const char *base, qwen4_ple *p, strata_error *err) {
  const int64_t width = b->config->ple_dim / qwen4_ngram_heads(b->config);
  const bool whole = find(b, base, "weight") != NULL;
  char suffix[NAME_BYTES] = "weight";
  ST_TRY(cut_table(b, whole, p, err));
  for (int32_t i = 0; i < p->n_shards; i++) {
    int64_t left = p->hash.n_rows - i * p->shard_rows;
    const matrix_want shard = {suffix, left < p->shard_rows ? left : p->shard_rows, width,
                               &p->shards[i]};
    if (!whole) print_name(suffix, "shard_%d.weight", i);
    ST_TRY(bind_matrices(b, base, &shard, 1, err));
  }
  return STRATA_OK;
}

static strata_status bind_embedding(binder *b, const char *base, int32_t ple, qwen4_ple *p,
                                    strata_error *err) {
  const int32_t n_heads = qwen4_ngram_heads(b->config);
  char table_base[NAME_BYTES];
  ST_TRY(own_hash(b, ple, &p->hash, err));
  ST_TRY(compare_constants(b, base, "layer_multipliers", p->hash.multiplier, b->config->ngram_size,
                           err));
  ST_TRY(compare_constants(b, base, "ngram_heads_vocab_sizes", p->hash.head_rows, n_heads, err));
  ST_TRY(compare_constants(b, base, "ngram_heads_offsets", p->hash.head_offset, n_heads, err));
  print_name(table_base, "%sngram_embedding.", base);
  return bind_table(b, table_base, p, err);
}

/* Binds PLE layer number ple, which belongs to a decoder layer. */
static strata_status bind_ple(binder *b, int32_t ple, strata_error *err) {
  const qwen4_config *c = b->config;
  const int64_t wide = (int64_t)c->hc_count * c->hidden;
  const int32_t l = c->ple_layer[ple];
  char base[NAME_BYTES], embedding_base[NAME_BYTES];
  void *memory;
  ST_TRY(own(b, 1, sizeof(qwen4_ple), "a PLE layer", &memory, err));
  qwen4_ple *p = memory;
  b->out->layers[l].ple = p;
  const matrix_want matrices[] = {
      {"key_proj.weight", wide, c->ple_dim, &p->key},
      {"value_proj.weight", c->hidden, c->ple_dim, &p->value},
  };
  const vector_want vectors[] = {
      {"norm_key.weight", {wide}, 1, GAIN, &p->key_gain},
      {"norm_query.weight", {wide}, 1, GAIN, &p->query_gain},
      {"norm_conv.weight", {wide}, 1, GAIN, &p->conv_gain},
      {"conv1d.weight", {wide, 1, c->ple_taps}, 3, PLAIN, &p->conv},
  };
  print_name(base, "layers.%d.ple.", l);
  print_name(embedding_base, "layers.%d.ple.ple_embedding.", l);
  ST_TRY(bind_matrices(b, base, matrices, COUNT(matrices), err));
  ST_TRY(bind_vectors(b, base, vectors, COUNT(vectors), err));
  return bind_embedding(b, embedding_base, ple, p, err);
}

/* ---- the whole ------------------------------------------------------------ */

static strata_status bind_layer(binder *b, int32_t l, strata_error *err) {
  qwen4_layer *layer = &b->out->layers[l];
  char base[NAME_BYTES];
  print_name(base, "layers.%d.attn_hyper_connection.", l);
  ST_TRY(bind_hc(b, base, true, &layer->attn_hc, err));
  print_name(base, "layers.%d.mlp_hyper_connection.", l);
  ST_TRY(bind_hc(b, base, true, &layer->mlp_hc, err));
  if (b->config->layer_kind[l] == QWEN4_GDN) {
    print_name(base, "layers.%d.linear_attn.", l);
    ST_TRY(bind_gdn(b, base, &layer->gdn, err));
  } else {
    print_name(base, "layers.%d.self_attn.", l);
    ST_TRY(bind_qsa(b, base, &layer->qsa, err));
  }
  print_name(base, "layers.%d.mlp.", l);
  return bind_moe(b, base, &layer->moe, err);
}

/* The prefix is that under which the token embedding is found. */
static strata_status find_prefix(binder *b, strata_error *err) {
  static const char *const prefixes[] = {"model.language_model.", "model.", "language_model.", ""};
  for (size_t i = 0; i < COUNT(prefixes); i++) {
    b->prefix = prefixes[i];
    if (find(b, "", "embed_tokens.weight")) return STRATA_OK;
  }
  ST_FAIL(err, FORMAT,
          "%s: tensor embed_tokens.weight: missing: it is expected, with the prefix model., "
          "model.language_model., language_model. or none",
          st_safetensors_path(b->tensors));
}

static strata_status bind_ends(binder *b, strata_error *err) {
  const qwen4_config *c = b->config;
  qwen4_weights *w = b->out;
  const matrix_want embed = {"embed_tokens.weight", c->vocab, c->hidden, &w->embed};
  const matrix_want head = {"", c->vocab, c->hidden, &w->lm_head};
  ST_TRY(bind_matrices(b, "", &embed, 1, err));
  w->lm_head = w->embed;
  if (!c->tie_word_embeddings) ST_TRY(bind_named_matrix(b, "lm_head.weight", &head, err));
  return bind_hc(b, "hyper_connection_mixer.", false, &w->final_hc, err);
}

static strata_status list_ignored(binder *b, strata_error *err) {
  qwen4_weights *w = b->out;
  const int32_t n = st_safetensors_count(b->tensors);
  void *memory;
  int32_t n_ignored = 0;
  for (int32_t i = 0; i < n; i++) n_ignored += !b->used[i];
  ST_TRY(own(b, (size_t)n_ignored, sizeof *w->ignored, "a list of names", &memory, err));
  w->ignored = memory;
  for (int32_t i = 0; i < n; i++)
    if (!b->used[i]) w->ignored[w->n_ignored++] = st_safetensors_at(b->tensors, i)->name;
  return STRATA_OK;
}

static strata_status bind_all(binder *b, strata_error *err) {
  const qwen4_config *c = b->config;
  void *memory;
  ST_TRY(find_prefix(b, err));
  ST_TRY(bind_ends(b, err));
  ST_TRY(own(b, (size_t)c->n_layers, sizeof(qwen4_layer), "layers", &memory, err));
  b->out->layers = memory;
  for (int32_t l = 0; l < c->n_layers; l++) ST_TRY(bind_layer(b, l, err));
  for (int32_t i = 0; i < c->n_ple; i++) ST_TRY(bind_ple(b, i, err));
  return list_ignored(b, err);
}

strata_status qwen4_weights_bind(const qwen4_config *config, const st_safetensors *tensors,
                                 qwen4_weights *out, strata_error *err) {
  strata_status status = STRATA_OK;
  void *owned, *used = NULL;
  *out = (qwen4_weights){0};
  ST_TRY(st_calloc(&owned, 1, sizeof(owned_blocks), "a list of blocks", err));
  out->owned = owned;
  ST_TRY_OUT(st_calloc(&used, (size_t)st_safetensors_count(tensors), sizeof(bool),
                       "marks of used tensors", err));
  binder b = {.config = config, .tensors = tensors, .out = out, .owned = owned, .used = used};
  ST_TRY_OUT(bind_all(&b, err));
out:
  if (status != STRATA_OK) qwen4_weights_release(out);
  st_free(used);
  return status;
}

void qwen4_weights_release(qwen4_weights *weights) {
  owned_blocks *owned = weights->owned;
  if (owned) {
    for (size_t i = 0; i < owned->n; i++) st_free(owned->items[i]);
    st_free(owned->items);
    st_free(owned);
  }
  *weights = (qwen4_weights){0};
}
