/* Hashes of what batches leave. */
#include "lab/lab_expected.h"

#include <xxhash.h>

/* Of all tensors, inputs too, and what lies around them. */
static uint64_t hash_case(const lab_case *c) {
  uint64_t hash = 0;
  for (int32_t i = 0; i < c->n; ++i) {
    const st_guarded *b = &c->buffers[i];
    hash = XXH3_64bits_withSeed(b->front, b->front_bytes + b->n_bytes + b->back_bytes, hash);
  }
  return hash;
}

static strata_status hash_at(const lab_expected *e, int32_t set, int32_t stage, uint64_t *out, strata_error *err) {
  const lab_case *c;
  ST_TRY(e->sets.at(e->sets.self, set, stage, &c, err));
  *out = hash_case(c);
  return STRATA_OK;
}

/* Of a chain timed as a whole, a stage behind a fast one has that one's outputs to read. */
static lab_author author_of(const lab_expected *e, int32_t stage, int32_t s, lab_arm arm) {
  bool fast = false;
  for (int32_t i = stage < 0 ? 0 : s; i <= s; ++i) fast |= e->fast[i];
  return arm == LAB_CAND && fast ? LAB_BY_FAST_CAND : LAB_BY_BASE;
}

strata_status lab_expected_keep(lab_expected *e, int32_t stage, lab_author who, strata_error *err) {
  for (int32_t set = 0; set < e->n_sets; ++set)
    for (int32_t s = 0; s < e->n_stages; ++s)
      if (stage < 0 || s == stage) ST_TRY(hash_at(e, set, s, &e->hashes[who][set][s], err));
  return STRATA_OK;
}

static strata_status check_set(const lab_expected *e, int32_t stage, lab_arm arm, int32_t set, bool *same,
                               strata_error *err) {
  uint64_t hash;
  for (int32_t s = 0; s < e->n_stages; ++s) {
    if (stage >= 0 && s != stage) continue;
    ST_TRY(hash_at(e, set, s, &hash, err));
    *same &= hash == e->hashes[author_of(e, stage, s, arm)][set][s];
  }
  return STRATA_OK;
}

strata_status lab_expected_check(lab_expected *e, int32_t stage, lab_arm arm, bool *same, strata_error *err) {
  const int32_t last = (e->n_calls - 1) % e->n_sets, other = e->n_checks++ % e->n_sets;
  *same = true;
  ST_TRY(check_set(e, stage, arm, last, same, err));
  return other == last ? STRATA_OK : check_set(e, stage, arm, other, same, err);
}
