/* kernels/cpu/rows.h -- what rows.inc and rows_gradient.c share: how a row reads its
** attributes and loops. */
#ifndef MT_ROWS_H
#define MT_ROWS_H

#include "kernels/cpu/tables.h"
#define MT_FORMULAS
#include "kernels/words.h"

#define ROW_PARAMETERS (int64_t n, char *const *p, const mt_attr *attr)
#define UNUSED         __attribute__((unused))

/* An attributes column becomes the declaration of its constants. */
#define ATTR(i)   MT_CAT(attr_, SUFFIX)(attr + i)
#define P0        (void)attr
#define P1(a, a0) const T a UNUSED = ATTR(0)
#define P2(a, a0, b, b0)      \
  const T a UNUSED = ATTR(0); \
  const T b UNUSED = ATTR(1)

/* n is a multiple of the unit: said so that the compiler leaves out the tail. */
#define ROW_LOOP _Pragma("GCC ivdep") for (int64_t i = 0; i < (n & -MT_ROW_UNIT); i++)

static inline UNUSED float attr_f32(const mt_attr *a) { return (float)a->f; }
static inline UNUSED double attr_f64(const mt_attr *a) { return a->f; }
/* Limits of integers saturate. */
#define ATTR_INT(suffix, T, lo, hi)                              \
  static inline UNUSED T attr_##suffix(const mt_attr *a) {       \
    const int64_t i = a->is_int ? a->i[0] : mt_f64_to_i64(a->f); \
    return (T)(i < (lo) ? (lo) : i > (hi) ? (hi) : i);           \
  }
ATTR_INT(i64, int64_t, INT64_MIN, INT64_MAX)
ATTR_INT(i32, int32_t, INT32_MIN, INT32_MAX)
ATTR_INT(i16, int16_t, INT16_MIN, INT16_MAX)
ATTR_INT(i8, int8_t, INT8_MIN, INT8_MAX)
ATTR_INT(u8, uint8_t, 0, UINT8_MAX)
ATTR_INT(b8, uint8_t, 0, 1)

#endif
