/* isa: scalar
 * qsa_topk -- radix selection, linear in the number of blocks: scores become
 * integers of the same order, three passes of 11, 11 and 10 bits find the key
 * of the last selected block and how many of its equals are selected, and one
 * pass in ascending order writes the cells. */
#include "qsa_topk/qsa_topk.h"

#include <string.h>

#include "common/k_math.h"

/* An integer that orders like the score: NaN lowest, -0 equal to +0. */
static uint32_t key_of(float score) {
  if (score != score) return 0;
  uint32_t bits = (uint32_t)ks_bits(score);
  if (bits == 0x80000000u) bits = 0;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The smallest selected key, and in *n_equal how many blocks with just that key
 * are selected (the lower ones). 0 < n_wanted <= n. */
static uint32_t threshold(const float *score, int64_t n, int64_t n_wanted, int64_t *n_equal) {
  static const int shift[] = {21, 10, 0}, width[] = {11, 11, 10};
  uint32_t prefix = 0, prefix_mask = 0;
  for (int pass = 0; pass < 3; ++pass) {
    uint32_t count[2048];
    const uint32_t digit_mask = (1u << width[pass]) - 1;
    memset(count, 0, sizeof count);
    for (int64_t b = 0; b < n; ++b) {
      uint32_t key = key_of(score[b]);
      if ((key & prefix_mask) == prefix) ++count[key >> shift[pass] & digit_mask];
    }
    uint32_t digit = digit_mask;
    while (count[digit] < n_wanted) n_wanted -= count[digit--];
    prefix |= digit << shift[pass];
    prefix_mask |= digit_mask << shift[pass];
  }
  *n_equal = n_wanted;
  return prefix;
}

static int32_t select_cells(const stk_qsa_topk_args *a, const float *score, int64_t n, int32_t *ids) {
  int64_t n_blocks = n / a->ratio, n_equal;
  int32_t count = 0;
  int has_nan = 0;
  uint32_t last = threshold(score, n_blocks, a->budget / a->ratio, &n_equal);
  for (int64_t b = 0; b < n_blocks; ++b) {
    uint32_t key = key_of(score[b]);
    has_nan |= key == 0;
    if (key < last || (key == last && n_equal-- <= 0)) continue;
    for (int64_t j = 0; j < a->ratio; ++j) ids[count++] = (int32_t)(b * a->ratio + j);
  }
  for (int64_t cell = n_blocks * a->ratio; cell < n; ++cell) ids[count++] = (int32_t)cell;
  return has_nan ? -count : count;
}

static void run(const void *args, int32_t part, int32_t n_parts) {
  const stk_qsa_topk_args *a = args;
  int64_t begin, end;
  stk_slice(a->n_tokens, 1, part, n_parts, &begin, &end);
  for (int64_t t = begin; t < end; ++t) {
    int64_t n = a->pos0 + t + 1;
    a->n_ids[t] = n > (int64_t)a->budget + a->ratio - 1
                      ? select_cells(a, a->score + t * a->score_stride, n, a->ids + t * a->ids_stride)
                      : 0;
  }
}

STK_KERNEL_LEVEL(qsa_topk, STK_QSA_TOPK_CONTRACT, stk_qsa_topk_args, STK_EXACT, run);
