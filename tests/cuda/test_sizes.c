/* The GPU kernels, emulated, at sizes that nobody chose: drawn at random from what the
 * ops take, compared with the oracle. Where a kernel and its plan cut a window
 * differently, or a count does not come out even, it shows here. LONG_TESTS in the
 * environment: ten times as many. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

#include "common/k_cache.h"
#include "gdn_pre/gdn_pre.h"
#include "kreg/st_kreg.h"
#include "lab/lab_shape.h"
#include "tests/cuda/emulated_kernels.h"

enum { SHAPES = 8, MANY_SHAPES = 80 };

typedef struct random_state {
  uint64_t state;
} random_state;

static int32_t draw(random_state *r, int32_t low, int32_t high) {
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  return low + (int32_t)((r->state >> 33) % (uint64_t)(high - low + 1));
}

static void put(lab_settings *s, const stk_op *op, const char *name, int32_t value) {
  strata_error err;
  if (lab_op_has_param(op, name) && lab_settings_put(s, name, value, &err) != STRATA_OK) fail_msg("%s", err.message);
}

/* Sizes of every parameter that an op has. One window in eight is long, of few and small
 * heads. */
static void draw_sizes(random_state *r, const stk_op *op, lab_settings *s) {
  const int is_long = draw(r, 0, 7) == 0, most = is_long ? 1 : 3;
  const int32_t k_heads = draw(r, 1, most), kv_heads = draw(r, 1, most), ratio = draw(r, 1, 4);
  *s = (lab_settings){0};
  put(s, op, "T", is_long ? draw(r, 255, 530) : draw(r, 1, 40));
  put(s, op, "pos0", draw(r, 0, draw(r, 0, 1) ? 7 : 700));
  put(s, op, "Hk", k_heads);
  /* gdn_post, which is quick, has blocks of 16 heads. */
  put(s, op, "Hv", k_heads * draw(r, 1, op == st_kreg_op(ST_OP_gdn_post) ? 8 : most));
  put(s, op, "Dk", 32 * draw(r, 1, is_long ? 1 : 8));
  put(s, op, "Dv", is_long ? 32 : draw(r, 0, 1) ? 32 * draw(r, 1, 8) : draw(r, 1, 300));
  put(s, op, "taps", draw(r, 0, 1) ? 4 : draw(r, 2, 16));
  put(s, op, "Hkv", kv_heads);
  put(s, op, "Hq", kv_heads * draw(r, 1, is_long ? 3 : 14));
  put(s, op, "D", 32 * draw(r, 1, is_long ? 1 : 8));
  put(s, op, "Hi", draw(r, 1, most));
  put(s, op, "Di", 32 * draw(r, 1, is_long ? 1 : 4));
  put(s, op, "pairs", draw(r, 1, 16));
  put(s, op, "r", ratio);
  put(s, op, "B", ratio * draw(r, 1, draw(r, 0, 1) ? 8 : 150));
  put(s, op, "kv", draw(r, 0, STK_KV_KINDS - 1));
  put(s, op, "list_all", draw(r, 0, 1));
  put(s, op, "f32", draw(r, 0, 1));
  put(s, op, "f16", draw(r, 0, 1));
  put(s, op, "rows", draw(r, 0, 1));
}

/* Sizes that the op and the kernel take; they are most. */
static void draw_shape(random_state *r, const emulated *e, const stk_op *op, lab_settings *s, lab_args *args,
                       stk_cuda_launch *launch) {
  const stk_cuda_chip chip = {draw(r, 1, draw(r, 0, 1) ? 4 : 160), draw(r, 0, 1) ? 99 << 10 : 227 << 10};
  strata_error err;
  for (int tries = 0; tries < 100; ++tries) {
    draw_sizes(r, op, s);
    if (lab_args_make(op, s, args, &err) != STRATA_OK) continue;
    if (op == st_kreg_op(ST_OP_gdn_pre)) {
      stk_gdn_pre_args *a = (void *)args->bytes;
      a->kinds = draw(r, 0, 1) ? STK_GDN_ALL : draw(r, 1, STK_GDN_ALL);
    }
    if (!e->kernel->plan(args->bytes, &chip, launch)) return;
  }
  fail_msg("%s: 100 shapes in a row were refused", e->kernel->entry);
}

static void run_shape(random_state *r, const emulated *e, const stk_op *op) {
  char text[EMULATED_TEXT], sizes[256];
  stk_cuda_launch launch;
  lab_settings settings;
  lab_args shape;
  draw_shape(r, e, op, &settings, &shape, &launch);
  lab_settings_text(&settings, sizes, sizeof sizes);
  const cuda_order order = (cuda_order)draw(r, CUDA_ASCENDING, CUDA_SHUFFLED);
  emulated_compare(e, op, shape.bytes, &launch, order, (uint64_t)draw(r, 1, 1000), text);
  if (text[0]) fail_msg("%s %s: %s", sizes, launch.options, text);
}

static void test_kernel(void **state) {
  const emulated *e = *state;
  const stk_op *op = st_kreg_op((st_op)st_kreg_op_by_name(e->kernel->op));
  random_state r = {20261130};
  for (int i = 0; i < (getenv("LONG_TESTS") ? MANY_SHAPES : SHAPES); ++i) run_shape(&r, e, op);
}

int main(void) {
  struct CMUnitTest tests[N_KERNELS];
  for (int i = 0; i < N_KERNELS; ++i)
    tests[i] = (struct CMUnitTest){kernels[i].kernel->entry, test_kernel, NULL, NULL, (void *)(uintptr_t)&kernels[i]};
  return cmocka_run_group_tests_name("emulated, sizes at random", tests, NULL, NULL);
}
