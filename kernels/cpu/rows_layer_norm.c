/* kernels/cpu/rows_layer_norm.c -- rows of layer_norm and of its backward, for one
** level of x86-64. A row stays in the first-level cache from pass to pass. */
#include "kernels/cpu/layer_norm.h"

#define NAME(name) MT_CAT(name##_, SUFFIX)
#define LANES      32   /* sums that run side by side, at every level */
#define BLOCK      1024 /* elements whose sums are added in their own type */

#define T      float
#define SUFFIX f32
#include "kernels/cpu/layer_norm_rows.inc"
#undef T
#undef SUFFIX

#define T      double
#define SUFFIX f64
#include "kernels/cpu/layer_norm_rows.inc"

const mt_layer_norm_pair MT_ISA_NAME(mt_layer_norm) = {{forward_f32, backward_f32},
                                                       {forward_f64, backward_f64}};
