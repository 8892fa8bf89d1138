/* kernels/special.h -- words.h's special functions: lgamma, digamma, polygamma, Bessel,
** erfinv, nextafter. In float64 for both float types; float32 is rounded once. Included
** by words.h alone, and by the text of fused kernels that need it: fuse_source.c. */
#ifndef MT_SPECIAL_H
#define MT_SPECIAL_H

#ifndef __CUDACC__
#include "kernels/special_lanes.h"

MT_WORD_CALL double mt_lgamma_f64(double x) {
  int sign; /* lgamma would write it to a variable that all threads share */
  return lgamma_r(x, &sign);
}
#else
MT_WORD_CALL double mt_lgamma_f64(double x) { return lgamma(x); }
MT_WORD_FN float mt_lgamma_f32(float x) { return (float)mt_lgamma_f64(x); }

/* Recurrence to 10 and beyond, then the asymptotic series (Abramowitz and Stegun 6.3.18);
** reflection below 0, where cot has a period of 1. */
MT_WORD_CALL double mt_digamma_f64(double x) {
  double y = 0;
  if (x == 0) return copysign((double)INFINITY, -x);
  if (x < 0) {
    const double r = x - rint(x);
    if (r == 0) return (double)NAN;
    y = -3.14159265358979323846 / tan(3.14159265358979323846 * r);
    x = 1 - x;
  }
  for (; x < 10; x += 1) y -= 1 / x;
  const double u = 1 / (x * x);
  double series = 691.0 / 32760 - u / 12;
  series = 1.0 / 132 - u * series;
  series = 1.0 / 240 - u * series;
  series = 1.0 / 252 - u * series;
  series = 1.0 / 120 - u * series;
  return y + log(x) - 0.5 / x - u * (1.0 / 12 - u * series);
}
#endif

/* The sum of (q + k)^-s over k = 0, 1, ..., q > 0, s > 1, by the formula of Euler and
** Maclaurin. */
MT_WORD_CALL double mt_zeta_f64(double s, double q) {
  const double c[] = {1.0 / 12,          -1.0 / 720,
                      1.0 / 30240,       -1.0 / 1209600,
                      1.0 / 47900160,    -691.0 / 1307674368000,
                      1.0 / 74724249600, -3617.0 / 10670622842880000};
  double y = 0;
  for (; q < 10 || q < s; q += 1) y += pow(q, -s);
  const double p = pow(q, -s);
  double t = p * s / q; /* B(2j) / (2j)! times this */
  y += p * q / (s - 1) + p / 2;
  for (int j = 0; j < 8; j++) {
    y += c[j] * t;
    t *= (s + 2 * j + 1) * (s + 2 * j + 2) / (q * q);
  }
  return y;
}

/* Below 0 the sum over all x + k, of either sign, less those that are not in it. 171! is
** beyond float64. */
#ifdef __CUDACC__
MT_WORD_CALL double mt_polygamma_f64(double x, double n) {
#else
MT_WORD_CALL double mt_polygamma_any(double x, double n) {
#endif
  if (!(n >= 0 && n <= 170) || n != floor(n)) return (double)NAN;
  if (n == 0) return mt_digamma_f64(x);
  const double s = n + 1, sign = floor(s / 2) * 2 == s ? 1 : -1;
  double factorial = 1, y;
  for (double k = 2; k <= n; k += 1) factorial *= k;
  if (x > 0) {
    y = x < (double)INFINITY ? mt_zeta_f64(s, x) : 0;
  } else {
    /* x + k nearest to 0, which is exact, and at the other side of 0 */
    const double r = x - rint(x), near = fabs(r), far = 1 - near;
    if (r == 0) {
      y = (double)INFINITY;
    } else if (r == r) {
      const double above = r > 0 ? near : far, below = r > 0 ? far : near;
      y = mt_zeta_f64(s, above) +
          sign * (mt_zeta_f64(s, below) - mt_zeta_f64(s, 1 - x));
    } else {
      y = (double)NAN;
    }
  }
  return y == 0 ? 0 : sign * factorial * y;
}
#ifndef __CUDACC__
MT_WORD_FN double mt_polygamma_f64(double x, double n) {
  return n == 1 ? mt_trigamma_f64(x) : mt_polygamma_any(x, n);
}
#endif

#ifdef __CUDACC__
/* Both Bessel functions of order v, 0 or 1, times exp(-x), x >= 0: the power series, all
** of whose terms are positive, or the asymptotic one (Abramowitz and Stegun 9.6.10 and
** 9.7.1). */
MT_WORD_CALL double mt_bessel_series(double x, int v) {
  double t = 1, y = 1;
  for (int k = 1; t > 1e-17 * y; k++) {
    t *= x * x / (double)(4 * k * (k + v));
    y += t;
  }
  return v ? y * x / 2 : y;
}
MT_WORD_CALL double mt_bessel_far(double x, int v) {
  double t = 1, y = 1;
  for (int k = 1; fabs(t) > 1e-17; k++) {
    t *= (double)((2 * k - 1) * (2 * k - 1) - 4 * v) / (8 * k * x);
    y += t;
  }
  return y / sqrt(6.28318530717958648 * x);
}
MT_WORD_CALL double mt_bessel_scaled(double x, int v) {
  const double a = fabs(x);
  const double y = a < 20 ? mt_bessel_series(a, v) * exp(-a) : mt_bessel_far(a, v);
  return v && x < 0 ? -y : y;
}
MT_WORD_CALL double mt_bessel(double x, int v) {
  const double a = fabs(x);
  double y = a;
  if (a < 20) {
    y = mt_bessel_series(a, v);
  } else if (a < 720) {
    y = mt_bessel_far(a, v) * exp(a / 2) * exp(a / 2);
  } else if (a >= 720) {
    y = (double)INFINITY;
  }
  return v && x < 0 ? -y : y;
}
MT_WORD_FN double mt_i0_f64(double x) { return mt_bessel(x, 0); }
MT_WORD_FN double mt_i1_f64(double x) { return mt_bessel(x, 1); }
MT_WORD_FN double mt_i0e_f64(double x) { return mt_bessel_scaled(x, 0); }
MT_WORD_FN double mt_i1e_f64(double x) { return mt_bessel_scaled(x, 1); }

/* A start of three digits (Taylor's series; Winitzki's closed form), then two steps of
** Halley's method, which triples the digits, on erf or, near 1, on erfc. */
MT_WORD_CALL double mt_erfinv_f64(double x) {
  const double a = fabs(x);
  double y;
  if (!(a < 1)) return a == 1 ? copysign((double)INFINITY, x) : (double)NAN;
  if (a < 0.5) {
    const double u = a * a;
    y = a * (0.886226925452758 + u * (0.2320136665346545 + u * 0.127556175305598));
  } else {
    const double l = log((1 - a) * (1 + a)), b = 4.330746750799873 + l / 2;
    y = sqrt(sqrt(b * b - l / 0.147) - b);
  }
  for (int i = 0; i < 2; i++) {
    const double wrong = a < 0.5 ? erf(y) - a : 1 - a - erfc(y);
    const double step = wrong * 0.886226925452758 * exp(y * y);
    y -= step / (1 + y * step);
  }
  return copysign(y, x);
}
#endif

#define MT_WORD_ROUNDED(word) \
  MT_WORD_FN float mt_##word##_f32(float x) { return (float)mt_##word##_f64(x); }
MT_WORD_ROUNDED(digamma)
#ifdef __CUDACC__
MT_WORD_ROUNDED(i0)
MT_WORD_ROUNDED(i0e)
MT_WORD_ROUNDED(i1)
MT_WORD_ROUNDED(i1e)
#endif
MT_WORD_ROUNDED(erfinv)
MT_WORD_FN float mt_polygamma_f32(float x, float n) {
  return (float)mt_polygamma_f64(x, n);
}

/* bits: 10 for float16, 7 for bfloat16, which are computed as float32; 0: as it is. */
MT_WORD_CALL float mt_nextafter_f32(float a, float b, float bits) {
  if (bits == 0 || a != a || b != b || a == b) return nextafterf(a, b);
  const int half = bits == 10;
  const float least = half ? 0x1p-24f : 0x1p-133f, normal = half ? 0x1p-14f : 0x1p-126f;
  if (fabsf(a) <= normal) return b > a ? a + least : a - least;
  if (half && fabsf(a) == INFINITY) return copysignf(65504, a);
  const unsigned step = 1u << (23 - (int)bits);
  return mt_word_float(mt_word_bits(a) + ((b > a) == (a > 0) ? step : 0u - step));
}
MT_WORD_FN double mt_nextafter_f64(double a, double b, double bits) {
  return (void)bits, nextafter(a, b);
}

#endif
