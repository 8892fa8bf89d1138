/* runtime/core/dtype.h -- sizes, names and promotion of element types. */
#ifndef MT_DTYPE_H
#define MT_DTYPE_H

#include "runtime/core/status.h"

/* What a row's dtypes column allows. */
typedef enum mt_dtypes {
  MT_CLASS_FLOAT,
  MT_CLASS_ANY,
  MT_CLASS_NUMBER,
  MT_CLASS_INT
} mt_dtypes;

static inline size_t mt_dtype_size(mt_dtype d) { /* bytes */
  static const uint8_t size[MT_NDTYPES] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1};
  return size[d];
}
const char *mt_dtype_name(mt_dtype d); /* "float32" */
/* Accepts "float32", "float", "double", "half", "long", "int", "byte", ... */
int mt_dtype_parse(const char *name, mt_dtype *d /* [out] */);

/* PyTorch's type of a op b where neither is a wrapped number. */
mt_dtype mt_dtype_promote(mt_dtype a, mt_dtype b);

/* The least and the largest number that an integer dtype, or bool, holds. */
void mt_dtype_limits(mt_dtype d, int64_t *lo /* [out] */, int64_t *hi /* [out] */);
/* MT_EARG, of argument arg, unless d holds the whole part of a number; bool holds any,
** as true or false, and floats do. */
mt_status mt_check_holds(mt_dtype d, const mt_attr *value, int arg);

/* One element at p as a double, or as an int64 (saturating, NaN 0), and back: to the
** nearest, to even between two. */
double mt_load_f64(mt_dtype d, const void *p);
int64_t mt_load_i64(mt_dtype d, const void *p);
void mt_store_f64(mt_dtype d, void *p, double x);
void mt_store_i64(mt_dtype d, void *p, int64_t x);

#endif
