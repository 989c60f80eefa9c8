/* decode_case.h -- a token through gdn_pre, gdn_step and gdn_post by their oracles, and
 * the args of gdn_decode for the same, for the tests of that kernel. */
#ifndef DECODE_CASE_H
#define DECODE_CASE_H

#include <string.h>

#include "gdn_decode/gdn_decode.h"
#include "kreg/st_kreg.h"
#include "lab/lab_case.h"

enum { DECODE_PRE, DECODE_STEP, DECODE_POST, DECODE_STAGES };

typedef struct decode_case {
  lab_case stage[DECODE_STAGES];
} decode_case;

static inline void decode_case_release(decode_case *c) {
  for (int i = 0; i < DECODE_STAGES; ++i) lab_case_release(&c->stage[i]);
}

static inline strata_status decode_case_init(decode_case *c, int32_t pos0, int32_t k_heads, int32_t v_heads,
                                             stk_dtype rows, uint64_t seed, strata_error *err) {
  const stk_gdn_pre_args pre = {.n_tokens = 1, .pos0 = pos0, .k_heads = k_heads, .v_heads = v_heads, .k_dim = 128,
                                .v_dim = 128, .n_taps = 4, .kinds = STK_GDN_ALL, .rows = (int32_t)rows};
  const stk_gdn_step_args step = {.n_tokens = 1, .pos0 = pos0, .k_heads = k_heads, .v_heads = v_heads, .k_dim = 128,
                                  .v_dim = 128, .rows = (int32_t)rows};
  const stk_gdn_post_args post = {.n_tokens = 1, .v_heads = v_heads, .v_dim = 128, .eps = 1e-6f,
                                  .gate = pos0 % 3 ? STK_GATE_SIGMOID : STK_GATE_SILU,
                                  .outputs = STK_POST_F32 | STK_POST_F16, .rows = (int32_t)rows};
  const lab_fill fill = {.seed = seed, .poison = 0x5a, .guard = 0xa5, .unread = 0xff};
  *c = (decode_case){0};
  strata_status status = lab_case_init(&c->stage[DECODE_PRE], st_kreg_op(ST_OP_gdn_pre), &pre, fill, err);
  if (status == STRATA_OK) status = lab_case_init(&c->stage[DECODE_STEP], st_kreg_op(ST_OP_gdn_step), &step, fill, err);
  if (status == STRATA_OK) status = lab_case_init(&c->stage[DECODE_POST], st_kreg_op(ST_OP_gdn_post), &post, fill, err);
  if (status != STRATA_OK) decode_case_release(c);
  return status;
}

/* What one stage leaves is what the next one takes. */
static inline void decode_case_run_oracles(decode_case *c) {
  const stk_gdn_pre_args *pre = c->stage[DECODE_PRE].args;
  stk_gdn_step_args *step = c->stage[DECODE_STEP].args;
  stk_gdn_post_args *post = c->stage[DECODE_POST].args;
  step->qn = pre->qn;
  step->kn = pre->kn;
  step->vc = pre->vc;
  step->gb = pre->gb;
  step->kq = pre->kq;
  post->o = step->o;
  for (int i = 0; i < DECODE_STAGES; ++i) lab_case_run(&c->stage[i], c->stage[i].op->oracle, 1);
}

/* Args from those of the three stages, here or on a device, without what stays inside. */
static inline stk_gdn_decode_args decode_args(const void *pre, const void *step, const void *post) {
  stk_gdn_decode_args a;
  memcpy(&a.pre, pre, sizeof a.pre);
  memcpy(&a.step, step, sizeof a.step);
  memcpy(&a.post, post, sizeof a.post);
  a.pre.qn = a.pre.kn = a.pre.vc = a.pre.gb = a.pre.kq = a.step.o = NULL;
  a.step.qn = a.step.kn = a.step.vc = a.step.gb = a.step.kq = a.post.o = NULL;
  return a;
}

/* The first of the tensors that gdn_decode writes in which got differs from want. */
static inline lab_difference decode_case_compare(const decode_case *want, const decode_case *got) {
  static const struct {
    int stage;
    const char *name;
  } written[] = {{DECODE_PRE, "history"}, {DECODE_PRE, "k_tail"}, {DECODE_STEP, "state"}, {DECODE_POST, "y"}, {DECODE_POST, "yh"}};
  for (size_t w = 0; w < sizeof written / sizeof *written; ++w) {
    const lab_case *a = &want->stage[written[w].stage], *b = &got->stage[written[w].stage];
    for (int32_t i = 0; i < a->n; ++i) {
      if (strcmp(a->tensors[i].name, written[w].name) != 0) continue;
      lab_difference d = lab_case_compare_tensor(a, b, i, 0);
      if (d.word != LAB_EQUAL) return d;
    }
  }
  return (lab_difference){0};
}

#endif
