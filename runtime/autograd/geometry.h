/* runtime/autograd/geometry.h -- gradients of strided regions: the memory that a tensor
** and a view of it span, laid out anew. */
#ifndef MT_GEOMETRY_H
#define MT_GEOMETRY_H

#include "runtime/autograd/rule.h"

/* A value of base's shape in memory that has base's strides, and reaches as far as
 * view. */
typedef struct mt_placed {
  mt_tensor *memory; /* borrowed from the calc, as whole */
  mt_tensor *whole;  /* the value: a view of memory, or memory itself */
  int64_t shift;     /* of a position in base's storage to one in memory's */
} mt_placed;

/* Lay out value, which has base's shape. fresh: the caller will change it in place.
** base may not reach one element by two indices. */
mt_placed mt_place(mt_calc *c, mt_tensor *value, const mt_meta *base,
                   const mt_meta *view, bool fresh);
/* The elements of view in it. NULL if the calc has failed. */
mt_tensor *mt_region(mt_calc *c, const mt_placed *p, const mt_meta *view);

#endif
