/* The constants of the n-gram hash: multipliers drawn from the seed, one prime
 * number of rows for each head, and where each head's rows begin. */
#include <string.h>

#include "core/st_mem.h"
#include "model/qwen4_exp/qwen4_config.h"

#define GOLDEN_GAMMA UINT64_C(0x9E3779B97F4A7C15)

/* The output function of the SplitMix64 generator for the state v. */
static uint64_t splitmix64(uint64_t v) {
  v += GOLDEN_GAMMA;
  v = (v ^ v >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  v = (v ^ v >> 27) * UINT64_C(0x94D049BB133111EB);
  return v ^ v >> 31;
}

/* base^exponent mod n, for n < 2^32. */
static uint64_t power_mod(uint64_t base, uint64_t exponent, uint64_t n) {
  uint64_t result = 1;
  for (base %= n; exponent; exponent >>= 1) {
    if (exponent & 1) result = result * base % n;
    base = base * base % n;
  }
  return result;
}

/* Whether odd n > 2 looks prime to the Miller-Rabin test with this witness. */
static bool passes(uint64_t n, uint64_t witness) {
  if (witness % n == 0) return true; /* says nothing */
  uint64_t odd = n - 1;
  int32_t twos = 0;
  for (; odd % 2 == 0; odd /= 2) twos++;
  uint64_t x = power_mod(witness, odd, n);
  if (x == 1 || x == n - 1) return true;
  for (int32_t i = 1; i < twos; i++) {
    x = x * x % n;
    if (x == n - 1) return true;
  }
  return false;
}

/* Exact for n < 3215031751: no composite below passes for 2, 3, 5 and 7. The
 * largest n asked for is a little above the bound of ngram_vocab_base, 2^31. */
static bool is_prime(uint64_t n) {
  static const uint64_t witnesses[] = {2, 3, 5, 7};
  if (n < 2 || (n > 2 && n % 2 == 0)) return false;
  for (int32_t i = 0; i < 4; i++)
    if (n > 2 && !passes(n, witnesses[i])) return false;
  return true;
}

static uint64_t prime_from(uint64_t n) {
  while (!is_prime(n)) n++;
  return n;
}

/* Multipliers are odd and so small that a product with a token id stays below
 * 2^63. The generator's increment is added here and once more in splitmix64. */
static void fill_multipliers(const qwen4_config *c, int32_t ple, qwen4_ngram_hash *out) {
  uint64_t half = (uint64_t)INT64_MAX / (uint64_t)c->vocab / 2;
  if (half < 1) half = 1;
  for (int32_t i = 0; i < c->ngram_size; i++) {
    uint64_t state = c->seed + UINT64_C(10007) * (uint64_t)ple + GOLDEN_GAMMA * ((uint64_t)i + 1);
    out->multiplier[i] = 2 * (splitmix64(state) % half) + 1;
  }
}

strata_status qwen4_ngram_hash_init(const qwen4_config *config, int32_t ple, qwen4_ngram_hash *out,
                                    strata_error *err) {
  void *memory;
  int32_t n_heads = qwen4_ngram_heads(config);
  *out = (qwen4_ngram_hash){0};
  ST_TRY(st_calloc(&memory, 2 * (size_t)n_heads, sizeof *out->head_rows, "n-gram hash constants",
                   err));
  out->head_rows = memory;
  out->head_offset = out->head_rows + n_heads;
  fill_multipliers(config, ple, out);
  uint64_t prime = prime_from((uint64_t)config->ngram_vocab_base);
  for (int32_t i = 0; i < ple * n_heads; i++) prime = prime_from(prime + 1);
  int64_t total = 0;
  for (int32_t h = 0; h < n_heads; h++) {
    out->head_rows[h] = (int64_t)prime;
    out->head_offset[h] = total;
    total += out->head_rows[h];
    prime = prime_from(prime + 1);
  }
  int64_t divisor = config->ngram_vocab_divisor;
  out->n_rows = (total + divisor - 1) / divisor * divisor;
  return STRATA_OK;
}

void qwen4_ngram_hash_release(qwen4_ngram_hash *hash) {
  st_free(hash->head_rows);
  *hash = (qwen4_ngram_hash){0};
}
