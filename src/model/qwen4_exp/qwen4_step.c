/* The plan of a window. Reads top down like the model's own description: embed,
 * then for each layer read - block - write twice, then the head. */
#include "model/qwen4_exp/qwen4_step.h"

#include "core/st_mem.h"
#include "embed/embed.h"
#include "gdn_post/gdn_post.h"
#include "gdn_pre/gdn_pre.h"
#include "gdn_scan/gdn_scan.h"
#include "hc_mix/hc_mix.h"
#include "hc_norm/hc_norm.h"
#include "linear/linear.h"
#include "moe_down/moe_down.h"
#include "moe_route/moe_route.h"
#include "moe_up/moe_up.h"
#include "os/st_file.h"
#include "ple_conv/ple_conv.h"
#include "ple_embed/ple_embed.h"
#include "ple_mix/ple_mix.h"
#include "qsa_decode/qsa_decode.h"
#include "qsa_flash/qsa_flash.h"
#include "qsa_merge/qsa_merge.h"
#include "qsa_prep/qsa_prep.h"
#include "qsa_score/qsa_score.h"
#include "qsa_topk/qsa_topk.h"
#include "rope_table/rope_table.h"

/* ---- scratch ------------------------------------------------------------------ */

/* Hands out offsets in one block of memory; with base NULL it only counts. */
typedef struct layout {
  uint8_t *base;
  size_t used, most;
} layout;

static void *take(layout *l, size_t n, size_t elem_bytes) {
  void *p = l->base ? l->base + l->used : NULL;
  l->used += (n * elem_bytes + 63) & ~(size_t)63;
  if (l->used > l->most) l->most = l->used;
  return p;
}

static float *take_floats(layout *l, size_t n) { return take(l, n, sizeof(float)); }

static void lay_out(const qwen4_config *c, int32_t n_tokens, layout *l, qwen4_scratch *s) {
  const size_t T = (size_t)n_tokens, S = (size_t)c->hc_count, H = (size_t)c->hidden;
  const size_t pairs = (size_t)c->rotary_dim / 2;
  s->ids = take(l, T + (size_t)(c->n_ple ? c->ngram_size - 1 : 0), sizeof(int32_t));
  s->r = take_floats(l, T * S * H);
  s->n = take_floats(l, T * S * H);
  s->u = take_floats(l, T * S * H);
  s->x = take_floats(l, T * H);
  s->y = take_floats(l, T * H);
  s->low = take_floats(l, T * (size_t)c->hc_lowrank);
  s->inject = take_floats(l, T * S);
  s->mean_square = take_floats(l, (2 * (size_t)c->n_layers + 1) * T * S);
  if (c->n_qsa_layers) {
    size_t blocks = T / (size_t)c->idx_ratio + 1;
    s->cos = take_floats(l, T * pairs);
    s->sin = take_floats(l, T * pairs);
    s->block_cos = take_floats(l, blocks * pairs);
    s->block_sin = take_floats(l, blocks * pairs);
  }
  const size_t common = l->used;

  size_t keys = (size_t)c->gdn_k_heads * (size_t)c->gdn_k_dim;
  size_t values = (size_t)c->gdn_v_heads * (size_t)c->gdn_v_dim;
  s->qkv = take_floats(l, T * (2 * keys + values));
  s->z = take_floats(l, T * values);
  s->ab = take_floats(l, T * 2 * (size_t)c->gdn_v_heads);
  s->qn = take_floats(l, T * keys);
  s->kn = take_floats(l, (T + 2) * keys);
  s->vc = take_floats(l, T * values);
  s->gb = take_floats(l, T * 2 * (size_t)c->gdn_v_heads);
  s->kq = take_floats(l, T * 3 * (size_t)c->gdn_k_heads);
  s->o = take_floats(l, T * values);
  s->gdn_y = take_floats(l, T * values);

  l->used = common;
  size_t queries = (size_t)c->q_heads * (size_t)c->head_dim;
  size_t kv = (size_t)c->kv_heads * (size_t)c->head_dim;
  s->q_raw = take_floats(l, T * 2 * queries);
  s->k_raw = take_floats(l, T * kv);
  s->v_raw = take_floats(l, T * kv);
  s->index_raw = take_floats(l, T * (size_t)(c->idx_heads + 1) * (size_t)c->idx_dim);
  s->q = take_floats(l, T * queries);
  s->iq = take_floats(l, T * (size_t)c->idx_heads * (size_t)c->idx_dim);
  s->attn = take_floats(l, T * queries);
  s->cells = take(l, T * (size_t)(c->idx_budget + c->idx_ratio - 1), sizeof(int32_t));
  s->n_cells = take(l, T, sizeof(int32_t));
  /* The splits of one token: longer windows merge theirs as they go. */
  s->partial = take_floats(l, (size_t)c->q_heads * ((size_t)c->head_dim + 2) *
                                  (size_t)stk_qsa_splits_max(c->idx_budget, c->idx_ratio));

  l->used = common;
  s->router = take_floats(l, T * (size_t)c->n_experts);
  s->shared_logit = take_floats(l, T);
  s->expert = take(l, T * (size_t)c->n_experts_used, sizeof(int32_t));
  s->route_weight = take_floats(l, T * (size_t)c->n_experts_used);
  s->shared = take_floats(l, T);
  s->all = c->norm_topk ? NULL : take_floats(l, T * (size_t)c->n_experts);
  s->h = take_floats(l, T * (size_t)c->n_experts_used * (size_t)c->expert_ff);
  s->h_shared = take_floats(l, T * (size_t)c->shared_ff);

  l->used = common;
  if (c->n_ple) {
    s->ngram = take_floats(l, T * (size_t)c->ple_dim);
    s->key_raw = take_floats(l, T * S * H);
    s->value = take_floats(l, T * H);
    s->gv = take_floats(l, T * S * H);
    s->nv = take_floats(l, T * S * H);
  }
}

/* Sparse windows score blocks; sequences within the budget never do. */
static int64_t score_floats(const qwen4_config *c, int32_t n_tokens, int32_t sequence_tokens) {
  if (!c->n_qsa_layers || sequence_tokens < c->idx_budget + c->idx_ratio) return 0;
  return (int64_t)n_tokens * (sequence_tokens / c->idx_ratio);
}

void qwen4_scratch_plan(const qwen4_config *c, int32_t n_tokens, int32_t sequence_tokens,
                        int64_t *memory_bytes, int64_t *score_bytes) {
  layout l = {0};
  qwen4_scratch unused = {0};
  lay_out(c, n_tokens, &l, &unused);
  *memory_bytes = (int64_t)l.most;
  *score_bytes = score_floats(c, n_tokens, sequence_tokens) * (int64_t)sizeof(float);
}

strata_status qwen4_scratch_init(const qwen4_config *c, int32_t n_tokens, int32_t capacity,
                                 qwen4_scratch *out, strata_error *err) {
  strata_status status = STRATA_OK;
  int64_t memory_bytes, score_bytes;
  void *memory = NULL;
  *out = (qwen4_scratch){0};
  qwen4_scratch_plan(c, n_tokens, capacity, &memory_bytes, &score_bytes);
  ST_TRY_OUT(st_pages_new(&memory, (size_t)memory_bytes, "scratch memory", err));
  layout l = {.base = memory};
  lay_out(c, n_tokens, &l, out);
  out->memory = memory;
  out->memory_bytes = (size_t)memory_bytes;
  if (score_bytes) {
    ST_TRY_OUT(st_pages_new(&memory, (size_t)score_bytes, "block scores", err));
    out->score = memory;
    out->score_bytes = (size_t)score_bytes;
  }
  out->score_stride = capacity / c->idx_ratio;
out:
  if (status != STRATA_OK) qwen4_scratch_release(out);
  return status;
}

void qwen4_scratch_release(qwen4_scratch *scratch) {
  st_pages_free(scratch->memory, scratch->memory_bytes);
  st_pages_free(scratch->score, scratch->score_bytes);
  *scratch = (qwen4_scratch){0};
}

/* ---- the plan ----------------------------------------------------------------- */

/* What the helpers below share. */
typedef struct builder {
  const qwen4_window *w;
  const qwen4_config *c;
  qwen4_scratch *s;
  st_plan *plan;
  strata_error *err;
  int32_t T, layer, read; /* read: number of the next read of the streams */
  bool written;           /* no block output waits in y for its write */
} builder;

#define ADD(b, op, ...) \
  st_plan_add((b)->plan, ST_OP_##op, &(stk_##op##_args){__VA_ARGS__}, (b)->T, (b)->layer, (b)->err)

static stk_linear_out project(stk_matrix w, float *y) {
  return (stk_linear_out){.w = w, .y = y, .y_stride = w.n_rows, .scale = 1.0f};
}

/* Writes the last block's output into the streams, if one waits, and reads them:
 * x and inject for the next block. */
static strata_status read_streams(builder *b, const qwen4_hc *hc, int32_t first, int32_t count) {
  const qwen4_config *c = b->c;
  qwen4_scratch *s = b->s;
  const size_t S = (size_t)c->hc_count, H = (size_t)c->hidden, t = (size_t)first;
  const int32_t row = c->hc_count * c->hidden;
  const float inv_streams = 1.0f / (float)c->hc_count;
  float *r = s->r + t * S * H, *n = s->n + t * S * H, *u = s->u + t * S * H;
  float *low = s->low + t * (size_t)c->hc_lowrank;
  ST_TRY(st_plan_add(b->plan, ST_OP_hc_norm,
                     &(stk_hc_norm_args){
                         .r = r, .y = b->written ? NULL : s->y + t * H,
                         .inject = s->inject + t * S, .inject_stride = c->hc_count,
                         .gain = hc->gain, .n = n,
                         .mean_square = s->mean_square + ((size_t)b->read * (size_t)b->w->n_tokens + t) * S,
                         .n_tokens = count, .n_streams = c->hc_count, .hidden = c->hidden,
                         .eps = c->rms_eps},
                     count, b->layer, b->err));
  stk_linear_args down = {.x = n, .x_stride = row, .n_tokens = count, .n_outs = 1,
                          .out = {project(hc->down, low)}};
  down.out[0].scale = inv_streams;
  down.out[0].act = STK_ACT_SILU;
  if (hc->inject.data) down.out[down.n_outs++] = project(hc->inject, s->inject + t * S);
  ST_TRY(st_plan_add(b->plan, ST_OP_linear, &down, count, b->layer, b->err));
  ST_TRY(st_plan_add(b->plan, ST_OP_linear,
                     &(stk_linear_args){.x = low, .x_stride = c->hc_lowrank, .n_tokens = count,
                                        .n_outs = 1, .out = {project(hc->up, u)}},
                     count, b->layer, b->err));
  ST_TRY(st_plan_add(b->plan, ST_OP_hc_mix,
                     &(stk_hc_mix_args){.u = u, .n = n, .x = s->x + t * H, .n_tokens = count,
                                        .n_streams = c->hc_count, .hidden = c->hidden},
                     count, b->layer, b->err));
  return STRATA_OK;
}

/* A read inside the layers; the block that follows leaves its output in y. */
static strata_status begin_block(builder *b, const qwen4_hc *hc) {
  ST_TRY(read_streams(b, hc, 0, b->T));
  ++b->read;
  b->written = false;
  return STRATA_OK;
}

static strata_status output(builder *b, stk_matrix w, const float *x) {
  return ADD(b, linear, .x = x, .x_stride = w.n_cols, .n_tokens = b->T, .n_outs = 1,
             .out = {project(w, b->s->y)});
}

static strata_status gdn_block(builder *b, const qwen4_gdn *g, const qwen4_layer_state *state) {
  const qwen4_config *c = b->c;
  qwen4_scratch *s = b->s;
  stk_linear_args in = {.x = s->x, .x_stride = c->hidden, .n_tokens = b->T, .n_outs = 4,
                        .out = {project(g->qkv, s->qkv), project(g->z, s->z), project(g->a, s->ab),
                                project(g->b, s->ab + c->gdn_v_heads)}};
  in.out[2].y_stride = in.out[3].y_stride = 2 * c->gdn_v_heads;
  ST_TRY(st_plan_add(b->plan, ST_OP_linear, &in, b->T, b->layer, b->err));
  ST_TRY(ADD(b, gdn_pre, .qkv = s->qkv, .ab = s->ab, .conv_w = g->conv, .a_log = g->a_log,
             .dt_bias = g->dt_bias, .history = state->gdn_history, .k_tail = state->gdn_keys,
             .qn = s->qn, .kn = s->kn, .vc = s->vc, .gb = s->gb, .kq = s->kq, .n_tokens = b->T,
             .pos0 = b->w->state->position, .k_heads = c->gdn_k_heads, .v_heads = c->gdn_v_heads,
             .k_dim = c->gdn_k_dim, .v_dim = c->gdn_v_dim, .n_taps = c->gdn_taps,
             .kinds = STK_GDN_ALL));
  const stk_gdn_scan_args scan = {
      .qn = s->qn, .kn = s->kn, .vc = s->vc, .gb = s->gb, .kq = s->kq, .state = state->gdn,
      .o = s->o, .n_tokens = b->T, .pos0 = b->w->state->position, .k_heads = c->gdn_k_heads,
      .v_heads = c->gdn_v_heads, .k_dim = c->gdn_k_dim, .v_dim = c->gdn_v_dim};
  const st_op recurrence = b->T == 1 ? ST_OP_gdn_step : ST_OP_gdn_scan;
  ST_TRY(st_plan_add(b->plan, recurrence, &scan, b->T, b->layer, b->err));
  ST_TRY(ADD(b, gdn_post, .o = s->o, .z = s->z, .gain = g->gain, .y = s->gdn_y, .n_tokens = b->T,
             .v_heads = c->gdn_v_heads, .v_dim = c->gdn_v_dim, .eps = c->rms_eps,
             .gate = STK_GATE_SIGMOID, .outputs = STK_POST_F32));
  return output(b, g->out, s->gdn_y);
}

/* A window of one token is shared among threads split by split; a longer one by
 * tokens and heads. The bytes are the same. */
static strata_status attend(builder *b, const qwen4_layer_state *state) {
  const qwen4_config *c = b->c;
  qwen4_scratch *s = b->s;
  const stk_qsa_attn_args args = {
      .q = s->q, .q_raw = s->q_raw, .kv_pages = state->kv_pages, .ids = s->cells,
      .n_ids = s->n_cells, .out = s->attn, .partial = s->partial,
      .ids_stride = c->idx_budget + c->idx_ratio - 1, .n_tokens = b->T,
      .pos0 = b->w->state->position, .q_heads = c->q_heads, .kv_heads = c->kv_heads,
      .head_dim = c->head_dim, .budget = c->idx_budget, .ratio = c->idx_ratio,
      .kv_kind = b->w->state->kv, .outputs = STK_ATTN_F32};
  if (b->T > 1) return st_plan_add(b->plan, ST_OP_qsa_flash, &args, b->T, b->layer, b->err);
  ST_TRY(st_plan_add(b->plan, ST_OP_qsa_decode, &args, b->T, b->layer, b->err));
  return st_plan_add(b->plan, ST_OP_qsa_merge, &args, b->T, b->layer, b->err);
}

static strata_status qsa_block(builder *b, const qwen4_qsa *q, const qwen4_layer_state *state) {
  const qwen4_config *c = b->c;
  qwen4_scratch *s = b->s;
  const int32_t pos0 = b->w->state->position;
  ST_TRY(ADD(b, linear, .x = s->x, .x_stride = c->hidden, .n_tokens = b->T, .n_outs = 4,
             .out = {project(q->q, s->q_raw), project(q->k, s->k_raw), project(q->v, s->v_raw),
                     project(q->index_qk, s->index_raw)}));
  ST_TRY(ADD(b, qsa_prep, .q_raw = s->q_raw, .k_raw = s->k_raw, .v_raw = s->v_raw,
             .index_raw = s->index_raw, .q_gain = q->q_gain, .k_gain = q->k_gain,
             .iq_gain = q->index_q_gain, .ik_gain = q->index_k_gain, .cos = s->cos, .sin = s->sin,
             .block_cos = s->block_cos, .block_sin = s->block_sin, .q = s->q, .iq = s->iq,
             .open_keys = state->open_keys, .kv_pages = state->kv_pages,
             .block_pages = state->block_pages, .n_tokens = b->T, .pos0 = pos0,
             .q_heads = c->q_heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim,
             .idx_heads = c->idx_heads, .idx_dim = c->idx_dim, .ratio = c->idx_ratio,
             .n_pairs = c->rotary_dim / 2, .kv_kind = b->w->state->kv, .kinds = STK_QSA_ALL,
             .eps = c->rms_eps));
  /* Within the budget every list is all cells: no scores, no list. */
  if (stk_qsa_first_sparse(pos0, b->T, c->idx_budget, c->idx_ratio) < b->T) {
    ST_TRY(ADD(b, qsa_score, .iq = s->iq, .block_pages = state->block_pages, .score = s->score,
               .score_stride = s->score_stride, .n_tokens = b->T, .pos0 = pos0,
               .idx_heads = c->idx_heads, .idx_dim = c->idx_dim, .ratio = c->idx_ratio,
               .budget = c->idx_budget));
    ST_TRY(ADD(b, qsa_topk, .score = s->score, .ids = s->cells, .n_ids = s->n_cells,
               .score_stride = s->score_stride, .ids_stride = c->idx_budget + c->idx_ratio - 1,
               .n_tokens = b->T, .pos0 = pos0, .ratio = c->idx_ratio, .budget = c->idx_budget));
  }
  ST_TRY(attend(b, state));
  return output(b, q->o, s->attn);
}

static strata_status moe_block(builder *b, const qwen4_moe *m) {
  const qwen4_config *c = b->c;
  qwen4_scratch *s = b->s;
  ST_TRY(ADD(b, linear, .x = s->x, .x_stride = c->hidden, .n_tokens = b->T, .n_outs = 2,
             .out = {project(m->router, s->router), project(m->shared_gate, s->shared_logit)}));
  ST_TRY(ADD(b, moe_route, .logits = s->router, .shared_logit = s->shared_logit,
             .expert = s->expert, .weight = s->route_weight, .shared = s->shared, .all = s->all,
             .n_tokens = b->T, .n_experts = c->n_experts, .n_used = c->n_experts_used,
             .norm_topk = c->norm_topk));
  ST_TRY(ADD(b, moe_up, .x = s->x, .gate = m->gate, .up = m->up, .expert = s->expert, .h = s->h,
             .h_shared = s->h_shared, .n_tokens = b->T, .n_experts = c->n_experts,
             .n_used = c->n_experts_used, .hidden = c->hidden, .expert_ff = c->expert_ff,
             .shared_ff = c->shared_ff));
  return ADD(b, moe_down, .h = s->h, .h_shared = s->h_shared, .weight = s->route_weight,
             .shared = s->shared, .down = m->down, .expert = s->expert, .y = s->y,
             .n_tokens = b->T, .n_experts = c->n_experts, .n_used = c->n_experts_used,
             .hidden = c->hidden, .expert_ff = c->expert_ff, .shared_ff = c->shared_ff);
}

/* The per-layer embedding reads the streams, so the block before it has to have
 * written: a norm of which only the write is wanted. */
static strata_status ple(builder *b, const qwen4_ple *p, const qwen4_layer_state *state) {
  const qwen4_config *c = b->c;
  qwen4_scratch *s = b->s;
  const int32_t heads = qwen4_ngram_heads(c);
  if (!b->written) {
    ST_TRY(ADD(b, hc_norm, .r = s->r, .y = s->y, .inject = s->inject, .inject_stride = c->hc_count,
               .gain = p->query_gain, .n = s->n,
               .mean_square = s->mean_square + (size_t)b->read * (size_t)b->T * (size_t)c->hc_count,
               .n_tokens = b->T, .n_streams = c->hc_count, .hidden = c->hidden, .eps = c->rms_eps));
    b->written = true;
  }
  ST_TRY(ADD(b, ple_embed, .ids = s->ids, .mult = p->hash.multiplier,
             .head_rows = p->hash.head_rows, .head_offset = p->hash.head_offset,
             .shards = p->shards, .e = s->ngram, .shard_rows = p->shard_rows, .n_tokens = b->T,
             .ngram_size = c->ngram_size, .heads_per_ngram = c->heads_per_ngram,
             .n_shards = p->n_shards, .width = c->ple_dim / heads, .eos = c->ple_eos));
  ST_TRY(ADD(b, linear, .x = s->ngram, .x_stride = c->ple_dim, .n_tokens = b->T, .n_outs = 2,
             .out = {project(p->key, s->key_raw), project(p->value, s->value)}));
  ST_TRY(ADD(b, ple_mix, .key_raw = s->key_raw, .val = s->value, .r = s->r,
             .key_gain = p->key_gain, .query_gain = p->query_gain, .conv_gain = p->conv_gain,
             .gv = s->gv, .nv = s->nv, .n_tokens = b->T, .n_streams = c->hc_count,
             .hidden = c->hidden, .eps = c->rms_eps));
  return ADD(b, ple_conv, .gv = s->gv, .nv = s->nv, .conv_w = p->conv,
             .history = state->ple_history, .r = s->r, .n_tokens = b->T,
             .n_channels = c->hc_count * c->hidden, .n_taps = c->ple_taps,
             .dilation = c->ngram_size);
}

/* Angles of the window's positions and of the first positions of the blocks that
 * end in it. */
static strata_status rope(builder *b) {
  const qwen4_config *c = b->c;
  qwen4_scratch *s = b->s;
  const int32_t pos0 = b->w->state->position, pairs = c->rotary_dim / 2;
  ST_TRY(ADD(b, rope_table, .inv_freq = b->w->inv_freq, .cos = s->cos, .sin = s->sin,
             .n_tokens = b->T, .pos0 = pos0, .pos_step = 1, .n_pairs = pairs));
  int32_t first = pos0 / c->idx_ratio, n_blocks = (pos0 + b->T) / c->idx_ratio - first;
  if (n_blocks == 0) return STRATA_OK;
  return ADD(b, rope_table, .inv_freq = b->w->inv_freq, .cos = s->block_cos, .sin = s->block_sin,
             .n_tokens = n_blocks, .pos0 = first * c->idx_ratio, .pos_step = c->idx_ratio,
             .n_pairs = pairs);
}

int32_t qwen4_plan_capacity(const qwen4_config *c) { return 18 * c->n_layers + 6 * c->n_ple + 16; }

strata_status qwen4_plan_layers(const qwen4_window *w, st_plan *plan, strata_error *err) {
  const qwen4_config *c = w->config;
  qwen4_scratch *s = w->scratch;
  builder b = {.w = w, .c = c, .s = s, .plan = plan, .err = err, .T = w->n_tokens, .layer = -1,
               .written = true};
  ST_TRY(ADD(&b, embed, .ids = s->ids + (c->n_ple ? c->ngram_size - 1 : 0),
             .table = w->weights->embed, .r = s->r, .n_tokens = b.T, .n_streams = c->hc_count));
  if (c->n_qsa_layers) ST_TRY(rope(&b));
  for (b.layer = 0; b.layer < c->n_layers; ++b.layer) {
    const qwen4_layer *layer = &w->weights->layers[b.layer];
    const qwen4_layer_state *state = &w->state->layers[b.layer];
    if (layer->ple) ST_TRY(ple(&b, layer->ple, state));
    ST_TRY(begin_block(&b, &layer->attn_hc));
    if (c->layer_kind[b.layer] == QWEN4_GDN) ST_TRY(gdn_block(&b, &layer->gdn, state));
    else ST_TRY(qsa_block(&b, &layer->qsa, state));
    ST_TRY(begin_block(&b, &layer->mlp_hc));
    ST_TRY(moe_block(&b, &layer->moe));
  }
  return STRATA_OK;
}

strata_status qwen4_plan_logits(const qwen4_window *w, int32_t first, int32_t count, float *logits,
                                st_plan *plan, strata_error *err) {
  const qwen4_config *c = w->config;
  builder b = {.w = w, .c = c, .s = w->scratch, .plan = plan, .err = err, .T = count, .layer = -1,
               .read = 2 * c->n_layers};
  ST_TRY(read_streams(&b, &w->weights->final_hc, first, count));
  return ADD(&b, linear, .x = w->scratch->x + (size_t)first * (size_t)c->hidden,
             .x_stride = c->hidden, .n_tokens = count, .n_outs = 1,
             .out = {project(w->weights->lm_head, logits)});
}
