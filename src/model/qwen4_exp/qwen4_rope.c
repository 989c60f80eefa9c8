/* Rotary frequencies from + - * / on doubles alone. */
#include "model/qwen4_exp/qwen4_rope.h"

/* Natural logarithm of x >= 1: x = 2^k * m, then the series of atanh. */
static double log_of(double x) {
  const double ln2 = 0.69314718055994530942;
  double k = 0;
  while (x > 1.5) {
    x /= 2;
    k += 1;
  }
  double s = (x - 1) / (x + 1), z = s * s, sum = 0;
  for (int n = 41; n > 0; n -= 2) sum = sum * z + 1.0 / n;
  return k * ln2 + 2 * s * sum;
}

/* e^x for x in [0, 40]: the series at x / 64, squared six times. */
static double exp_of(double x) {
  x /= 64;
  double sum = 1;
  for (int n = 20; n > 0; --n) sum = 1 + sum * x / n;
  for (int i = 0; i < 6; ++i) sum *= sum;
  return sum;
}

void qwen4_inv_freq(double theta, int32_t rotary_dim, float *inv_freq) {
  const double log_theta = log_of(theta);
  for (int32_t i = 0; i < rotary_dim / 2; ++i) {
    float exponent = (float)(2 * i) / (float)rotary_dim;
    float power = (float)exp_of(log_theta * (double)exponent);
    inv_freq[i] = 1.0f / power;
  }
}
