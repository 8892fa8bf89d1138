/* kernels/cpu/rows_f64.c -- elementwise rows of float64. */
#include "kernels/cpu/rows.h"

#define T               double
#define SUFFIX          f64
#define STORE(x)        (x)
#define HAS_FLOAT(row)  row
#define HAS_NUMBER(row) row
#define HAS_ANY(row)    row
#define HAS_INT(row)
#include "kernels/cpu/rows.inc"
