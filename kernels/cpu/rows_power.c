/* kernels/cpu/rows_power.c -- powers with exponents that people write, and their gradients:
** roots and products instead of exponentials of logarithms. Values at zeros, infinities and
** NaN are those of C's pow. */
#include "kernels/cpu/elementwise.h"

#define T      float
#define SUFFIX f32
#define SQRT   sqrtf
#define FABS   fabsf
#include "kernels/cpu/rows_power.inc"
#undef T
#undef SUFFIX
#undef SQRT
#undef FABS

#define T      double
#define SUFFIX f64
#define SQRT   sqrt
#define FABS   fabs
#include "kernels/cpu/rows_power.inc"

const mt_power_rows MT_ISA_NAME(mt_power_rows_of)[MT_POWERS] = {
    {0.5, {root_row_f32, root_row_f64}, {root_gradient_f32, root_gradient_f64}},
    {-0.5, {rsqrt_row_f32, rsqrt_row_f64}, {rsqrt_gradient_f32, rsqrt_gradient_f64}},
    {3, {cube_row_f32, cube_row_f64}, {cube_gradient_f32, cube_gradient_f64}},
};
