/* kernels/cpu/rows_special.c -- rows of special functions that the formulas' loops would
** compute element by element. */
#include "kernels/cpu/elementwise.h"
#define MT_FORMULAS
#include "kernels/words.h"

/* Of a unit above 0 a compiler leaves out what serves reflection. */
static void lgamma_row_f32(int64_t n, char *const *p, const mt_attr *attr) {
  float *out = (float *)p[0];
  const float *x = (const float *)p[1];
  (void)attr;
  for (int64_t i = 0; i < n; i += MT_ROW_UNIT) {
    float y[MT_ROW_UNIT];
    int below = 0;
    for (int j = 0; j < MT_ROW_UNIT; j++) below |= !(x[i + j] > 0);
    if (below)
      for (int j = 0; j < MT_ROW_UNIT; j++) y[j] = mt_lgamma_f32(x[i + j]);
    else
      for (int j = 0; j < MT_ROW_UNIT; j++)
        y[j] = (float)mt_lgamma_above((double)x[i + j]);
    memcpy(out + i, y, sizeof y);
  }
}

/* Near its zeros float64's lgamma has more digits than the logarithm of a product, or than
** what two logarithms leave, which it takes below -7. */
static void lgamma_row_f64(int64_t n, char *const *p, const mt_attr *attr) {
  double *out = (double *)p[0];
  const double *x = (const double *)p[1];
  (void)attr;
  for (int64_t i = 0; i < n; i += MT_ROW_UNIT) {
    double y[MT_ROW_UNIT];
    for (int j = 0; j < MT_ROW_UNIT; j++) y[j] = mt_lgamma_lanes(x[i + j]);
    for (int j = 0; j < MT_ROW_UNIT; j++) {
      const double size = fabs(y[j]), least = x[i + j] < -7 ? 4 : 1;
      if (!(size >= least && size < (double)INFINITY)) y[j] = mt_lgamma_f64(x[i + j]);
    }
    memcpy(out + i, y, sizeof y);
  }
}

#define TRIGAMMA_ROW(T, suffix)                                                       \
  static void trigamma_row_##suffix(int64_t n, char *const *p, const mt_attr *attr) { \
    T *out = (T *)p[0];                                                               \
    const T *x = (const T *)p[1];                                                     \
    (void)attr;                                                                       \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < (n & -MT_ROW_UNIT); i++) out[i] =    \
        (T)mt_trigamma_f64((double)x[i]);                                             \
  }
TRIGAMMA_ROW(float, f32)
TRIGAMMA_ROW(double, f64)

const mt_special_rows MT_ISA_NAME(mt_special_rows_of) = {
    {lgamma_row_f32, lgamma_row_f64}, {trigamma_row_f32, trigamma_row_f64}};
