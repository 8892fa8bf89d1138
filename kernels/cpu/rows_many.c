/* kernels/cpu/rows_many.c -- the steps of optimisers on contiguous elements, and
** sums of squares. */
#include "kernels/cpu/tables.h"

#define T      float
#define SUFFIX f32
#define SQRT   sqrtf
#include "kernels/cpu/rows_many.inc"
#undef T
#undef SUFFIX
#undef SQRT

#define T      double
#define SUFFIX f64
#define SQRT   sqrt
#include "kernels/cpu/rows_many.inc"

const mt_many_rows MT_ISA_NAME(mt_many_rows_of)[2] = {
    {sgd_row_f32, adam_row_f32, square_sum_row_f32},
    {sgd_row_f64, adam_row_f64, square_sum_row_f64},
};
