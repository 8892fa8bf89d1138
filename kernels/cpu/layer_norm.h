/* kernels/cpu/layer_norm.h -- rows of layer_norm and of its backward, for one element
** type. */
#ifndef MT_LAYER_NORM_H
#define MT_LAYER_NORM_H

#include "kernels/cpu/cpu.h"

/* n adjacent elements are normalised; w and b have n elements each, or are NULL. */
typedef struct mt_layer_norm_loops {
  void (*forward)(int64_t n, double epsilon, const void *x, const void *w,
                  const void *b, void *y);
  /* dx: NULL if not wanted. dw, db: sums so far, dy * (normalised x) and dy are added;
  ** NULL if none of the two is wanted. */
  void (*backward)(int64_t n, double epsilon, const void *x, const void *dy,
                   const void *w, void *dx, double *dw, double *db);
  /* forward to a y that begins with a line and has whole ones, past the caches; NULL:
  ** there is none */
  void (*forward_past)(int64_t n, double epsilon, const void *x, const void *w,
                       const void *b, void *y);
} mt_layer_norm_loops;

typedef struct mt_layer_norm_pair {
  mt_layer_norm_loops f32, f64;
} mt_layer_norm_pair;
MT_ISA_DECLARE(const mt_layer_norm_pair, mt_layer_norm); /* rows_layer_norm.c */

#endif
