/* runtime/autograd/reduced.h -- the shapes of a reduction, for its gradient. */
#ifndef MT_REDUCED_H
#define MT_REDUCED_H

#include "runtime/autograd/rule.h"

typedef struct mt_reduced {
  int ndim;
  bool gone[MT_MAX_DIMS];    /* is the dim reduced? */
  int64_t kept[MT_MAX_DIMS]; /* the input's shape with 1 for those */
  int64_t count;             /* elements that become one */
} mt_reduced;

/* Of input x, by the dims attribute (n = -1: all). */
mt_reduced mt_reduced_of(const mt_meta *x, const mt_attr *dims);
/* t of the result's shape, with the reduced dims as 1. */
mt_tensor *mt_reduced_keep(mt_calc *c, const mt_reduced *r, mt_tensor *t);
/* Sum t, of the input's shape, over the reduced dims, which stay as 1. */
mt_tensor *mt_reduced_sum(mt_calc *c, const mt_reduced *r, mt_tensor *t);

#endif
