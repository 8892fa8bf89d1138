/* kernels/exponential.h -- exp, exp2, tanh and erf of float32, as plain C that compilers
** turn into vectors: no branch, no table, no call.
**
** They write the argument of an exponential as n log(2) + r, |r| <= log(2) / 2, and take
** exp(r) - 1 from a polynomial. Largest error over all floats: exp 1.1 ulp, denormal results
** included, tanh 2.6 ulp (spec/ops/accuracy_spec.lua), erf 1.2 ulp. With FMA the last bit
** may differ from what plain x86-64 gives. */
#ifndef MT_EXPONENTIAL_H
#define MT_EXPONENTIAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MT_EXP_FN static inline __attribute__((always_inline, unused))

/* exp's least and greatest argument, tanh's greatest, exp2's two: beyond them nothing changes. A
** compiler that knew these values would follow each through the whole polynomial, and
** give two comparisons and two blends more for each. In cpu.c. */
extern const float mt_exp_bounds[5];

#ifdef __FMA__
#define MT_MULADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MT_MULADD(a, b, c) ((a) * (b) + (c))
#endif

MT_EXP_FN float mt_float_of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}
MT_EXP_FN uint32_t mt_bits_of_float(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

/* A float of this size has a last bit worth 1: what is added to it is rounded, and
** stands in its low bits as an integer. */
#define MT_EXP_ROUNDER 0x1.8p23f

/* x - n log(2), n whole. The first part of log(2) has 9 bits: its product is exact. */
MT_EXP_FN float mt_exp_rest(float x, float n) {
  return MT_MULADD(n, 0x1.bd0106p-13f, MT_MULADD(n, -0x1.63p-1f, x));
}

/* exp(r) - 1: r + r^2 p(r), p the best of its degree by the relative error. */
MT_EXP_FN float mt_exp_polynomial(float r) {
  float p = 0.0013882514f;
  p = MT_MULADD(p, r, 0.008366558f);
  p = MT_MULADD(p, r, 0.0416672f);
  p = MT_MULADD(p, r, 0.16666543f);
  p = MT_MULADD(p, r, 0.49999997f);
  return MT_MULADD(r * r, p, r);
}

/* Comparisons are such that NaN passes. 2^n is made in two halves, so that it may lie
** beyond the normal floats: only the last product rounds. */
MT_EXP_FN float mt_float_exp(float x) {
  const float rounder = MT_EXP_ROUNDER + 2 * 127;
  x = x < mt_exp_bounds[0] ? mt_exp_bounds[0] : x;
  x = x > mt_exp_bounds[1] ? mt_exp_bounds[1] : x;
  const float t = MT_MULADD(x, 1.44269504f, rounder);
  const float y = mt_exp_polynomial(mt_exp_rest(x, t - rounder)) + 1;
  const uint32_t n = mt_bits_of_float(t), half = n >> 1; /* plus 254, plus 127 */
  return y * mt_float_of_bits(half << 23) * mt_float_of_bits((n - half) << 23);
}

/* The same without a rounded multiple of log(2): exact for whole x. */
MT_EXP_FN float mt_float_exp2(float x) {
  const float rounder = MT_EXP_ROUNDER + 2 * 127;
  x = x < mt_exp_bounds[3] ? mt_exp_bounds[3] : x;
  x = x > mt_exp_bounds[4] ? mt_exp_bounds[4] : x;
  const float t = x + rounder;
  const float y = mt_exp_polynomial((x - (t - rounder)) * 0.693147181f) + 1;
  const uint32_t n = mt_bits_of_float(t), half = n >> 1; /* plus 254, plus 127 */
  return y * mt_float_of_bits(half << 23) * mt_float_of_bits((n - half) << 23);
}

/* e / (e + 2) with e = exp(2 |x|) - 1, which is exact near 0; then x's sign. */
MT_EXP_FN float mt_float_tanh(float x) {
  const float rounder = MT_EXP_ROUNDER + 127;
  float z = 2 * fabsf(x);
  z = z > mt_exp_bounds[2] ? mt_exp_bounds[2] : z;
  const float t = MT_MULADD(z, 1.44269504f, rounder);
  const float q = mt_exp_polynomial(mt_exp_rest(z, t - rounder));
  const float power = mt_float_of_bits(mt_bits_of_float(t) << 23);
  const float e = MT_MULADD(q, power, power - 1);
  const uint32_t sign = mt_bits_of_float(x) & 0x80000000u;
  return mt_float_of_bits(mt_bits_of_float(e / (e + 2)) | sign);
}

#ifdef __AVX512F__
/* Below 0.9 x + x p(x^2), above it 1 - exp(q(|x|)), q the best of its degree by the error
** of erf, which is 1 from 4 on. With AVX-512 glibc's vectors take half as long again, and
** lie 4 ulp off; with AVX2 they are faster. */
MT_EXP_FN float mt_float_erf(float x) {
  const float rounder = MT_EXP_ROUNDER + 127, size = fabsf(x), u = size * size;
  const float a = size > 4 ? 4 : size;
  float p = -0.000610698958f;
  p = MT_MULADD(p, u, 0.00501535736f);
  p = MT_MULADD(p, u, -0.0267813398f);
  p = MT_MULADD(p, u, 0.112822121f);
  p = MT_MULADD(p, u, -0.376125306f);
  p = MT_MULADD(p, u, 0.128379155f);
  float q = 0.0001982063f;
  q = MT_MULADD(q, a, -0.00306537277f);
  q = MT_MULADD(q, a, 0.0223147906f);
  q = MT_MULADD(q, a, -0.104112877f);
  q = MT_MULADD(q, a, -0.636976937f);
  q = MT_MULADD(q, a, -1.12779676f);
  q = MT_MULADD(q, a, -0.000166561885f);
  const float t = MT_MULADD(q, 1.44269504f, rounder);
  const float e = mt_exp_polynomial(mt_exp_rest(q, t - rounder)) + 1;
  const float far = 1 - e * mt_float_of_bits(mt_bits_of_float(t) << 23);
  const uint32_t sign = mt_bits_of_float(x) & 0x80000000u;
  return size < 0.9f ? MT_MULADD(x, p, x)
                     : mt_float_of_bits(mt_bits_of_float(far) | sign);
}
#endif

#endif
