/* kernels/cpu/pool.h -- the row loop of max_pool2d's most frequent windows. */
#ifndef MT_POOL_H
#define MT_POOL_H

#include "kernels/cpu/cpu.h"

/* n windows of 2 x 2, side by side in the rows `upper` and `lower`: the largest, and its
** place from `at` on (counted along the plane; `lower` begins w behind `upper`). The first
** of ties in reading order; a NaN is larger than all. */
typedef struct mt_pool_rows {
  void (*f32)(int64_t n, int64_t w, int64_t at, const float *upper, const float *lower,
              float *y, int64_t *mask);
  void (*f64)(int64_t n, int64_t w, int64_t at, const double *upper,
              const double *lower, double *y, int64_t *mask);
} mt_pool_rows;
MT_ISA_DECLARE(const mt_pool_rows, mt_pool); /* rows_pool.c */

#endif
