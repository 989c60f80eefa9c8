/* Filling, running and comparing the buffers of one kernel run. */
#include "lab/lab_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/st_mem.h"

enum { PARTS_A_THREAD = 4, TINY_STRETCH = 256 };

uint64_t lab_random(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* Bits of the half nearest to x, of two the even one. */
static uint16_t nearest_half(double x) {
  const double size = fabs(x);
  const uint16_t sign = signbit(x) ? 0x8000 : 0;
  int exponent;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14) return (uint16_t)(sign | (int)nearbyint(ldexp(size, 24)));
  frexp(size, &exponent); /* size is in [2^(exponent - 1), 2^exponent) */
  return (uint16_t)(sign | (((exponent + 13) << 10) + (int)nearbyint(ldexp(size, 11 - exponent))));
}

void lab_number_put(void *numbers, stk_dtype dtype, size_t i, double value) {
  uint8_t *data = numbers;
  float f = (float)value;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  switch (dtype) {
    case STK_F32: memcpy(data + 4 * i, &f, 4); break;
    case STK_BF16: memcpy(data + 2 * i, &(uint16_t){(uint16_t)(bits >> 16)}, 2); break;
    case STK_F16: memcpy(data + 2 * i, &(uint16_t){nearest_half(value)}, 2); break;
    case STK_I32: memcpy(data + 4 * i, &(int32_t){(int32_t)value}, 4); break;
    case STK_I64: memcpy(data + 8 * i, &(int64_t){(int64_t)value}, 8); break;
    case STK_U8: data[i] = (uint8_t)value; break;
  }
}

/* What makes a number of about 1 subnormal; 1: nothing does. */
static double tiny_factor(stk_dtype dtype) {
  return dtype == STK_F32 || dtype == STK_BF16 ? 0x1p-130 : dtype == STK_F16 ? 0x1p-18 : 1;
}

/* Element i of a tensor that may hold 0 is subnormal in every fourth stretch of them: in
 * all of a row, or its sums would hide them. */
static bool is_tiny(const stk_tensor *tensor, size_t i) {
  return tiny_factor(tensor->dtype) != 1 && tensor->low <= 0 && tensor->high >= 0 && i / TINY_STRETCH % 4 == 1;
}

static void fill(const stk_tensor *tensor, const lab_fill *how, uint64_t *random, const st_guarded *b) {
  memset(b->front, how->guard, b->front_bytes);
  memset(b->back, how->guard, b->back_bytes);
  if (tensor->role == STK_OUT) memset(b->data, how->poison, b->n_bytes);
  else if (tensor->fill == STK_FILL_NONE) memset(b->data, 0, b->n_bytes);
  if (tensor->fill == STK_FILL_UNREAD) memset(b->data, how->unread, b->n_bytes);
  bool random_values = tensor->fill == STK_FILL_UNIFORM || tensor->fill == STK_FILL_INDEX;
  for (size_t i = 0; i < tensor->n && random_values; ++i) {
    double unit = (double)(lab_random(random) >> 11) / 9007199254740992.0;
    double value = tensor->low + unit * (tensor->high - tensor->low);
    if (how->tiny && is_tiny(tensor, i)) value *= tiny_factor(tensor->dtype);
    lab_number_put(b->data, tensor->dtype, i, tensor->fill == STK_FILL_INDEX ? floor(value) : value);
  }
}

void lab_case_refill(lab_case *c, const void *shape, lab_fill how) {
  uint64_t random = how.seed;
  c->fill = how;
  memcpy(c->args, shape, c->op->args_bytes);
  for (int32_t i = 0; i < c->n; ++i) {
    fill(&c->tensors[i], &how, &random, &c->buffers[i]);
    *c->tensors[i].slot = c->buffers[i].data;
  }
  if (c->op->prepare) c->op->prepare(c->args, random);
}

strata_status lab_case_init(lab_case *c, const stk_op *op, const void *shape, lab_fill how,
                            strata_error *err) {
  strata_status status = STRATA_OK;
  *c = (lab_case){.op = op};
  const char *wrong = op->check(shape);
  if (wrong) ST_FAIL(err, UNSUPPORTED, "%s", wrong);
  ST_TRY_OUT(st_calloc(&c->args, 1, op->args_bytes, "a test case", err));
  memcpy(c->args, shape, op->args_bytes);
  int32_t n = op->tensors(c->args, c->tensors);
  for (; c->n < n; ++c->n) {
    const stk_tensor *tensor = &c->tensors[c->n];
    ST_TRY_OUT(st_guarded_new(&c->buffers[c->n], tensor->n * stk_dtype_bytes(tensor->dtype), LAB_GUARD_BYTES,
                              tensor->name, err));
  }
  lab_case_refill(c, shape, how);
out:
  if (status != STRATA_OK) lab_case_release(c);
  return status;
}

void lab_case_release(lab_case *c) {
  for (int32_t i = 0; i < STK_TENSORS_MAX; ++i) st_guarded_free(&c->buffers[i]);
  st_free(c->args);
  *c = (lab_case){0};
}

void lab_case_run(lab_case *c, const stk_kernel *kernel, int32_t n_parts) {
  for (int32_t part = n_parts; part-- > 0;) kernel->run(c->args, part, n_parts);
}

static strata_status run_on_cpu(const void *self, lab_case *c, int32_t n_parts, strata_error *err) {
  (void)err;
  lab_case_close_inputs(c);
  lab_case_run(c, self, n_parts);
  lab_case_open_inputs(c);
  return STRATA_OK;
}

lab_runner lab_runner_of(const stk_kernel *kernel) { return (lab_runner){run_on_cpu, kernel}; }

int32_t lab_case_parts(const lab_case *c, int32_t n_threads) {
  stk_param params[STK_PARAMS_MAX];
  int32_t n = c->op->params ? c->op->params(c->args, params) : 0;
  for (int32_t i = 0; i < n; ++i)
    if (strcmp(params[i].name, "T") == 0 && stk_param_get(&params[i]) > 1) return n_threads * PARTS_A_THREAD;
  return n_threads;
}

static void let_write_inputs(lab_case *c, bool allowed) {
  for (int32_t i = 0; i < c->n; ++i)
    if (c->tensors[i].role == STK_IN) st_guarded_let_write(&c->buffers[i], allowed);
}

void lab_case_close_inputs(lab_case *c) { let_write_inputs(c, false); }
void lab_case_open_inputs(lab_case *c) { let_write_inputs(c, true); }

/* The first of n bytes that is not value; n if there is none. */
static size_t first_other(const uint8_t *bytes, size_t n, uint8_t value) {
  size_t i = 0;
  while (i < n && bytes[i] == value) ++i;
  return i;
}

/* Looks around tensor b; true if something was written there. */
static bool find_outside(const st_guarded *b, uint8_t guard, lab_difference *d) {
  size_t before = first_other(b->front, b->front_bytes, guard);
  size_t behind = first_other(b->back, b->back_bytes, guard);
  if (before == b->front_bytes && behind == b->back_bytes) return false;
  d->word = LAB_OUTSIDE;
  d->before = before < b->front_bytes;
  d->first = d->before ? b->front_bytes - before : behind;
  d->count = 1;
  return true;
}

static double half_value(uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  double x = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  if (exponent == 31) x = fraction ? NAN : INFINITY;
  return half & 0x8000 ? -x : x;
}

double lab_number_get(const void *numbers, stk_dtype dtype, size_t i) {
  const uint8_t *data = numbers;
  float f;
  uint16_t half;
  if (dtype == STK_F32) {
    memcpy(&f, data + 4 * i, sizeof f);
    return (double)f;
  }
  memcpy(&half, data + 2 * i, sizeof half);
  return half_value(half);
}

/* Distances between the numbers of two tensors; *odd counts elements that are finite
 * in one only, *first is the first of them. */
static void measure(const stk_tensor *tensor, const st_guarded *want, const st_guarded *got,
                    lab_difference *d, size_t *odd, size_t *first) {
  double error = 0, size = 0;
  *odd = 0;
  for (size_t i = 0; i < tensor->n; ++i) {
    double x = lab_number_get(want->data, tensor->dtype, i), y = lab_number_get(got->data, tensor->dtype, i);
    if (isfinite(x) && isfinite(y)) {
      error += (x - y) * (x - y);
      size += x * x;
      d->max_abs = fmax(d->max_abs, fabs(x - y));
    } else if (isfinite(x) || isfinite(y)) {
      if ((*odd)++ == 0) *first = i;
    }
  }
  if (error > 0) d->rel_l2 = sqrt(error / size);
}

/* All bytes of element i are value. */
static bool all_bytes(const st_guarded *b, size_t elem, size_t i, uint8_t value) {
  return first_other(b->data + i * elem, elem, value) == elem;
}

/* Says which kind of difference the differing elements are of. */
static void classify(const lab_case *want, const lab_case *got, int32_t i, lab_difference *d) {
  const stk_tensor *tensor = &got->tensors[i];
  const st_guarded *w = &want->buffers[i], *g = &got->buffers[i];
  const size_t elem = stk_dtype_bytes(tensor->dtype);
  const bool numbers = tensor->dtype == STK_F32 || tensor->dtype == STK_F16;
  size_t n_poison = 0, n_nan = 0;
  for (size_t e = 0; e < tensor->n; ++e) {
    if (memcmp(w->data + e * elem, g->data + e * elem, elem) == 0) continue;
    if (d->count++ == 0) d->first = e;
    n_poison += all_bytes(g, elem, e, got->fill.poison);
    n_nan += numbers && isnan(lab_number_get(g->data, tensor->dtype, e)) && !isnan(lab_number_get(w->data, tensor->dtype, e));
  }
  d->word = LAB_WRONG_BYTES;
  if (n_nan == d->count) d->word = LAB_NOT_A_NUMBER;
  if (tensor->role == STK_OUT && n_poison == d->count) d->word = LAB_UNWRITTEN;
}

lab_difference lab_case_compare_tensor(const lab_case *want, const lab_case *got, int32_t i,
                                       double bound) {
  const stk_tensor *tensor = &got->tensors[i];
  const st_guarded *w = &want->buffers[i], *g = &got->buffers[i];
  const bool numbers = tensor->dtype == STK_F32 || tensor->dtype == STK_F16;
  lab_difference d = {.tensor = tensor->name, .n = tensor->n};
  size_t odd = 0, first_odd = 0;
  if (find_outside(g, got->fill.guard, &d)) return d;
  if (tensor->dtype == STK_U8 || w->n_bytes == 0 || memcmp(w->data, g->data, w->n_bytes) == 0) return d;
  if (numbers) measure(tensor, w, g, &d, &odd, &first_odd);
  if (numbers && bound > 0 && tensor->role != STK_IN) {
    if (odd == 0 && d.rel_l2 <= bound) return d;
    d.word = LAB_BEYOND_BOUND;
    d.count = odd;
    d.first = first_odd;
    return d;
  }
  classify(want, got, i, &d);
  return d;
}

static lab_difference first_difference(const lab_case *want, const lab_case *got, double bound) {
  for (int32_t i = 0; i < got->n; ++i) {
    lab_difference d = lab_case_compare_tensor(want, got, i, bound);
    if (d.word != LAB_EQUAL) return d;
  }
  return (lab_difference){0};
}

lab_difference lab_case_compare(const lab_case *want, const lab_case *got) {
  return first_difference(want, got, 0);
}

lab_difference lab_case_compare_fast(lab_case *want, lab_case *got) {
  if (want->op->settle) {
    want->op->settle(want->args);
    want->op->settle(got->args);
  }
  return first_difference(want, got, want->op->fast_bound);
}

void lab_difference_describe(const lab_difference *d, double bound, char *text, size_t n_bytes) {
  switch (d->word) {
    case LAB_OUTSIDE:
      snprintf(text, n_bytes, "wrote outside %s, %zu bytes %s", d->tensor, d->first,
               d->before ? "before its start" : "past its end");
      break;
    case LAB_BEYOND_BOUND:
      if (d->count)
        snprintf(text, n_bytes, "%s is not finite where it should be, or the reverse, first at %zu, %zu of %zu",
                 d->tensor, d->first, d->count, d->n);
      else
        snprintf(text, n_bytes, "%s differs by relative L2 %.3g, at most %g expected", d->tensor,
                 d->rel_l2, bound);
      break;
    case LAB_UNWRITTEN:
      snprintf(text, n_bytes, "%s is unwritten, first at %zu, %zu of %zu", d->tensor, d->first,
               d->count, d->n);
      break;
    case LAB_NOT_A_NUMBER:
      snprintf(text, n_bytes, "%s is NaN, first at %zu, %zu of %zu", d->tensor, d->first, d->count, d->n);
      break;
    case LAB_WRONG_BYTES:
    case LAB_EQUAL:
      snprintf(text, n_bytes, "%s differs, first at %zu, %zu of %zu, at most %.3g", d->tensor,
               d->first, d->count, d->n, d->max_abs);
      break;
  }
}
