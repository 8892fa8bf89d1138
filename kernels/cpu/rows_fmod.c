/* kernels/cpu/rows_fmod.c -- fmod and remainder of float32 in vectors, for one level of
** x86-64.
**
** In float64 a - b trunc(a / b) is exact as long as the quotient has less than 29 bits:
** a, b and their difference are multiples of the same small unit, and shorter than 53
** bits. A quotient just below a whole number may round up to it: then the difference
** is negative, and b is added. Units with other quotients, with infinities, NaN or a
** divisor of 0 take the library's fmod, element by element. */
#include "kernels/cpu/elementwise.h"
#include "kernels/words.h"

/* The remainder of |a| by |b|; *large: is the quotient not one for this way? */
static inline double rest_of(float a, float b, int *large) {
  const double x = (double)fabsf(a), y = (double)fabsf(b);
  const double quotient = x / y;
  *large = !(quotient < 0x1p29) | !(fabsf(b) < INFINITY);
  const double rest = x - y * trunc(quotient);
  return rest < 0 ? rest + y : rest;
}

static inline float with_sign(float x, float of) {
  return mt_float_of_bits(mt_bits_of_float(x) | (mt_bits_of_float(of) & 0x80000000u));
}

static void fmod_row(int64_t n, char *const *p, const mt_attr *attr) {
  float *out = (float *)p[0];
  const float *a = (const float *)p[1], *b = (const float *)p[2];
  (void)attr;
  for (int64_t i = 0; i < n; i += MT_ROW_UNIT) {
    float y[MT_ROW_UNIT];
    int large = 0;
    for (int j = 0; j < MT_ROW_UNIT; j++) {
      int one;
      y[j] = with_sign((float)rest_of(a[i + j], b[i + j], &one), a[i + j]);
      large |= one;
    }
    if (large)
      for (int j = 0; j < MT_ROW_UNIT; j++) y[j] = mt_fmod_f32(a[i + j], b[i + j]);
    memcpy(out + i, y, sizeof y);
  }
}

static void remainder_row(int64_t n, char *const *p, const mt_attr *attr) {
  float *out = (float *)p[0];
  const float *a = (const float *)p[1], *b = (const float *)p[2];
  (void)attr;
  for (int64_t i = 0; i < n; i += MT_ROW_UNIT) {
    float y[MT_ROW_UNIT];
    int large = 0;
    for (int j = 0; j < MT_ROW_UNIT; j++) {
      int one;
      const float divisor = b[i + j];
      const float m = with_sign((float)rest_of(a[i + j], divisor, &one), a[i + j]);
      const int other = (m != 0) & ((m < 0) ^ (divisor < 0));
      y[j] = other ? m + divisor : m; /* a zero keeps its sign */
      large |= one;
    }
    if (large)
      for (int j = 0; j < MT_ROW_UNIT; j++) y[j] = mt_remainder_f32(a[i + j], b[i + j]);
    memcpy(out + i, y, sizeof y);
  }
}

const mt_fmod_rows MT_ISA_NAME(mt_fmod_rows_of) = {fmod_row, remainder_row};
