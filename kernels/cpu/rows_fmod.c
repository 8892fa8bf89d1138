/* kernels/cpu/rows_fmod.c -- fmod and remainder in vectors, for one level of x86-64.
**
** In float64 a - b trunc(a / b) is exact as long as the quotient has less than 29 bits:
** a, b and their difference are multiples of the same small unit, and shorter than 53
** bits. A quotient just below a whole number may round up to it: then the difference
** is negative, and b is added. Of float64 the same holds below 2^53, with a product that is
** fused with the difference: both are multiples of b's last place, and the difference is
** not larger than b. Units with other quotients, with infinities, NaN or a
** divisor of 0 take the library's fmod, element by element. */
#include "kernels/cpu/elementwise.h"
#include "kernels/words.h"

/* The remainder of |a| by |b|; *large: is the quotient not one for this way? */
static inline double rest_of_f32(float a, float b, int *large) {
  const double x = (double)fabsf(a), y = (double)fabsf(b);
  const double quotient = x / y;
  *large = !(quotient < 0x1p29) | !(fabsf(b) < INFINITY);
  const double rest = x - y * trunc(quotient);
  return rest < 0 ? rest + y : rest;
}

#define T      float
#define SUFFIX f32
#include "kernels/cpu/rows_fmod.inc"
#undef T
#undef SUFFIX

#ifdef __FMA__
static inline double rest_of_f64(double a, double b, int *large) {
  const double x = fabs(a), y = fabs(b), quotient = x / y;
  *large = !(quotient < 0x1p53) | !(y < (double)INFINITY);
  const double rest = __builtin_fma(-trunc(quotient), y, x);
  return rest < 0 ? rest + y : rest;
}

#define T      double
#define SUFFIX f64
#include "kernels/cpu/rows_fmod.inc"
#else
#define fmod_row_f64      NULL
#define remainder_row_f64 NULL
#endif

const mt_fmod_rows MT_ISA_NAME(mt_fmod_rows_of) = {
    {fmod_row_f32, fmod_row_f64}, {remainder_row_f32, remainder_row_f64}};
