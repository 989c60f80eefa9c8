/* Filling, running and comparing the buffers of one kernel run. */
#include "lab/lab_case.h"

#include <math.h>
#include <string.h>

#include "core/st_mem.h"

enum { GUARD_BYTE = 0x5e };

uint64_t lab_random(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static void put_value(uint8_t *data, size_t i, stk_dtype dtype, double value) {
  float f = (float)value;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  switch (dtype) {
    case STK_F32: memcpy(data + 4 * i, &f, 4); break;
    case STK_BF16: memcpy(data + 2 * i, &(uint16_t){(uint16_t)(bits >> 16)}, 2); break;
    case STK_F16: {
      /* Any finite half will do: sign, a small exponent, random fraction. */
      uint16_t half = (uint16_t)((bits >> 16 & 0x8000) | (0x2c00 + (bits >> 8 & 0x13ff)));
      memcpy(data + 2 * i, &half, 2);
      break;
    }
    case STK_I32: memcpy(data + 4 * i, &(int32_t){(int32_t)value}, 4); break;
    case STK_I64: memcpy(data + 8 * i, &(int64_t){(int64_t)value}, 8); break;
    case STK_U8: data[i] = (uint8_t)value; break;
  }
}

static strata_status fill(const stk_tensor *tensor, uint64_t *random, int poison, lab_buffer *b,
                          strata_error *err) {
  void *memory;
  b->n_bytes = tensor->n * stk_dtype_bytes(tensor->dtype);
  ST_TRY(st_calloc_aligned(&memory, b->n_bytes + 2 * LAB_GUARD_BYTES, 1, tensor->name, err));
  b->memory = memory;
  b->data = b->memory + LAB_GUARD_BYTES;
  memset(b->memory, GUARD_BYTE, b->n_bytes + 2 * LAB_GUARD_BYTES);
  if (tensor->role == STK_OUT) memset(b->data, poison, b->n_bytes);
  for (size_t i = 0; i < tensor->n && tensor->fill != STK_FILL_NONE; ++i) {
    double unit = (double)(lab_random(random) >> 11) / 9007199254740992.0;
    double value = tensor->low + unit * (tensor->high - tensor->low);
    put_value(b->data, i, tensor->dtype, tensor->fill == STK_FILL_INDEX ? floor(value) : value);
  }
  return STRATA_OK;
}

strata_status lab_case_init(lab_case *c, const stk_op *op, const void *shape, uint64_t seed,
                            int poison, strata_error *err) {
  strata_status status = STRATA_OK;
  *c = (lab_case){.op = op};
  const char *wrong = op->check(shape);
  if (wrong) ST_FAIL(err, UNSUPPORTED, "%s", wrong);
  ST_TRY_OUT(st_calloc(&c->args, 1, op->args_bytes, "a test case", err));
  memcpy(c->args, shape, op->args_bytes);
  int32_t n = op->tensors(c->args, c->tensors);
  for (; c->n < n; ++c->n) {
    ST_TRY_OUT(fill(&c->tensors[c->n], &seed, poison, &c->buffers[c->n], err));
    *c->tensors[c->n].slot = c->buffers[c->n].data;
  }
  if (op->prepare) op->prepare(c->args, seed);
out:
  if (status != STRATA_OK) lab_case_release(c);
  return status;
}

void lab_case_release(lab_case *c) {
  for (int32_t i = 0; i < c->n; ++i) st_free(c->buffers[i].memory);
  st_free(c->args);
  *c = (lab_case){0};
}

void lab_case_run(lab_case *c, const stk_kernel *kernel, int32_t n_parts) {
  for (int32_t part = n_parts; part-- > 0;) kernel->run(c->args, part, n_parts);
}

static bool guards_intact(const lab_buffer *b) {
  for (size_t i = 0; i < LAB_GUARD_BYTES; ++i)
    if (b->memory[i] != GUARD_BYTE || b->data[b->n_bytes + i] != GUARD_BYTE) return false;
  return true;
}

static lab_difference compare(const stk_tensor *tensor, const lab_buffer *want,
                              const lab_buffer *got) {
  lab_difference d = {.tensor = tensor->name, .n = tensor->n};
  const size_t elem = stk_dtype_bytes(tensor->dtype);
  for (size_t i = 0; i < tensor->n; ++i) {
    if (memcmp(want->data + i * elem, got->data + i * elem, elem) == 0) continue;
    if (d.count++ == 0) d.first = i;
    if (tensor->dtype != STK_F32) continue;
    float x, y;
    memcpy(&x, want->data + i * elem, sizeof x);
    memcpy(&y, got->data + i * elem, sizeof y);
    d.max_abs = fmax(d.max_abs, fabs((double)x - y));
  }
  return d;
}

static double half_value(uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  double x = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  if (exponent == 31) x = fraction ? NAN : INFINITY;
  return half & 0x8000 ? -x : x;
}

/* Element i of an f32 or f16 tensor. */
static double number(const lab_buffer *b, stk_dtype dtype, size_t i) {
  float f;
  uint16_t half;
  if (dtype == STK_F32) {
    memcpy(&f, b->data + 4 * i, sizeof f);
    return (double)f;
  }
  memcpy(&half, b->data + 2 * i, sizeof half);
  return half_value(half);
}

static lab_difference compare_within(const stk_tensor *tensor, const lab_buffer *want,
                                     const lab_buffer *got, double bound) {
  lab_difference d = {.n = tensor->n};
  double error = 0, size = 0;
  for (size_t i = 0; i < tensor->n; ++i) {
    double x = number(want, tensor->dtype, i), y = number(got, tensor->dtype, i);
    if (isfinite(x) && isfinite(y)) {
      error += (x - y) * (x - y);
      size += x * x;
      d.max_abs = fmax(d.max_abs, fabs(x - y));
    } else if (isfinite(x) || isfinite(y)) {
      if (d.count++ == 0) d.first = i;
    }
  }
  if (error > 0) d.rel_l2 = sqrt(error / size);
  if (d.count || d.rel_l2 > bound) d.tensor = tensor->name;
  return d;
}

/* fast_bound: NULL for a comparison of bytes. */
static lab_difference compare_all(const lab_case *want, const lab_case *got,
                                  const double *fast_bound) {
  for (int32_t i = 0; i < got->n; ++i) {
    const stk_tensor *tensor = &got->tensors[i];
    const lab_buffer *w = &want->buffers[i], *g = &got->buffers[i];
    if (!guards_intact(g)) return (lab_difference){.tensor = tensor->name, .guard = true};
    if (tensor->dtype == STK_U8 || memcmp(w->data, g->data, w->n_bytes) == 0) continue;
    bool within = fast_bound && tensor->role != STK_IN &&
                  (tensor->dtype == STK_F32 || tensor->dtype == STK_F16);
    lab_difference d = within ? compare_within(tensor, w, g, *fast_bound) : compare(tensor, w, g);
    if (d.tensor) return d;
  }
  return (lab_difference){0};
}

lab_difference lab_case_compare(const lab_case *want, const lab_case *got) {
  return compare_all(want, got, NULL);
}

lab_difference lab_case_compare_fast(lab_case *want, lab_case *got) {
  if (want->op->settle) {
    want->op->settle(want->args);
    want->op->settle(got->args);
  }
  return compare_all(want, got, &want->op->fast_bound);
}
