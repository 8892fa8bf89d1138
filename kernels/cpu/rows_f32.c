/* kernels/cpu/rows_f32.c -- elementwise rows of float32, which serve the half types
** too. */
#include "kernels/cpu/rows.h"

#define T               float
#define SUFFIX          f32
#define STORE(x)        (x)
#define HAS_FLOAT(row)  row
#define HAS_NUMBER(row) row
#define HAS_ANY(row)    row
#define HAS_INT(row)
#include "kernels/cpu/rows.inc"
