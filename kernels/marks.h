/* kernels/marks.h -- what a GPU notes of a mask before it selects by it: the op _marks. */
#ifndef MT_MARKS_H
#define MT_MARKS_H

#include <stdint.h>

/* An int64 vector: how many elements are marked, then for each group how many before it,
** then, as uint32, for each tile how many of its group before it, and a bit for each
** element, whole tiles of them. */
#define MT_MARKS_TILE  2048  /* elements */
#define MT_MARKS_GROUP 32768 /* elements: 16 tiles */

static inline int64_t mt_marks_parts(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}
static inline int64_t mt_marks_length(int64_t n) {
  const int64_t tiles = mt_marks_parts(n, MT_MARKS_TILE);
  return 1 + mt_marks_parts(n, MT_MARKS_GROUP) + (tiles + 1) / 2 +
         tiles * (MT_MARKS_TILE / 64);
}

#endif
