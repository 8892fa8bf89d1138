/* kernels/cpu/rows_gradient.c -- fused gradients of the elementwise operators: for each
** input one row over (g, y, inputs); table mt_gradients_<suffix>_<isa>[op][input]. */
#include "kernels/cpu/rows.h"

#define GRAD_NAME(name, k) MT_CAT(name##_gradient##k##_, SUFFIX)

/* p = {out, g, y, inputs}. What the formula does not use points anywhere. */
#define GRAD_1(name, k, attrs, dx)                                               \
  static void GRAD_NAME(name, k) ROW_PARAMETERS {                                \
    T *out = (T *)p[0];                                                          \
    const T *gp = (const T *)p[1], *yp = (const T *)p[2], *xp = (const T *)p[3]; \
    attrs;                                                                       \
    ROW_LOOP {                                                                   \
      const T g UNUSED = gp[i], y UNUSED = yp[i], x UNUSED = xp[i];              \
      out[i] = (dx);                                                             \
    }                                                                            \
  }
#define GRAD_2(name, k, attrs, dx)                                                    \
  static void GRAD_NAME(name, k) ROW_PARAMETERS {                                     \
    T *out = (T *)p[0];                                                               \
    const T *gp = (const T *)p[1], *yp = (const T *)p[2];                             \
    const T *ap = (const T *)p[3], *bp = (const T *)p[4];                             \
    attrs;                                                                            \
    ROW_LOOP {                                                                        \
      const T g UNUSED = gp[i], y UNUSED = yp[i], a UNUSED = ap[i], b UNUSED = bp[i]; \
      out[i] = (dx);                                                                  \
    }                                                                                 \
  }
#define GRAD_3(name, k, attrs, dx)                                               \
  static void GRAD_NAME(name, k) ROW_PARAMETERS {                                \
    T *out = (T *)p[0];                                                          \
    const T *gp = (const T *)p[1], *yp = (const T *)p[2];                        \
    const T *ap = (const T *)p[3], *bp = (const T *)p[4], *cp = (const T *)p[5]; \
    attrs;                                                                       \
    ROW_LOOP {                                                                   \
      const T g UNUSED = gp[i], y UNUSED = yp[i];                                \
      const T a UNUSED = ap[i], b UNUSED = bp[i], c UNUSED = cp[i];              \
      out[i] = (dx);                                                             \
    }                                                                            \
  }

/* A gradient that does not flow is never asked for. */
#define NONE 0

#define HAS_FLOAT(row)  row
#define HAS_NUMBER(row) row
#define HAS_ANY(row)    row
#define HAS_INT(row)

#define T      float
#define SUFFIX f32
#include "kernels/cpu/rows_gradient.inc"
#undef T
#undef SUFFIX

#define T      double
#define SUFFIX f64
#include "kernels/cpu/rows_gradient.inc"
