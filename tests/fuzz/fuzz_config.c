/* libFuzzer entry: any bytes as a config.json. A config that is accepted must
 * keep what qwen4_config.h promises, and its n-gram hash must be computable. */
#include "model/qwen4_exp/qwen4_config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Stops the fuzzer: a promise of the header is broken. */
static void check(bool ok) {
  if (!ok) abort();
}

static void check_hash(const qwen4_config *c, int32_t ple) {
  qwen4_ngram_hash hash;
  int32_t last = qwen4_ngram_heads(c) - 1;
  check(qwen4_ngram_hash_init(c, ple, &hash, NULL) == STRATA_OK);
  check(hash.head_rows[0] >= c->ngram_vocab_base);
  check(hash.head_offset[last] + hash.head_rows[last] <= hash.n_rows);
  for (int32_t i = 0; i < c->ngram_size; i++)
    check(hash.multiplier[i] <= (uint64_t)INT64_MAX / (uint64_t)c->vocab);
  qwen4_ngram_hash_release(&hash);
}

static void check_config(const qwen4_config *c) {
  check(c->n_layers >= 1 && c->n_layers <= QWEN4_LAYERS_MAX);
  check(c->n_gdn_layers + c->n_qsa_layers == c->n_layers);
  check(c->hidden >= 1 && c->vocab >= 1 && c->max_positions >= 1);
  check(c->gdn_v_heads % c->gdn_k_heads == 0 && c->q_heads % c->kv_heads == 0);
  check(qwen4_gdn_channels(c) > 0);
  check(c->rotary_dim >= 2 && c->rotary_dim % 2 == 0);
  check(c->rotary_dim <= c->head_dim && c->rotary_dim <= c->idx_dim);
  check(c->idx_budget % c->idx_ratio == 0);
  check(c->n_experts_used >= 1 && c->n_experts_used <= c->n_experts);
  check(c->rms_eps > 0 && c->rope_theta > 0);
  for (int32_t i = 0; i < c->n_eos; i++) check(c->eos[i] >= 0 && c->eos[i] < c->vocab);
  for (int32_t i = 0; i < c->n_ple; i++) {
    check(c->layer_kind[c->ple_layer[i]] == QWEN4_GDN);
    check(c->ple_eos >= 0 && c->ple_eos < c->vocab);
    check(c->ple_dim % qwen4_ngram_heads(c) == 0);
    check_hash(c, i);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  qwen4_config c;
  strata_error err;
  strata_status status = qwen4_config_parse("fuzz", (const char *)data, n_bytes, &c, &err);
  if (status == STRATA_OK)
    check_config(&c);
  else
    check(err.status == status && err.message[0] && !strpbrk(err.message, "\n\r\033"));
  return 0;
}
