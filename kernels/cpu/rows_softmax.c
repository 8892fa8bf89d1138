/* kernels/cpu/rows_softmax.c -- loops of softmax and of the losses, for one level of
** x86-64. exp comes in vectors by words.h. A NaN makes its whole row NaN. */
#include "kernels/cpu/softmax.h"
#include "kernels/words.h"

#define SUFFIXED(name) MT_CAT(name, SUFFIX)

#define T      float
#define SUFFIX f32
#include "kernels/cpu/softmax_rows.inc"
#undef T
#undef SUFFIX

#define T      double
#define SUFFIX f64
#include "kernels/cpu/softmax_rows.inc"

#define ENTRY(sfx)                                                             \
  {                                                                            \
    row_##sfx, columns_##sfx, row_backward_##sfx, columns_backward_##sfx,      \
        row_sum_##sfx, columns_sum_##sfx, row_scale_##sfx, columns_scale_##sfx \
  }

const mt_softmax_pair MT_ISA_NAME(mt_softmax) = {ENTRY(f32), ENTRY(f64)};
