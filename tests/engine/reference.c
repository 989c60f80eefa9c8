/* The double-precision model, section by section of its description. Matrices
 * are named by their tensors, [out][in]; R is the residual, [T][S][H]. */
#include "reference.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors/st_safetensors.h"

enum { NAME_BYTES = 192 };

struct reference {
  st_safetensors *tensors;
  json_t *config;
  int32_t vocab, hidden, n_layers, streams, rank;
  int32_t k_heads, v_heads, k_dim, v_dim, taps;
  int32_t q_heads, kv_heads, head_dim, rotary, idx_heads, idx_dim, budget, ratio;
  int32_t n_experts, n_used, expert_ff, shared_ff;
  int32_t ple_dim, ngram, heads_per_ngram, ple_taps, eos;
  bool tied, renormalise;
  double eps, theta;
  int32_t sparse_queries;
  const int32_t *ids; /* of the current run */
  int32_t T;
};

/* ---- configuration ---------------------------------------------------------- */

static int32_t int_of(const reference *r, const char *key) {
  const json_t *value = json_object_get(r->config, key);
  if (!json_is_integer(value)) fail_msg("config: %s: an integer expected", key);
  return (int32_t)json_integer_value(value);
}

static bool bool_of(const reference *r, const char *key, bool otherwise) {
  const json_t *value = json_object_get(r->config, key);
  return value ? json_is_true(value) : otherwise;
}

static void read_config(reference *r) {
  const json_t *rope = json_object_get(r->config, "rope_parameters");
  r->vocab = int_of(r, "vocab_size");
  r->hidden = int_of(r, "hidden_size");
  r->n_layers = int_of(r, "num_hidden_layers");
  r->streams = int_of(r, "hc_count");
  r->rank = int_of(r, "hc_lowrank");
  r->k_heads = int_of(r, "linear_num_key_heads");
  r->v_heads = int_of(r, "linear_num_value_heads");
  r->k_dim = int_of(r, "linear_key_head_dim");
  r->v_dim = int_of(r, "linear_value_head_dim");
  r->taps = int_of(r, "linear_conv_kernel_dim");
  r->q_heads = int_of(r, "num_attention_heads");
  r->kv_heads = int_of(r, "num_key_value_heads");
  r->head_dim = int_of(r, "head_dim");
  r->rotary = (int32_t)lround(
      r->head_dim * json_number_value(json_object_get(rope, "partial_rotary_factor")));
  r->theta = json_number_value(json_object_get(rope, "rope_theta"));
  r->idx_heads = int_of(r, "indexer_n_heads");
  r->idx_dim = int_of(r, "indexer_head_dim");
  r->budget = int_of(r, "indexer_budget");
  r->ratio = int_of(r, "indexer_compress_ratio");
  r->n_experts = int_of(r, "num_experts");
  r->n_used = int_of(r, "num_experts_per_tok");
  r->expert_ff = int_of(r, "moe_intermediate_size");
  r->shared_ff = int_of(r, "shared_expert_intermediate_size");
  r->eps = json_number_value(json_object_get(r->config, "rms_norm_eps"));
  r->tied = bool_of(r, "tie_word_embeddings", false);
  r->renormalise = bool_of(r, "norm_topk_prob", true);
  if (!json_object_get(r->config, "ple_layer_ids")) return;
  r->ple_dim = int_of(r, "ple_embed_dim");
  r->ngram = int_of(r, "ngram_size");
  r->heads_per_ngram = int_of(r, "heads_per_ngram");
  r->ple_taps = int_of(r, "ple_conv_kernel_size");
  const json_t *eos = json_object_get(r->config, "eos_token_id");
  r->eos = (int32_t)json_integer_value(json_is_array(eos) ? json_array_get(eos, 0) : eos);
}

reference *reference_open(const char *directory) {
  char path[512];
  strata_error err;
  json_error_t json_error;
  reference *r = calloc(1, sizeof *r);
  assert_non_null(r);
  if (st_safetensors_open(directory, &r->tensors, &err) != STRATA_OK) fail_msg("%s", err.message);
  snprintf(path, sizeof path, "%s/config.json", directory);
  r->config = json_load_file(path, 0, &json_error);
  if (!r->config) fail_msg("%s: %s", path, json_error.text);
  read_config(r);
  return r;
}

void reference_close(reference **r) {
  if (!*r) return;
  json_decref((*r)->config);
  st_safetensors_close(&(*r)->tensors);
  free(*r);
  *r = NULL;
}

int32_t reference_vocabulary(const reference *r) { return r->vocab; }

int32_t reference_sparse_queries(const reference *r) { return r->sparse_queries; }

/* ---- weights and small functions --------------------------------------------- */

static double f16_value(uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  if (exponent == 31) size = fraction ? NAN : INFINITY;
  return half & 0x8000 ? -size : size;
}

static double element(const st_tensor *t, int64_t i) {
  uint16_t half;
  uint32_t bits;
  float value;
  if (t->dtype == ST_DTYPE_F32) {
    memcpy(&value, t->data + 4 * i, 4);
    return value;
  }
  memcpy(&half, t->data + 2 * i, 2);
  if (t->dtype == ST_DTYPE_F16) return f16_value(half);
  bits = (uint32_t)half << 16;
  memcpy(&value, &bits, 4);
  return value;
}

__attribute__((format(printf, 2, 3))) static const st_tensor *weight(const reference *r,
                                                                     const char *format, ...) {
  char name[NAME_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(name, sizeof name, format, args);
  va_end(args);
  const st_tensor *t = st_safetensors_find(r->tensors, name);
  if (!t) fail_msg("no tensor %s", name);
  return t;
}

/* gives memory for n zeros. */
static double *zeros(int64_t n) {
  double *p = calloc((size_t)n, sizeof *p);
  assert_non_null(p);
  return p;
}

/* y = W x for the first `rows` rows of W from row `first` on. */
static void multiply_rows(const st_tensor *w, int64_t first, int64_t rows, const double *x,
                          double *y) {
  const int64_t cols = w->n_elems / w->shape[0];
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < cols; ++j) sum += element(w, (first + i) * cols + j) * x[j];
    y[i] = sum;
  }
}

static void multiply(const st_tensor *w, const double *x, double *y) {
  multiply_rows(w, 0, w->shape[0], x, y);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }
static double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/* out = rms(x) * (1 + w), w from element `at` on. */
static void rms_norm(const double *x, int32_t n, const st_tensor *w, int64_t at, double eps,
                     double *out) {
  double inverse = 1 / sqrt(dot(x, x, n) / n + eps);
  for (int32_t i = 0; i < n; ++i) out[i] = x[i] * inverse * (1 + element(w, at + i));
}

/* The same for each of the streams, [S][H]. */
static void grouped_norm(const reference *r, const double *x, const st_tensor *w, double *out) {
  for (int32_t c = 0; c < r->streams; ++c)
    rms_norm(x + c * r->hidden, r->hidden, w, (int64_t)c * r->hidden, r->eps, out + c * r->hidden);
}

/* ---- section 2: reading the residual streams ---------------------------------- */

/* x [H] and, if the module has it, inject [S] for one token's streams R [S][H]. */
static void hc_read(const reference *r, const char *module, const double *R, double *x,
                    double *inject) {
  const int32_t S = r->streams, H = r->hidden;
  double *n = zeros(S * H), *gate = zeros(S * H), *low = zeros(r->rank);
  grouped_norm(r, R, weight(r, "%shc_norm.weight", module), n);
  multiply(weight(r, "%sinput_mix_weight_down.weight", module), n, low);
  for (int32_t i = 0; i < r->rank; ++i) low[i] = silu(low[i] / S);
  multiply(weight(r, "%sinput_mix_weight_up.weight", module), low, gate);
  for (int32_t d = 0; d < H; ++d) {
    x[d] = 0;
    for (int32_t c = 0; c < S; ++c) x[d] += sigmoid(gate[c * H + d]) * n[c * H + d] / S;
  }
  if (inject) {
    multiply(weight(r, "%sblock_inject_weight.weight", module), n, inject);
    for (int32_t c = 0; c < S; ++c) inject[c] = 2 * sigmoid(inject[c] / S);
  }
  free(n);
  free(gate);
  free(low);
}

/* ---- section 3: gated delta net ------------------------------------------------ */

/* silu of the causal convolution over the rows u [T][C], of tap distance
 * `dilation`, at row t. */
static void convolve(const double *u, int64_t channels, int32_t t, const st_tensor *w,
                     int32_t taps, int32_t dilation, double *out) {
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (int32_t i = 0; i < taps; ++i) {
      int32_t from = t - (taps - 1 - i) * dilation;
      if (from >= 0) sum += element(w, c * taps + i) * u[from * channels + c];
    }
    out[c] = silu(sum);
  }
}

static void normalise(double *x, int32_t n, double scale) {
  double factor = scale / sqrt(dot(x, x, n) + 1e-6);
  for (int32_t i = 0; i < n; ++i) x[i] *= factor;
}

/* One step of the recurrence of a head; S is [k_dim][v_dim]. */
static void delta_step(const reference *r, double *S, const double *q, const double *k,
                       const double *v, double decay, double beta, double *o) {
  for (int32_t i = 0; i < r->k_dim * r->v_dim; ++i) S[i] *= decay;
  for (int32_t j = 0; j < r->v_dim; ++j) {
    double read = 0;
    for (int32_t i = 0; i < r->k_dim; ++i) read += S[i * r->v_dim + j] * k[i];
    double delta = beta * (v[j] - read);
    o[j] = 0;
    for (int32_t i = 0; i < r->k_dim; ++i) {
      S[i * r->v_dim + j] += k[i] * delta;
      o[j] += S[i * r->v_dim + j] * q[i];
    }
  }
}

/* y = norm(o) * w * sigmoid(z), with a plain gain. */
static void gated_norm(const reference *r, const double *o, const double *z, const st_tensor *w,
                       double *y) {
  double inverse = 1 / sqrt(dot(o, o, r->v_dim) / r->v_dim + r->eps);
  for (int32_t j = 0; j < r->v_dim; ++j) y[j] = o[j] * inverse * element(w, j) * sigmoid(z[j]);
}

/* y [T][H] = the block's output for its inputs x [T][H]. */
static void gdn(const reference *r, int32_t l, const double *x, double *y) {
  const int32_t keys = r->k_heads * r->k_dim, values = r->v_heads * r->v_dim;
  const int32_t channels = 2 * keys + values, per_key = r->v_heads / r->k_heads;
  const st_tensor *a_log = weight(r, "model.layers.%d.linear_attn.A_log", l);
  const st_tensor *dt_bias = weight(r, "model.layers.%d.linear_attn.dt_bias", l);
  const st_tensor *gain = weight(r, "model.layers.%d.linear_attn.norm.weight", l);
  const st_tensor *conv = weight(r, "model.layers.%d.linear_attn.conv1d.weight", l);
  double *u = zeros((int64_t)r->T * channels), *qkv = zeros(channels), *z = zeros(values);
  double *a = zeros(r->v_heads), *b = zeros(r->v_heads), *o = zeros(r->v_dim);
  double *out = zeros(values), *state = zeros((int64_t)r->v_heads * r->k_dim * r->v_dim);
  for (int32_t t = 0; t < r->T; ++t) {
    const double *x_t = x + t * r->hidden;
    multiply(weight(r, "model.layers.%d.linear_attn.in_proj_qkv.weight", l), x_t,
             u + (int64_t)t * channels);
    multiply(weight(r, "model.layers.%d.linear_attn.in_proj_z.weight", l), x_t, z);
    multiply(weight(r, "model.layers.%d.linear_attn.in_proj_a.weight", l), x_t, a);
    multiply(weight(r, "model.layers.%d.linear_attn.in_proj_b.weight", l), x_t, b);
    convolve(u, channels, t, conv, r->taps, 1, qkv);
    for (int32_t h = 0; h < r->k_heads; ++h) {
      normalise(qkv + h * r->k_dim, r->k_dim, 1 / sqrt(r->k_dim));
      normalise(qkv + keys + h * r->k_dim, r->k_dim, 1);
    }
    for (int32_t h = 0; h < r->v_heads; ++h) {
      const double *q = qkv + h / per_key * r->k_dim, *k = q + keys;
      double g = -exp(element(a_log, h)) * softplus(a[h] + element(dt_bias, h));
      delta_step(r, state + (int64_t)h * r->k_dim * r->v_dim, q, k, qkv + 2 * keys + h * r->v_dim,
                 exp(g), sigmoid(b[h]), o);
      gated_norm(r, o, z + h * r->v_dim, gain, out + h * r->v_dim);
    }
    multiply(weight(r, "model.layers.%d.linear_attn.out_proj.weight", l), out, y + t * r->hidden);
  }
  free(u), free(qkv), free(z), free(a), free(b), free(o), free(out), free(state);
}

/* ---- section 4: sparse attention ------------------------------------------------ */

static void rotate(const reference *r, double *x, int32_t position) {
  const int32_t pairs = r->rotary / 2;
  for (int32_t i = 0; i < pairs; ++i) {
    float inverse = (float)(1 / pow(r->theta, 2.0 * i / r->rotary));
    float angle = inverse * (float)position;
    double cosine = cos((double)angle), sine = sin((double)angle), a = x[i], b = x[i + pairs];
    x[i] = a * cosine - b * sine;
    x[i + pairs] = b * cosine + a * sine;
  }
}

/* What the attention layer remembers of the tokens so far. */
typedef struct cache {
  double *k, *v;      /* [T][kv_heads][head_dim] */
  double *raw;        /* [T][idx_dim] indexer keys, before norm and rotation */
  double *block_keys; /* [T/ratio][idx_dim] */
} cache;

static void append(const reference *r, int32_t l, int32_t t, const double *x, cache *c) {
  const int32_t kv = r->kv_heads * r->head_dim, D = r->head_dim;
  const st_tensor *k_norm = weight(r, "model.layers.%d.self_attn.k_norm.weight", l);
  const st_tensor *index = weight(r, "model.layers.%d.self_attn.indexer.index_qk_proj.weight", l);
  double *k = c->k + t * kv, *raw = c->raw + t * r->idx_dim;
  multiply(weight(r, "model.layers.%d.self_attn.k_proj.weight", l), x, k);
  multiply(weight(r, "model.layers.%d.self_attn.v_proj.weight", l), x, c->v + t * kv);
  for (int32_t j = 0; j < r->kv_heads; ++j) {
    rms_norm(k + j * D, D, k_norm, 0, r->eps, k + j * D);
    rotate(r, k + j * D, t);
  }
  multiply_rows(index, (int64_t)r->idx_heads * r->idx_dim, r->idx_dim, x, raw);
  if ((t + 1) % r->ratio != 0) return;
  const int32_t block = t / r->ratio, first = block * r->ratio;
  double *key = c->block_keys + block * r->idx_dim;
  for (int32_t d = 0; d < r->idx_dim; ++d) {
    key[d] = 0;
    for (int32_t i = first; i <= t; ++i) key[d] += c->raw[i * r->idx_dim + d] / r->ratio;
  }
  rms_norm(key, r->idx_dim, weight(r, "model.layers.%d.self_attn.indexer.k_layernorm.weight", l), 0,
           r->eps, key);
  rotate(r, key, first);
}

/* fills attended [t + 1] for the query at t. */
static void select_cells(reference *r, int32_t l, int32_t t, const double *x, const cache *c,
                         bool *attended) {
  const int32_t n_blocks = (t + 1) / r->ratio, most = r->budget / r->ratio, Di = r->idx_dim;
  const st_tensor *q_norm = weight(r, "model.layers.%d.self_attn.indexer.q_layernorm.weight", l);
  for (int32_t i = 0; i <= t; ++i) attended[i] = n_blocks <= most || i >= n_blocks * r->ratio;
  if (n_blocks <= most) return;
  ++r->sparse_queries;
  double *iq = zeros(r->idx_heads * Di), *score = zeros(n_blocks);
  multiply_rows(weight(r, "model.layers.%d.self_attn.indexer.index_qk_proj.weight", l), 0,
                r->idx_heads * Di, x, iq);
  for (int32_t h = 0; h < r->idx_heads; ++h) {
    rms_norm(iq + h * Di, Di, q_norm, 0, r->eps, iq + h * Di);
    rotate(r, iq + h * Di, t);
    for (int32_t b = 0; b < n_blocks; ++b)
      score[b] += fmax(0, dot(iq + h * Di, c->block_keys + b * Di, Di)) / sqrt(Di);
  }
  for (int32_t b = 0; b < n_blocks; ++b) {
    int32_t before = 0; /* blocks that rank higher: the lower number wins a tie */
    for (int32_t o = 0; o < n_blocks; ++o)
      before += score[o] > score[b] || (score[o] == score[b] && o < b);
    for (int32_t i = 0; before < most && i < r->ratio; ++i) attended[b * r->ratio + i] = true;
  }
  free(iq);
  free(score);
}

/* One head's softmax over the attended cells; o is [head_dim]. */
static void attend(const reference *r, const double *q, int32_t t, int32_t kv_head, const cache *c,
                   const bool *attended, double *o) {
  const int32_t D = r->head_dim, stride = r->kv_heads * D;
  double *weight_of = zeros(t + 1), top = -INFINITY, sum = 0;
  for (int32_t i = 0; i <= t; ++i) {
    weight_of[i] = attended[i] ? dot(q, c->k + i * stride + kv_head * D, D) / sqrt(D) : -INFINITY;
    top = fmax(top, weight_of[i]);
  }
  for (int32_t i = 0; i <= t; ++i) sum += weight_of[i] = exp(weight_of[i] - top);
  for (int32_t d = 0; d < D; ++d) {
    o[d] = 0;
    for (int32_t i = 0; i <= t; ++i)
      o[d] += weight_of[i] / sum * c->v[i * stride + kv_head * D + d];
  }
  free(weight_of);
}

static void qsa(reference *r, int32_t l, const double *x, double *y) {
  const int32_t D = r->head_dim, per_kv = r->q_heads / r->kv_heads;
  const int64_t kv = (int64_t)r->kv_heads * D;
  const st_tensor *q_norm = weight(r, "model.layers.%d.self_attn.q_norm.weight", l);
  cache c = {zeros(r->T * kv), zeros(r->T * kv), zeros((int64_t)r->T * r->idx_dim),
             zeros((int64_t)r->T * r->idx_dim)};
  double *q_gate = zeros((int64_t)2 * r->q_heads * D), *out = zeros((int64_t)r->q_heads * D);
  bool *attended = calloc((size_t)r->T, sizeof *attended);
  assert_non_null(attended);
  for (int32_t t = 0; t < r->T; ++t) {
    const double *x_t = x + t * r->hidden;
    append(r, l, t, x_t, &c);
    select_cells(r, l, t, x_t, &c, attended);
    multiply(weight(r, "model.layers.%d.self_attn.q_proj.weight", l), x_t, q_gate);
    for (int32_t h = 0; h < r->q_heads; ++h) {
      double *q = q_gate + 2 * h * D, *gate = q + D;
      rms_norm(q, D, q_norm, 0, r->eps, q);
      rotate(r, q, t);
      attend(r, q, t, h / per_kv, &c, attended, out + h * D);
      for (int32_t d = 0; d < D; ++d) out[h * D + d] *= sigmoid(gate[d]);
    }
    multiply(weight(r, "model.layers.%d.self_attn.o_proj.weight", l), out, y + t * r->hidden);
  }
  free(c.k), free(c.v), free(c.raw), free(c.block_keys), free(q_gate), free(out), free(attended);
}

/* ---- section 5: experts ---------------------------------------------------------- */

/* y += scale * down(silu(gate x) * up x) */
static void expert(const reference *r, const char *module, int32_t ff, double scale,
                   const double *x, double *y) {
  double *gate = zeros(ff), *up = zeros(ff), *out = zeros(r->hidden);
  multiply(weight(r, "%s.gate_proj.weight", module), x, gate);
  multiply(weight(r, "%s.up_proj.weight", module), x, up);
  for (int32_t i = 0; i < ff; ++i) up[i] *= silu(gate[i]);
  multiply(weight(r, "%s.down_proj.weight", module), up, out);
  for (int32_t d = 0; d < r->hidden; ++d) y[d] += scale * out[d];
  free(gate), free(up), free(out);
}

static void softmax(double *x, int32_t n) {
  double top = -INFINITY, sum = 0;
  for (int32_t i = 0; i < n; ++i) top = fmax(top, x[i]);
  for (int32_t i = 0; i < n; ++i) sum += x[i] = exp(x[i] - top);
  for (int32_t i = 0; i < n; ++i) x[i] /= sum;
}

static void moe_token(const reference *r, int32_t l, const double *x, double *y) {
  char module[NAME_BYTES];
  double *p = zeros(r->n_experts), shared, sum = 0;
  bool *used = calloc((size_t)r->n_experts, sizeof *used);
  assert_non_null(used);
  multiply(weight(r, "model.layers.%d.mlp.gate.weight", l), x, p);
  softmax(p, r->n_experts);
  for (int32_t e = 0; e < r->n_experts; ++e) {
    int32_t before = 0;
    for (int32_t o = 0; o < r->n_experts; ++o) before += p[o] > p[e] || (p[o] == p[e] && o < e);
    used[e] = before < r->n_used;
    if (used[e]) sum += p[e];
  }
  memset(y, 0, (size_t)r->hidden * sizeof *y);
  for (int32_t e = 0; e < r->n_experts; ++e) {
    if (!used[e]) continue;
    snprintf(module, sizeof module, "model.layers.%d.mlp.experts.%d", l, e);
    expert(r, module, r->expert_ff, r->renormalise ? p[e] / sum : p[e], x, y);
  }
  multiply(weight(r, "model.layers.%d.mlp.shared_expert_gate.weight", l), x, &shared);
  snprintf(module, sizeof module, "model.layers.%d.mlp.shared_expert", l);
  expert(r, module, r->shared_ff, sigmoid(shared), x, y);
  free(p);
  free(used);
}

static void moe(const reference *r, int32_t l, const double *x, double *y) {
  for (int32_t t = 0; t < r->T; ++t) moe_token(r, l, x + t * r->hidden, y + t * r->hidden);
}

/* ---- section 6: hashed n-gram embedding -------------------------------------------- */

static uint64_t splitmix64(uint64_t v) {
  v += UINT64_C(0x9E3779B97F4A7C15);
  v = (v ^ v >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  v = (v ^ v >> 27) * UINT64_C(0x94D049BB133111EB);
  return v ^ v >> 31;
}

static uint64_t multiplier(const reference *r, int32_t ple, int32_t i) {
  const json_t *seed = json_object_get(r->config, "seed");
  uint64_t start = seed ? (uint64_t)json_integer_value(seed) : 1234;
  uint64_t half = (uint64_t)INT64_MAX / (uint64_t)r->vocab / 2;
  start += UINT64_C(10007) * (uint64_t)ple + UINT64_C(0x9E3779B97F4A7C15) * ((uint64_t)i + 1);
  return 2 * (splitmix64(start) % (half > 1 ? half : 1)) + 1;
}

static bool is_prime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return n > 1;
}

/* The number-th (from 0) prime that is not below the configured base. */
static int64_t head_size(const reference *r, int32_t number) {
  int64_t n = int_of(r, "ngram_vocab_size_base");
  for (;; ++n)
    if (is_prime(n) && number-- == 0) return n;
}

/* c_j for the token at t. */
static uint64_t context_id(const reference *r, int32_t t, int32_t j) {
  for (int32_t i = 1; i <= j; ++i)
    if (t - i < 0 || r->ids[t - i] == r->eos) return (uint64_t)r->eos;
  return (uint64_t)r->ids[t - j];
}

/* A row of the table, which lies in shards of equal height. */
static void table_row(const reference *r, int32_t l, int64_t row, int32_t width, double *out) {
  for (int32_t shard = 0;; ++shard) {
    const st_tensor *t =
        weight(r, "model.layers.%d.ple.ple_embedding.ngram_embedding.shard_%d.weight", l, shard);
    if (row < t->shape[0]) {
      for (int32_t i = 0; i < width; ++i) out[i] = element(t, row * width + i);
      return;
    }
    row -= t->shape[0];
  }
}

/* e [ple_dim] for the token at t. */
static void ngram_embedding(const reference *r, int32_t l, int32_t ple, int32_t t, double *e) {
  const int32_t n_heads = (r->ngram - 1) * r->heads_per_ngram, width = r->ple_dim / n_heads;
  uint64_t mixed = context_id(r, t, 0) * multiplier(r, ple, 0);
  int64_t offset = 0;
  for (int32_t h = 0; h < n_heads; ++h) {
    /* Every heads_per_ngram heads the next older token joins the hash. */
    int32_t j = h / r->heads_per_ngram + 1;
    if (h % r->heads_per_ngram == 0) mixed ^= context_id(r, t, j) * multiplier(r, ple, j);
    int64_t size = head_size(r, ple * n_heads + h);
    table_row(r, l, (int64_t)(mixed % (uint64_t)size) + offset, width, e + h * width);
    offset += size;
  }
}

/* R [T][S][H] += PLE(R, ids). */
static void ple_block(const reference *r, int32_t l, int32_t ple, double *R) {
  const int32_t S = r->streams, H = r->hidden, rows = S * H;
  const st_tensor *conv = weight(r, "model.layers.%d.ple.conv1d.weight", l);
  double *e = zeros(r->ple_dim), *key = zeros(rows), *query = zeros(rows), *value = zeros(H);
  double *gv = zeros(rows), *cv = zeros(rows), *nv = zeros((int64_t)r->T * rows);
  for (int32_t t = 0; t < r->T; ++t) {
    double *R_t = R + (int64_t)t * rows;
    ngram_embedding(r, l, ple, t, e);
    multiply(weight(r, "model.layers.%d.ple.key_proj.weight", l), e, key);
    multiply(weight(r, "model.layers.%d.ple.value_proj.weight", l), e, value);
    grouped_norm(r, key, weight(r, "model.layers.%d.ple.norm_key.weight", l), key);
    grouped_norm(r, R_t, weight(r, "model.layers.%d.ple.norm_query.weight", l), query);
    for (int32_t c = 0; c < S; ++c) {
      double s = dot(key + c * H, query + c * H, H) / sqrt(H);
      s = (s > 0 ? 1 : s < 0 ? -1 : 0) * sqrt(fmax(fabs(s), 1e-6));
      for (int32_t d = 0; d < H; ++d) gv[c * H + d] = sigmoid(s) * value[d];
    }
    grouped_norm(r, gv, weight(r, "model.layers.%d.ple.norm_conv.weight", l),
                 nv + (int64_t)t * rows);
    convolve(nv, rows, t, conv, r->ple_taps, r->ngram, cv);
    for (int32_t i = 0; i < rows; ++i) R_t[i] += gv[i] + cv[i];
  }
  free(e), free(key), free(query), free(value), free(gv), free(cv), free(nv);
}

/* The number of the n-gram embedding in front of layer l, or -1. */
static int32_t ple_of_layer(const reference *r, int32_t l) {
  const json_t *layers = json_object_get(r->config, "ple_layer_ids"), *id;
  size_t i;
  json_array_foreach(layers, i, id)
    if (json_integer_value(id) == l + 1) return (int32_t)i;
  return -1;
}

/* ---- section 0: the step ------------------------------------------------------------ */

static void embed(const reference *r, double *R) {
  const st_tensor *table = weight(r, "model.embed_tokens.weight");
  for (int32_t t = 0; t < r->T; ++t)
    for (int32_t c = 0; c < r->streams; ++c)
      for (int32_t d = 0; d < r->hidden; ++d)
        R[((int64_t)t * r->streams + c) * r->hidden + d] =
            element(table, (int64_t)r->ids[t] * r->hidden + d);
}

typedef void block_function(reference *r, int32_t l, const double *x, double *y);

static void gdn_block(reference *r, int32_t l, const double *x, double *y) { gdn(r, l, x, y); }
static void moe_block(reference *r, int32_t l, const double *x, double *y) { moe(r, l, x, y); }

/* Read, block, write. */
static void run_block(reference *r, int32_t l, const char *connection, block_function *block,
                      double *R) {
  const int32_t S = r->streams, H = r->hidden;
  char module[NAME_BYTES];
  double *x = zeros((int64_t)r->T * H), *y = zeros((int64_t)r->T * H);
  double *inject = zeros((int64_t)r->T * S);
  snprintf(module, sizeof module, "model.layers.%d.%s.", l, connection);
  for (int32_t t = 0; t < r->T; ++t)
    hc_read(r, module, R + (int64_t)t * S * H, x + t * H, inject + t * S);
  block(r, l, x, y);
  for (int32_t t = 0; t < r->T; ++t)
    for (int32_t c = 0; c < S; ++c)
      for (int32_t d = 0; d < H; ++d)
        R[((int64_t)t * S + c) * H + d] += inject[t * S + c] * y[t * H + d];
  free(x), free(y), free(inject);
}

static block_function *mixer_of_layer(const reference *r, int32_t l) {
  const char *kind =
      json_string_value(json_array_get(json_object_get(r->config, "layer_types"), (size_t)l));
  return strcmp(kind, "linear_attention") == 0 ? gdn_block : qsa;
}

void reference_run(reference *r, const int32_t *ids, int32_t n, double *logits) {
  const int64_t row = (int64_t)r->streams * r->hidden;
  double *R = zeros(n * row), *h = zeros(r->hidden);
  r->ids = ids;
  r->T = n;
  r->sparse_queries = 0;
  embed(r, R);
  for (int32_t l = 0; l < r->n_layers; ++l) {
    int32_t ple = ple_of_layer(r, l);
    if (ple >= 0) ple_block(r, l, ple, R);
    run_block(r, l, "attn_hyper_connection", mixer_of_layer(r, l), R);
    run_block(r, l, "mlp_hyper_connection", moe_block, R);
  }
  for (int32_t t = 0; t < n; ++t) {
    hc_read(r, "model.hyper_connection_mixer.", R + t * row, h, NULL);
    multiply(weight(r, "%s", r->tied ? "model.embed_tokens.weight" : "lm_head.weight"), h,
             logits + (int64_t)t * r->vocab);
  }
  free(R);
  free(h);
}
