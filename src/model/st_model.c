/* strata_model: opening, describing, planning memory. See strata.h. */
#include "model/st_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"
#include "model/qwen4_exp/qwen4_rope.h"
#include "model/qwen4_exp/qwen4_step.h"
#include "os/st_process.h"

__attribute__((format(printf, 3, 4))) static void line(strata_model *m, const char *name, const char *format, ...) {
  if (m->n_lines == ST_MODEL_LINES_MAX) return;
  va_list args;
  va_start(args, format);
  vsnprintf(m->lines[m->n_lines].value, sizeof m->lines[0].value, format, args);
  va_end(args);
  m->lines[m->n_lines++].name = name;
}

static void describe(strata_model *m) {
  const qwen4_config *c = &m->config;
  line(m, "layers", "%d: %d gated delta net, %d sparse attention", c->n_layers, c->n_gdn_layers,
       c->n_qsa_layers);
  line(m, "hidden size", "%d, %d residual streams, read rank %d", c->hidden, c->hc_count,
       c->hc_lowrank);
  line(m, "vocabulary", "%d, head %s", c->vocab, c->tie_word_embeddings ? "tied" : "untied");
  line(m, "gated delta net", "%d key and %d value heads of %d and %d, convolution of %d taps",
       c->gdn_k_heads, c->gdn_v_heads, c->gdn_k_dim, c->gdn_v_dim, c->gdn_taps);
  line(m, "attention", "%d query and %d key-value heads of %d, %d rotary dimensions, theta %g",
       c->q_heads, c->kv_heads, c->head_dim, c->rotary_dim, c->rope_theta);
  line(m, "indexer", "%d heads of %d, blocks of %d, budget %d cells", c->idx_heads, c->idx_dim,
       c->idx_ratio, c->idx_budget);
  line(m, "experts", "%d of %d, inner size %d, shared expert %d", c->n_experts_used, c->n_experts,
       c->expert_ff, c->shared_ff);
  if (c->n_ple) {
    const qwen4_ple *ple = m->weights.layers[c->ple_layer[0]].ple;
    line(m, "n-gram embedding", "%d layer(s), orders 2 to %d, %d heads of %d, %lld rows", c->n_ple,
         c->ngram_size, qwen4_ngram_heads(c), c->ple_dim / qwen4_ngram_heads(c),
         (long long)ple->hash.n_rows);
  }
  line(m, "context", "at most %d tokens", c->max_positions);
}

static void name_dtypes(strata_model *m) {
  static const char *const names[] = {"bf16", "f16", "f32"};
  size_t used = 0;
  for (int i = 0; i < 3; ++i)
    if (m->weights.bytes_by_dtype[i])
      used += (size_t)snprintf(m->dtypes + used, sizeof m->dtypes - used, "%s%s %.1f MB",
                               used ? ", " : "", names[i], (double)m->weights.bytes_by_dtype[i] / 1e6);
}

strata_status strata_model_open(strata_engine *engine, const char *path, strata_model **out,
                                strata_error *err) {
  strata_status status = STRATA_OK;
  void *memory = NULL;
  strata_model *m = NULL;
  size_t path_bytes = strlen(path);
  *out = NULL;
  if (path_bytes > 5 && strcmp(path + path_bytes - 5, ".gguf") == 0)
    ST_FAIL(err, UNSUPPORTED, "%s: GGUF: a Hugging Face directory expected", path);
  ST_TRY(st_calloc(&memory, 1, sizeof *m, "the model", err));
  m = memory;
  m->engine = engine;
  ST_TRY_OUT(qwen4_config_read(path, &m->config, err));
  ST_TRY_OUT(st_safetensors_open(path, &m->tensors, err));
  ST_TRY_OUT(qwen4_weights_bind(&m->config, m->tensors, &m->weights, err));
  ST_TRY_OUT(st_calloc(&memory, (size_t)m->config.rotary_dim / 2, sizeof(float),
                       "rotary frequencies", err));
  m->inv_freq = memory;
  qwen4_inv_freq(m->config.rope_theta, m->config.rotary_dim, m->inv_freq);
  describe(m);
  name_dtypes(m);
  *out = m;
  m = NULL;
out:
  strata_model_close(&m);
  return status;
}

void strata_model_close(strata_model **model) {
  strata_model *m = *model;
  if (!m) return;
  qwen4_weights_release(&m->weights);
  st_safetensors_close(&m->tensors);
  st_free(m->inv_freq);
  st_free(m);
  *model = NULL;
}

uint64_t st_model_fingerprint(strata_model *m) {
  if (!m->fingerprint) m->fingerprint = qwen4_weights_fingerprint(m->tensors);
  return m->fingerprint;
}

int64_t st_model_program_bytes(const strata_model *m) {
  return m->engine->code_bytes + st_process_anonymous_bytes() - m->weights.widened_bytes;
}

void strata_model_get_info(const strata_model *m, strata_model_info *info) {
  const qwen4_config *c = &m->config;
  *info = (strata_model_info){
      .architecture = "qwen4_exp", .n_layers = c->n_layers, .hidden_size = c->hidden,
      .vocab_size = c->vocab, .max_positions = c->max_positions,
      .n_gdn_layers = c->n_gdn_layers, .n_qsa_layers = c->n_qsa_layers,
      .n_experts = c->n_experts, .n_experts_used = c->n_experts_used,
      .n_parameters = m->weights.n_parameters, .weight_bytes = m->weights.weight_bytes,
      .n_tensors = m->weights.n_bound, .n_ignored = m->weights.n_ignored, .dtypes = m->dtypes,
      .eos_ids = c->eos, .n_eos_ids = c->n_eos};
}

bool strata_model_describe(const strata_model *m, int32_t index, const char **name,
                           const char **value) {
  if (index < 0 || index >= m->n_lines) return false;
  *name = m->lines[index].name;
  *value = m->lines[index].value;
  return true;
}

const char *strata_model_ignored_tensor(const strata_model *m, int32_t index) {
  return index >= 0 && index < m->weights.n_ignored ? m->weights.ignored[index] : NULL;
}

/* ---- the memory plan ---------------------------------------------------------- */

static void plan_row(strata_memory_plan *plan, const char *component, int64_t bytes) {
  if (bytes == 0) return;
  for (int32_t i = 0; i < plan->n_rows; ++i)
    if (strcmp(plan->rows[i].component, component) == 0) {
      plan->rows[i].bytes += bytes;
      plan->total_bytes += bytes;
      return;
    }
  plan->rows[plan->n_rows++] = (strata_memory_row){component, bytes};
  plan->total_bytes += bytes;
}

strata_status strata_model_plan(const strata_model *m, const strata_session_options *options,
                                int32_t n_tokens, strata_memory_plan *plan, strata_error *err) {
  const qwen4_config *c = &m->config;
  int32_t window = options && options->window ? options->window : 512;
  int32_t capacity = options && options->capacity ? options->capacity : c->max_positions;
  qwen4_part *parts = NULL;
  int32_t n_parts;
  int64_t scratch_bytes, score_bytes;
  *plan = (strata_memory_plan){0};
  if (capacity > c->max_positions) capacity = c->max_positions;
  if (n_tokens < 1 || n_tokens > capacity)
    ST_FAIL(err, ARG, "context: %d tokens: 1 to %d expected", n_tokens, capacity);
  if (window < 1) ST_FAIL(err, ARG, "session: window %d: at least 1 token expected", window);
  if (window > n_tokens) window = n_tokens;
  if (options && (int)options->kv >= STK_KV_KINDS)
    ST_FAIL(err, ARG, "session: kv %d: 0 to %d expected", (int)options->kv, STK_KV_KINDS - 1);
  ST_TRY(qwen4_state_describe(c, n_tokens, options ? (stk_kv)options->kv : STK_KV_F32, &parts, &n_parts,
                              err));
  plan_row(plan, "weights (mapped)", m->weights.weight_bytes);
  plan_row(plan, "widened vectors", m->weights.widened_bytes);
  for (int32_t i = 0; i < n_parts; ++i)
    plan_row(plan, parts[i].name, (int64_t)qwen4_part_memory(&parts[i], n_tokens));
  st_free(parts);
  qwen4_scratch_plan(c, window, n_tokens, &scratch_bytes, &score_bytes);
  plan_row(plan, "scratch", scratch_bytes);
  plan_row(plan, "block scores", score_bytes);
  plan_row(plan, "program", m->program_bytes ? m->program_bytes : st_model_program_bytes(m));
  return STRATA_OK;
}
