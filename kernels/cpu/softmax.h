/* kernels/cpu/softmax.h -- loops of softmax and of the losses, for one element type. */
#ifndef MT_SOFTMAX_H
#define MT_SOFTMAX_H

#include "kernels/cpu/cpu.h"

/* Columns that are worked on side by side where the dim is not the last one. */
#define MT_SOFTMAX_WIDTH 512

/* A row: n adjacent elements. Columns: `width` (at most MT_SOFTMAX_WIDTH) of them,
** the n elements of one `step` elements apart. In place is allowed. log: of
** log_softmax. */
typedef struct mt_softmax_loops {
  void (*row)(bool log, int64_t n, const void *x, void *y);
  void (*columns)(bool log, int64_t n, int64_t step, int64_t width, const void *x,
                  void *y);
  void (*row_backward)(bool log, int64_t n, const void *y, const void *dy, void *dx);
  void (*columns_backward)(bool log, int64_t n, int64_t step, int64_t width,
                           const void *y, const void *dy, void *dx);
  /* the largest element and log(sum(exp(x - largest))) */
  void (*row_sum)(int64_t n, const void *x, double *largest, double *log_sum);
  void (*columns_sum)(int64_t n, int64_t step, int64_t width, const void *x,
                      double *largest, double *log_sum);
  void (*row_scale)(int64_t n, double factor, void *x);
  void (*columns_scale)(int64_t n, int64_t step, int64_t width, const double *factor,
                        void *x);
  /* row to a y that begins with a line and has whole ones, past the caches; buffer: as
  ** long as y; NULL: there is none */
  void (*row_past)(bool log, int64_t n, const void *x, void *buffer, void *y);
} mt_softmax_loops;

typedef struct mt_softmax_pair {
  mt_softmax_loops f32, f64;
} mt_softmax_pair;
MT_ISA_DECLARE(const mt_softmax_pair, mt_softmax); /* rows_softmax.c */

static inline const mt_softmax_loops *mt_softmax_of(mt_dtype dtype) {
  const mt_softmax_pair *pair = MT_ISA_PICK(mt_softmax);
  return dtype == MT_F64 ? &pair->f64 : &pair->f32;
}

#endif
