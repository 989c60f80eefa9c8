/* The shared functions of the exact class against the C library in double
 * precision, and every CPU level against one lane, bit for bit.
 *
 *   test_math [--stride N] [--threads N]
 *
 * Each function sees all 2^32 floats, or every Nth; what lies around zero, one,
 * infinity and the ends of the number ranges is always among them. Results come
 * as TAP. Not a cmocka program: one case takes minutes and uses all CPUs.
 *
 * A result is right within 2 ulp of the true value; one that is made for fp16 within 0.01
 * ulp of fp16, so that the half is within 0.51. The ulp of a number is that of the binade it
 * lies in, 2^-149 at least (2^-24 of fp16). Infinity is right where the
 * true value rounds to it, and nowhere else; a zero must have the sign of the
 * true value. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/k_math.h"
#include "math_lanes.h"
#include "os/st_cpu.h"

enum { BLOCK = 4096, THREADS_MAX = 64 };

/* What a result's distance to the truth is measured in. */
typedef struct unit {
  const char *bound_text;
  double bound; /* ulp */
  int n_fraction, least_exponent;
} unit;
static const unit float_unit = {"within 2 ulp", 2.0, 23, -126},
                  half_unit = {"within 0.01 ulp of fp16", 0.01, 10, -14};

/* ---- truth ----------------------------------------------------------------- */

static double true_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
/* The limit at -infinity, where the formula is inf / inf. */
static double true_silu(double x) { return x == -INFINITY ? -0.0 : x / (1.0 + exp(-x)); }
static double true_softplus(double x) { return x > 700 ? x : log1p(exp(x)); }
static double true_rsqrt(double x) { return 1.0 / sqrt(x); }

static const struct {
  const char *name;
  double (*truth)(double x);
  const unit *unit;
} functions[MATH_FUNCTIONS] = {
    [MATH_exp] = {"exp", exp, &float_unit},
    [MATH_log1p] = {"log1p", log1p, &float_unit},
    [MATH_sigmoid] = {"sigmoid", true_sigmoid, &float_unit},
    [MATH_silu] = {"silu", true_silu, &float_unit},
    [MATH_silu_half] = {"silu_half", true_silu, &half_unit},
    [MATH_softplus] = {"softplus", true_softplus, &float_unit},
    [MATH_rsqrt] = {"rsqrt", true_rsqrt, &float_unit},
    [MATH_sin] = {"sin", sin, &float_unit},
    [MATH_cos] = {"cos", cos, &float_unit},
};

static const struct {
  const char *name;
  const math_level *level;
} levels[] = {
#if defined(__x86_64__)
    {"avx512", &math_level_avx512},
    {"avx2", &math_level_avx2},
#elif defined(__aarch64__)
    {"neon", &math_level_neon},
#endif
    {"scalar", &math_level_scalar},
};
enum { LEVELS = sizeof levels / sizeof levels[0] };

static bool has_level(int i) { return st_cpu_has((st_cpu_level)st_cpu_level_by_name(levels[i].name)); }

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* How far got is from want in the unit's ulp of want; infinite if they differ in kind. */
static double ulps(const unit *u, float got, double want) {
  const double overflow = 0x1.ffffffp127; /* from here a double rounds to inf */
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
  if (isinf(got)) return fabs(want) >= overflow && !signbit(got) == !signbit(want) ? 0 : INFINITY;
  if (isinf(want)) return INFINITY;
  if (got == 0 && !signbit(got) != !signbit(want)) return INFINITY;
  uint64_t bits;
  memcpy(&bits, &want, sizeof bits);
  int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  if (exponent < u->least_exponent) exponent = u->least_exponent;
  bits = (uint64_t)(1023 - (exponent - u->n_fraction)) << 52; /* 1 / ulp */
  double scale;
  memcpy(&scale, &bits, sizeof scale);
  return fabs((double)got - want) * scale;
}

/* ---- inputs ---------------------------------------------------------------- */

static uint64_t stride = 1;

/* 16 floats on both sides of each of these come first. */
static const uint32_t edges[] = {
    0x00000000, 0x80000000, 0x00800000, 0x80800000, /* zeros, least normal numbers */
    0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, /* infinities, NaNs */
    0x3f800000, 0xbf800000, 0x3f000000, 0xbf000000, /* 1, 1/2 */
    0x42b17218, 0xc2cff1b5, 0xc2aeac50, 0x41a00000, /* ends of exp; 20 */
    0x477fe000, 0x477ff000, 0x38800000, 0x33000000, /* ends of fp16 */
};
enum { EDGES = sizeof edges / sizeof edges[0], AROUND = 16 };

static uint64_t n_inputs(void) {
  return EDGES * 2 * AROUND + (((uint64_t)1 << 32) + stride - 1) / stride;
}

static uint32_t input(uint64_t i) {
  const uint64_t n = EDGES * 2 * AROUND;
  if (i < n) return edges[i / (2 * AROUND)] + (uint32_t)(i % (2 * AROUND)) - AROUND;
  uint64_t bits = (i - n) * stride;
  return (uint32_t)bits; /* the last block runs over the end and begins anew */
}

/* ---- parallel blocks ------------------------------------------------------- */

typedef struct finding {
  uint64_t n_bad, n_payload; /* wrong results; NaNs that differ in payload only */
  uint32_t first_bad, worst_at;
  double worst;
} finding;

enum { FINDINGS = 1 + LEVELS }; /* against the truth, and at each level */

typedef void check_block(int function, const uint32_t *bits, finding *out);

typedef struct job {
  check_block *check;
  int function;
  atomic_uint_fast64_t next;
} job;

typedef struct worker {
  job *job;
  pthread_t thread;
  finding findings[FINDINGS];
} worker;

static void *work(void *arg) {
  worker *w = arg;
  uint64_t n_blocks = (n_inputs() + BLOCK - 1) / BLOCK, block;
  uint32_t bits[BLOCK];
  while ((block = atomic_fetch_add(&w->job->next, 1)) < n_blocks) {
    for (uint64_t i = 0; i < BLOCK; ++i) bits[i] = input(block * BLOCK + i);
    w->job->check(w->job->function, bits, w->findings);
  }
  return NULL;
}

static void add_bad(finding *f, uint32_t bits) {
  if (!f->n_bad++) f->first_bad = bits;
}

static void add_finding(finding *sum, const finding *f) {
  if (f->n_bad && !sum->n_bad) sum->first_bad = f->first_bad;
  sum->n_bad += f->n_bad;
  sum->n_payload += f->n_payload;
  if (f->worst > sum->worst) {
    sum->worst = f->worst;
    sum->worst_at = f->worst_at;
  }
}

static void run(check_block *check, int function, int n_threads, finding sums[FINDINGS]) {
  static worker workers[THREADS_MAX];
  job shared = {.check = check, .function = function};
  memset(sums, 0, FINDINGS * sizeof *sums);
  for (int i = 0; i < n_threads; ++i) {
    workers[i] = (worker){.job = &shared};
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
      perror("test_math: pthread_create");
      exit(1);
    }
  }
  for (int i = 0; i < n_threads; ++i) {
    pthread_join(workers[i].thread, NULL);
    for (int k = 0; k < FINDINGS; ++k) add_finding(&sums[k], &workers[i].findings[k]);
  }
}

/* ---- checks ---------------------------------------------------------------- */

static int best_level; /* the first of levels[] that this CPU has */

static void compare(const uint32_t *bits, const float *want, const float *got, finding *out) {
  if (memcmp(want, got, BLOCK * sizeof *want) == 0) return;
  for (int i = 0; i < BLOCK; ++i) {
    if (bits_of(want[i]) == bits_of(got[i])) continue;
    if (isnan(want[i]) && isnan(got[i]))
      ++out->n_payload;
    else
      add_bad(out, bits[i]);
  }
}

/* One lane at the best level is held against the truth, and everything else
 * against its bits. */
static void check_function(int function, const uint32_t *bits, finding *out) {
  float x[BLOCK], want[BLOCK], got[BLOCK];
  memcpy(x, bits, sizeof x);
  levels[best_level].level->one[function](x, want, BLOCK);
  for (int i = 0; i < BLOCK; ++i) {
    double distance = ulps(functions[function].unit, want[i], functions[function].truth((double)x[i]));
    if (distance > functions[function].unit->bound) add_bad(out, bits[i]);
    if (distance > out->worst) {
      out->worst = distance;
      out->worst_at = bits[i];
    }
  }
  for (int i = best_level; i < LEVELS; ++i) {
    const math_level *level = levels[i].level;
    /* A vector of one lane is one lane: not twice. */
    if (i != best_level && (level->width > 1 || !level->lanes[function])) {
      level->one[function](x, got, BLOCK);
      compare(bits, want, got, &out[1 + i]);
    }
    if (level->lanes[function]) {
      level->lanes[function](x, got, BLOCK);
      compare(bits, want, got, &out[1 + i]);
    }
  }
}

/* To fp16 by exact steps in double precision: the value in units of the last
 * kept bit, rounded to even by rint. */
static uint32_t true_half(float x) {
  uint32_t sign = bits_of(x) >> 16 & 0x8000;
  double size = fabs((double)x);
  if (isnan(x)) return sign | 0x7e00 | (bits_of(x) >> 13 & 0x3ff);
  if (size >= 65520.0) return sign | 0x7c00;
  int exponent;
  (void)frexp(size, &exponent);
  if (exponent < -13 || size == 0) exponent = -13; /* subnormal halfs: units of 2^-24 */
  double units = rint(ldexp(size, 11 - exponent));
  return sign | (uint32_t)((exponent + 13) * 1024 + (int)units);
}

static void check_to_half(int function, const uint32_t *bits, finding *out) {
  (void)function;
  for (int i = 0; i < BLOCK; ++i) {
    float x = float_of(bits[i]);
    if (ks_to_half(x) != true_half(x)) add_bad(out, bits[i]);
  }
}

static double true_from(uint32_t h, int n_fraction, int bias) {
  int exponent = (int)((h & 0x7fff) >> n_fraction), top = 0x7fff >> n_fraction;
  int fraction = (int)(h & ((1u << n_fraction) - 1));
  double size;
  if (exponent == top)
    size = fraction ? NAN : INFINITY;
  else if (exponent == 0)
    size = ldexp(fraction, 1 - bias - n_fraction);
  else
    size = ldexp(fraction + (1 << n_fraction), exponent - bias - n_fraction);
  return h & 0x8000 ? -size : size;
}

static bool same_value(float got, double want) {
  if (isnan(want)) return isnan(got);
  return (double)got == want && !signbit(got) == !signbit(want);
}

/* ---- report ---------------------------------------------------------------- */

static int n_cases, n_failed;

static void report(const char *name, const char *what, const finding *f, bool with_worst) {
  printf("%s %d - %s %s", f->n_bad ? "not ok" : "ok", ++n_cases, name, what);
  if (with_worst) printf(", worst %.4f at 0x%08x", f->worst, (unsigned)f->worst_at);
  putchar('\n');
  if (f->n_bad) {
    printf("# %llu wrong, the first at 0x%08x (%.9g)\n", (unsigned long long)f->n_bad,
           (unsigned)f->first_bad, (double)float_of(f->first_bad));
    ++n_failed;
  }
  if (f->n_payload)
    printf("# %llu NaN results differ in sign or payload\n", (unsigned long long)f->n_payload);
  fflush(stdout);
}

static void test_functions(int n_threads) {
  finding f[FINDINGS];
  for (int function = 0; function < MATH_FUNCTIONS; ++function) {
    run(check_function, function, n_threads, f);
    report(functions[function].name, functions[function].unit->bound_text, &f[0], true);
    for (int i = best_level; i < LEVELS; ++i) {
      char what[64];
      /* At the best level sin and cos have nothing to be compared with. */
      if (i == best_level && !levels[i].level->lanes[function]) continue;
      snprintf(what, sizeof what, "has the same bits at level %s", levels[i].name);
      report(functions[function].name, what, &f[1 + i], false);
    }
  }
}

static void test_conversions(int n_threads) {
  finding up = {0}, bf16 = {0}, down[FINDINGS];
  run(check_to_half, 0, n_threads, down);
  report("float", "to fp16", &down[0], false);
  for (uint32_t h = 0; h < 0x10000; ++h) {
    if (!same_value(ks_from_half(h), true_from(h, 10, 15))) add_bad(&up, h);
    if (!same_value(ks_from_bf16(h), true_from(h, 7, 127))) add_bad(&bf16, h);
    /* There and back is the same half; a NaN comes back quiet. */
    uint32_t quiet = (h & 0x7fff) > 0x7c00 ? 0x200 : 0;
    if (ks_to_half(ks_from_half(h)) != (h | quiet)) add_bad(&up, h);
  }
  report("fp16", "to float", &up, false);
  report("bf16", "to float", &bf16, false);
}

static bool read_option(int argc, char **argv, int *i, const char *name, uint64_t max,
                        uint64_t *out) {
  if (strcmp(argv[*i], name) != 0) return false;
  char *end = NULL;
  unsigned long long value = ++*i < argc ? strtoull(argv[*i], &end, 10) : 0;
  if (value < 1 || value > max || *end) {
    fprintf(stderr, "test_math: %s: a whole number from 1 to %llu expected\n", name,
            (unsigned long long)max);
    exit(2);
  }
  *out = value;
  return true;
}

int main(int argc, char **argv) {
  uint64_t n_threads = (uint64_t)st_cpu_count();
  for (int i = 1; i < argc; ++i)
    if (!read_option(argc, argv, &i, "--stride", (uint64_t)1 << 31, &stride) &&
        !read_option(argc, argv, &i, "--threads", THREADS_MAX, &n_threads)) {
      fprintf(stderr, "usage: test_math [--stride N] [--threads N]\n");
      return 2;
    }
  if (n_threads > THREADS_MAX) n_threads = THREADS_MAX;
  while (!has_level(best_level)) ++best_level;
  test_functions((int)n_threads);
  test_conversions((int)n_threads);
  printf("1..%d\n", n_cases);
  return n_failed ? 1 : 0;
}
