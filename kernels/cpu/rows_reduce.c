/* kernels/cpu/rows_reduce.c -- the folds of the reductions, for each element type. The
** order of a fold's additions depends on n only. */
#include "kernels/cpu/reduce.h"
#include "kernels/words.h"

#define NAME(name) MT_CAT(name##_, SUFFIX)
#define ROW_BLOCK  1024 /* elements that two passes go over */
#define SEARCH     64   /* elements looked at at once */

/* Long rows are read at four places at once, which keeps more lines on their way than a
** processor fetches by itself: elements of each place, and its least length. */
#define PART         8
#define SUMS         (4 * PART) /* of a row side by side: floats may not be reordered */
#define STREAM_LEAST 16384

#define INLINE   static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline)) /* sums stay in registers there */

#define ACC      double
#define CELL     f
#define T        uint16_t
#define SUFFIX   bf16
#define VALUE(x) ((double)mt_bf16_to_f32(x))
#include "kernels/cpu/rows_reduce_sum.inc"
#undef T
#undef SUFFIX
#undef VALUE

#define VALUE(x)  ((ACC)(x))
#define T         float
#define SUFFIX    f32
#define EXP       mt_exp_f32
#define FABS      fabsf
#define LANES     32 /* extremes of a row side by side */
#define LOWEST    (-(T)INFINITY)
#define HIGHEST   ((T)INFINITY)
#define IS_NAN(x) ((x) != (x))
#define POSITION  int32_t
#include "kernels/cpu/rows_reduce_sum.inc"
#include "kernels/cpu/rows_reduce.inc"
#include "kernels/cpu/rows_reduce_float.inc"
#undef T
#undef SUFFIX
#undef EXP
#undef FABS
#undef POSITION

#define T        double
#define SUFFIX   f64
#define EXP      mt_exp_f64
#define FABS     fabs
#define POSITION int64_t
#include "kernels/cpu/rows_reduce_sum.inc"
#include "kernels/cpu/rows_reduce.inc"
#include "kernels/cpu/rows_reduce_float.inc"
#undef T
#undef SUFFIX
#undef EXP
#undef FABS
#undef LANES
#undef ACC
#undef CELL
#undef LOWEST
#undef HIGHEST
#undef IS_NAN

#define LANES     1
#define ACC       int64_t
#define CELL      i
#define IS_NAN(x) 0

#define T       int64_t
#define SUFFIX  i64
#define LOWEST  INT64_MIN
#define HIGHEST INT64_MAX
#include "kernels/cpu/rows_reduce_sum.inc"
#include "kernels/cpu/rows_reduce.inc"
#undef T
#undef SUFFIX
#undef LOWEST
#undef HIGHEST
#undef POSITION

#define POSITION int32_t
#define T        int32_t
#define SUFFIX   i32
#define LOWEST   INT32_MIN
#define HIGHEST  INT32_MAX
#include "kernels/cpu/rows_reduce_sum.inc"
#include "kernels/cpu/rows_reduce.inc"

#define FOLD(kind, name, s) [kind] = {name##_row_##s, name##_columns_##s, NULL}
#define SUM(kind, name, s) \
  [kind] = {name##_row_##s, name##_columns_##s, name##_rows_##s}
#define ALL_FOLDS(s)                                                               \
  SUM(MT_FOLD_SUM, sum, s), SUM(MT_FOLD_PROD, prod, s), FOLD(MT_FOLD_MAX, max, s), \
      FOLD(MT_FOLD_MIN, min, s), FOLD(MT_FOLD_ARGMAX, argmax, s),                  \
      FOLD(MT_FOLD_ARGMIN, argmin, s), FOLD(MT_FOLD_COUNT, count, s)
#define FLOAT_FOLDS(s)                                                         \
  ALL_FOLDS(s), FOLD(MT_FOLD_MOMENTS, moments, s), FOLD(MT_FOLD_EXP, exps, s), \
      SUM(MT_FOLD_NANSUM, nansum, s), SUM(MT_FOLD_ABS, abs, s),                \
      SUM(MT_FOLD_SQUARE, square, s), SUM(MT_FOLD_POWER, power, s),            \
      FOLD(MT_FOLD_LARGEST, largest, s), FOLD(MT_FOLD_SMALLEST, smallest, s)
const mt_fold MT_ISA_NAME(mt_folds)[MT_FOLD_TYPES][MT_FOLD_KINDS] = {
    {FLOAT_FOLDS(f32)},
    {FLOAT_FOLDS(f64)},
    {ALL_FOLDS(i64)},
    {ALL_FOLDS(i32)},
    {SUM(MT_FOLD_SUM, sum, bf16)},
};
